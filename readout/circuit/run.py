"""Run the claims of the circuit in their order; each is written as it is finished, and a stopped run goes on."""

from __future__ import annotations

import json
import platform
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from readout.circuit.claim import Claim, Part
from readout.circuit.edits import Intervention
from readout.circuit.engine import intervene
from readout.circuit.report import CircuitReport, load_claim
from readout.circuit.setting import Setting
from readout.errors import InterventionError
from readout.files import writable_folder, write_json
from readout.statistics import cluster_mean

MODULES = {
    1: "identity",
    2: "writers",
    3: "readers",
    4: "gate",
    5: "suppressors",
    6: "steering",
    7: "sufficiency",
    8: "transfer",
}
"""Module of each claim's test, imported when it is tested."""
ORDER = (3, 1, 2, 4, 5, 6, 7, 8)
NEEDS: dict[int, tuple[int, ...]] = {2: (3,), 4: (3,), 5: (3,), 6: (3, 4), 7: (3, 1, 2, 4, 5)}
"""Claims that another one builds on."""


def run_claim(number: int, setting: Setting, known: Mapping[int, Claim], progress: bool = False) -> Claim:
    """Test one claim.

    Parameters
    ----------
    number
        1 to 8.
    setting
        Model and prompts.
    known
        Claims tested before; those that a claim needs and that are missing are tested by it.
    progress
        Show bars.

    Returns
    -------
    Claim
    """
    module = import_module(f"readout.circuit.{MODULES[number]}")
    claim: Claim = getattr(module, f"claim_{number}")(setting, known, progress)
    return claim


def claims_with_needs(asked: Iterable[int]) -> tuple[int, ...]:
    """The claims asked for and those they need, in the order of testing.

    Raises
    ------
    InterventionError
        If there is no such claim.
    """
    wanted = set(asked)
    unknown = sorted(wanted - set(ORDER))
    if unknown or not wanted:
        raise InterventionError(
            f"claims are numbered 1 to 8, asked for {', '.join(map(str, unknown)) or 'none'}: give numbers such as 3,4"
        )
    wanted |= {needed for one in wanted for needed in NEEDS.get(one, ())}
    return tuple(number for number in ORDER if number in wanted)


def run_circuit(
    setting: Setting,
    out: str | Path | None = None,
    claims: Sequence[int] = ORDER,
    *,
    main_job: str | Path | None = None,
    progress: bool = False,
) -> CircuitReport:
    """Test claims and write their folder.

    Parameters
    ----------
    setting
        Model and prompts, from `readout.circuit.setting.make_setting`.
    out
        Folder for ``settings.json``, ``claims/claim-N.json`` and ``circuit.json``; None writes nothing. Claims that are
        there are used if they were made with the same settings.
    claims
        Numbers of the claims; those that they need are tested too.
    main_job
        Folder of a finished ``readout run`` of the same model, which claim 8 is then read from.
    progress
        Show a bar.

    Returns
    -------
    CircuitReport
        Of all claims in the folder.

    Raises
    ------
    InterventionError
        If a claim does not exist, or the folder holds claims of other settings.
    """
    wanted = claims_with_needs(claims)
    folder = None if out is None else writable_folder(out)
    settings = _settings(setting, main_job)
    known = {} if folder is None else _resume(folder, settings)
    missing = [number for number in wanted if number not in known]
    with tqdm(total=len(missing), unit="claim", desc="circuit", disable=not progress) as bar:
        for number in missing:
            bar.set_postfix_str(f"claim {number}: {MODULES[number]}")
            if number == 8 and main_job is not None:
                claim = _from_main_job(Path(main_job), setting)
            else:
                claim = run_claim(number, setting, known)
            known[number] = claim
            if folder is not None:
                write_json(folder / "claims" / f"claim-{number}.json", claim.to_dict())
            bar.update()
    parts, curves = _token_heads(setting, folder)
    model = {"name": setting.model.name, **setting.model.provenance, "versions": _versions()}
    report = CircuitReport(
        model, settings, _behaviour(setting), tuple(known[number] for number in sorted(known)), parts, curves
    )
    if folder is not None:
        report.save(folder / "circuit.json")
    return report


