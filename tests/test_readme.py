"""The numbers of README and docs are those of the committed results, and its Python example runs."""

import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize("script", ["table", "growth_table", "circuit_table", "transfer_table"])
def test_tables_of_readme_and_docs_are_made_from_the_committed_results(script: str) -> None:
    tables = importlib.import_module(script)
    pages = importlib.import_module("pages")
    assert pages.page_with(tables.made(), tables.MARKERS) == pages.page_of(tables.MARKERS).read_text()


def test_the_readmes_array_example_finds_the_constants_that_it_was_made_with(
    capsys: pytest.CaptureFixture[str],
) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    example = next(block for block in blocks if "from_arrays" in block)
    exec(example, {})
    out = capsys.readouterr().out
    assert "-1.0" in out
    assert "2.0" in out


def test_the_readmes_commands_exist() -> None:
    from readout.cli import COMMANDS

    text = (ROOT / "README.md").read_text()
    named = set(re.findall(r"^    readout (\w+)", text, re.MULTILINE))
    assert named <= set(COMMANDS)
