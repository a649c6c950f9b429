"""The main job: fit on one prompt distribution, predict another, report the error."""

from readout.pipeline.defaults import default_beside, default_pair, default_task, drawn_again, target_for
from readout.pipeline.fit_stage import FitStage, fit_stage
from readout.pipeline.main_job import report_on, run
from readout.pipeline.report import RunReport

__all__ = [
    "FitStage",
    "RunReport",
    "default_beside",
    "default_pair",
    "default_task",
    "drawn_again",
    "fit_stage",
    "report_on",
    "run",
    "target_for",
]
