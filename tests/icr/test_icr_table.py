"""The README's table of in-context routing shows the committed numbers."""

from icr_table import accuracies, recoveries
from pages import load


def test_a_methods_row_has_its_accuracies_gain_and_collapses() -> None:
    result = load("icr_tiny")
    own = result["methods"]["icr"]
    row = next(line for line in accuracies(result).splitlines() if line.startswith("| icr (3)"))
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells[1:6] == [f"{100 * own['sets'][name]['accuracy']['value']:.1f}" for name in result["groups"]]
    gain = own["averages"]["in-domain"]["difference"]
    low, high = 100 * gain["low"], 100 * gain["high"]
    assert cells[6] == f"{100 * gain['value']:.1f} [{low:.1f}, {high:.1f}]"
    assert cells[7] == "-"  # routing minus itself
    assert cells[9] == f"{own['collapse_raw']} ({own['collapse_significant']})"


def test_recovery_has_a_column_only_where_few_shot_is_significantly_better() -> None:
    result = load("icr_tiny")
    few = result["methods"]["few-shot"]["sets"]
    better = [name for name, one in few.items() if one["difference"]["low"] > 0]
    head = [cell.strip() for cell in recoveries(result).splitlines()[0].strip("|").split("|")]
    assert head[1:] == better
