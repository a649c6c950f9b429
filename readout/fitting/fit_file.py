"""The JSON form of a fitted readout, checked where it is read: no array is stretched to a shape it does not have."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float

from readout.errors import FitError
from readout.fitting.links import Link, make_link
from readout.fitting.newton import OK
from readout.fitting.terms import TERMS
from readout.statistics.checks import check_format, fields_of, reading
from readout.wording import counted

FORMAT = "readout.fit/1"
FIELDS = (
    "link",
    "link_constants",
    "terms",
    "heads",
    "match",
    "level",
    "bootstrap",
    "seed",
    "n_prompts",
    "n_contexts",
    "status",
    "theta",
    "covariance",
    "constants",
    "bootstrap_constants",
)
WHAT = "readout file"


def nullable(array: np.ndarray) -> Any:
    """Nested lists with None for NaN."""
    plain = array.astype(object)
    plain[~np.isfinite(array)] = None
    return plain.tolist()


def check_fit(data: Any) -> tuple[Link, Float[np.ndarray, "h d"], Float[np.ndarray, "h d d"]]:
    """Refuse a dictionary that is no fitted readout, or whose parts do not go together.

    Parameters
    ----------
    data
        What `SoftmaxReadout.to_dict` wrote, one hopes.

    Returns
    -------
    The link with its constants, the constants theta and their covariance.

    Raises
    ------
    FitError
        Naming the field, what was expected and what came.
    """
    check_format(data, FORMAT, WHAT)
    fields_of(data, FIELDS, WHAT)
    heads, terms = _names(data, "heads"), _names(data, "terms")
    unknown = [term for term in terms if term not in TERMS]
    if unknown:
        raise FitError(f"{WHAT}: terms: expected names among {', '.join(TERMS)}, got {', '.join(unknown)}")
    h, d = len(heads), len(terms)
    theta = _array(data, "theta", (h, d))
    covariance = _array(data, "covariance", (h, d, d))
    status = data["status"]
    if not isinstance(status, dict) or set(status) != set(heads):
        raise FitError(f"{WHAT}: status: expected one for each of the {counted(h, 'head')}, got {_size(status)}")
    good = np.array([status[head] == OK for head in heads])
    if not np.isfinite(theta[good]).all() or not np.isnan(theta[~good]).all():
        raise FitError(f"{WHAT}: theta: expected numbers for the heads whose status is {OK!r}, and null for the others")
    with reading(WHAT):
        link = make_link(str(data["link"]))
        given = tuple(float(value) for value in data["link_constants"])
    wanted = link.n_constants(int(good.sum())) if good.any() else 0
    if len(given) != wanted or not np.isfinite(given).all():
        raise FitError(
            f"{WHAT}: link_constants: link {link.name!r} with {counted(int(good.sum()), 'usable head')} has "
            f"{counted(wanted, 'constant')}, got {len(given)}"
        )
    for name in ("constants", "bootstrap_constants"):
        table = data[name]
        if table is None and name == "bootstrap_constants":
            continue
        rows = table if isinstance(table, dict) else {}
        if set(rows) != set(heads) or any(not isinstance(r, dict) or set(r) != set(terms) for r in rows.values()):
            raise FitError(f"{WHAT}: {name}: expected an estimate for every head ({h}) and term ({', '.join(terms)})")
    if not (data["match"] is None or isinstance(data["match"], str | dict)):
        raise FitError(f"{WHAT}: match: expected null, a name or a similarity, got {type(data['match']).__name__}")
    for name in ("n_prompts", "n_contexts"):
        if isinstance(data[name], bool) or not isinstance(data[name], int):
            raise FitError(f"{WHAT}: {name}: expected a whole number, got {data[name]!r}")
    return type(link)(constants=given), theta, covariance


def _names(data: dict[str, Any], name: str) -> list[str]:
    names = data[name]
    right = isinstance(names, list | tuple) and len(names) > 0 and all(isinstance(n, str) for n in names)
    if not right or len(set(names)) != len(names):
        raise FitError(f"{WHAT}: {name}: expected a list of different names, got {names!r}")
    return list(names)


def _array(data: dict[str, Any], name: str, shape: tuple[int, ...]) -> np.ndarray:
    with reading(f"{WHAT}: {name}"):
        array = np.array(data[name], dtype=np.float64)
    if array.shape != shape:
        raise FitError(f"{WHAT}: {name}: expected shape {shape} (heads, then terms), got {array.shape}")
    return array


def _size(value: Any) -> str:
    return str(len(value)) if isinstance(value, dict | list) else type(value).__name__
