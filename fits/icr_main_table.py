"""In-context routing's chief rows for the README, from fits/icr_smollm2.json; icr_table.py has all.

python fits/icr_main_table.py [--write]
"""

from __future__ import annotations

from icr_table import accuracies
from pages import load, markers, print_or_write

MARKERS = markers("in-context routing, chief rows", "icr_main_table.py")
METHODS = (
    "zero-shot", "icr", "icr, random basis", "icr, constant router", "icr, random encoder", "label bias, fitted",
    "contextual calibration", "encoder only", "few-shot", "icr, gain gate",
)  # fmt: skip


def made() -> str:
    """One table."""
    return accuracies(load("icr_smollm2"), METHODS)


if __name__ == "__main__":
    print_or_write(made, MARKERS)