def _settings(setting: Setting, main_job: str | Path | None) -> dict[str, Any]:
    """All that decides what the claims are."""
    return {
        "model": {"name": setting.model.name, "fingerprint": setting.model.provenance.get("fingerprint")},
        "dtype": str(setting.model.dtype).removeprefix("torch."),
        # As JSON gives it back, so that lists compare equal.
        "distribution": json.loads(setting.distribution.to_json()),
        "contexts": setting.distribution.size,
        "draws": setting.draws,
        "seed": setting.seed,
        "permuted": setting.permuted,
        "main_job": None if main_job is None else str(Path(main_job).resolve()),
    }


def _resume(folder: Path, settings: dict[str, Any]) -> dict[int, Claim]:
    """Claims of the folder, after a check that they were made with these settings."""
    path = folder / "settings.json"
    done = sorted((folder / "claims").glob("claim-*.json"))
    if path.exists():
        try:
            before = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise InterventionError(f"{path} is no JSON ({error}): give another folder, or delete this one") from error
        differing = [name for name in settings if before.get(name) != settings[name]]
        if done and differing:
            told = ", ".join(f"{name} ({_short(before.get(name), settings[name])})" for name in differing)
            raise InterventionError(
                f"{folder} holds claims of other settings: {told}; give another folder, or the settings in {path.name}"
            )
    elif done:
        raise InterventionError(f"{folder} holds claims without {path.name}: give another folder, or delete them")
    write_json(path, settings)
    return {claim.number: claim for claim in map(load_claim, done)}


def _short(before: Any, now: Any) -> str:
    if isinstance(before, dict) and isinstance(now, dict):
        return ", ".join(
            f"{key}: {before.get(key)} there, {now[key]} here" for key in now if before.get(key) != now[key]
        )
    return f"{before} there, {now} here"


def _from_main_job(folder: Path, setting: Setting) -> Claim:
    """Claim 8 out of a finished main job of the same model."""
    from readout.circuit.transfer import claim_from_report
    from readout.pipeline import RunReport

    report = RunReport.load(folder / "report.json")
    own, other = setting.model.provenance.get("fingerprint"), report.model.get("fingerprint")
    if own != other:
        raise InterventionError(
            f"{folder} is a main job of {report.model.get('name')} ({other}), not of {setting.model.name} ({own}): "
            "give one of the same model"
        )
    return claim_from_report(report)


def _token_heads(setting: Setting, folder: Path | None) -> tuple[tuple[Part, ...], dict[str, Any]]:
    """Previous-token, duplicate-token and induction heads, measured once."""
    from readout.circuit.token_heads import score_token_heads

    path = None if folder is None else folder / "claims" / "token-heads.json"
    if path is not None and path.exists():
        told = json.loads(path.read_text(encoding="utf-8"))
        return tuple(Part.from_dict(part) for part in told["parts"]), told["curves"]
    scores = score_token_heads(setting.model, seed=setting.seed)
    parts, curves = scores.parts(setting.seed), scores.curves()
    if path is not None:
        write_json(path, {"parts": [part.to_dict() for part in parts], "curves": curves})
    return parts, curves


def _behaviour(setting: Setting) -> dict[str, Any]:
    """What the model does on the testing half."""
    outcome = intervene(setting.model, setting.testing, [Intervention("", ())])
    logits = np.where(np.isfinite(outcome.unedited.logits), outcome.unedited.logits, -np.inf)
    right = (logits.argmax(-1) == outcome.answers).astype(np.float64)
    return {
        "accuracy": cluster_mean(right, outcome.contexts).share(),
        "logit difference": cluster_mean(outcome.logit_difference(outcome.unedited), outcome.contexts),
        "chance": float(np.mean([1 / len(one.label_ids) for one in setting.testing])),
    }


def _versions() -> dict[str, str]:
    from readout.records.chunks import LIBRARIES

    return {"python": platform.python_version(), "readout": version("readout")} | {
        name: version(name) for name in LIBRARIES
    }
