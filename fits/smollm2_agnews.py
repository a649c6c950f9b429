"""SmolLM2-135M on AG News with arbitrary labels: the case where the model does not do the task.

    python fits/smollm2_agnews.py

Writes fits/smollm2_agnews.json. The report says that the fit has no ground; its numbers are kept to show what a fit
without ground looks like.
"""

from dataclasses import replace

from main_job import regenerate

from readout.pipeline import default_pair

if __name__ == "__main__":
    fit, target = (replace(one, size=64) for one in default_pair("agnews"))
    regenerate("smollm2_agnews", fit, target, replicate=False)
