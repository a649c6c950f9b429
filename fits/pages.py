"""What scripts share that make tables of README and docs: estimates and rows in Markdown, places to write to."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parent


def load(name: str) -> dict[str, Any]:
    """One of the committed results."""
    result: dict[str, Any] = json.loads((HERE / f"{name}.json").read_text())
    return result


def shown(estimate: dict[str, Any] | None, digits: int = 2) -> str:
    """Value with its interval."""
    if estimate is None or estimate["value"] is None:
        return "-"
    # Adding 0 makes the zero that a small negative number is rounded to a positive one.
    value, low, high = (round(estimate[key], digits) + 0.0 for key in ("value", "low", "high"))
    return f"{value:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"


def table(head: list[str], rows: list[list[str]]) -> str:
    """Rows in Markdown."""
    return "\n".join(f"| {' | '.join(row)} |" for row in [head, ["---"] * len(head), *rows])


def markers(what: str, script: str) -> tuple[str, str]:
    """Comments of a page between which a script writes."""
    return f"<!-- {what}: made by fits/{script} -->", f"<!-- end of {what} -->"


def page_of(between: tuple[str, str]) -> Path:
    """The one page, README.md or one below docs/, that has these markers."""
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    having = [page for page in pages if all(marker in page.read_text() for marker in between)]
    if len(having) != 1:
        found = ", ".join(str(page.relative_to(ROOT)) for page in having) or "none"
        raise SystemExit(f"one page should have the lines {between[0]} and {between[1]}, it is in: {found}")
    return having[0]


def page_with(text: str, between: tuple[str, str]) -> str:
    """The page with this text between its markers."""
    before, start, rest = page_of(between).read_text().partition(between[0])
    _, end, after = rest.partition(between[1])
    return f"{before}{start}\n{text}\n{end}{after}"


def print_or_write(made: Callable[[], str], between: tuple[str, str]) -> None:
    """Print what was made, or put it into its page where the command says ``--write``."""
    if "--write" in sys.argv:
        page_of(between).write_text(page_with(made(), between))
    else:
        print(made())
