"""Running claims: their order and needs, the folder, going on after a stop, the report there and back, figures."""

import json
from pathlib import Path

import pytest
from handmade import DISTRIBUTION, handmade_model

import readout.circuit.run as running
from readout.circuit.report import CircuitReport
from readout.circuit.run import claims_with_needs, run_circuit
from readout.circuit.setting import Setting, make_setting
from readout.circuit.sufficiency import claim_7
from readout.errors import FitError, InterventionError
from readout.figures import save
from readout.figures.circuit import FIGURES

Finished = tuple[Path, CircuitReport]


@pytest.fixture(scope="module")
def setting() -> Setting:
    return make_setting(handmade_model(), DISTRIBUTION, contexts=12, draws=20)


@pytest.fixture(scope="module")
def finished(setting: Setting, tmp_path_factory: pytest.TempPathFactory) -> Finished:
    folder = tmp_path_factory.mktemp("circuit")
    return folder, run_circuit(setting, folder, (1, 2, 3, 4, 5, 6, 7))


def test_claims_come_in_the_order_in_which_they_build_on_each_other() -> None:
    assert claims_with_needs(range(1, 9)) == (3, 1, 2, 4, 5, 6, 7, 8)
    assert claims_with_needs([4]) == (3, 4)
    assert claims_with_needs([7]) == (3, 1, 2, 4, 5, 7)


@pytest.mark.parametrize("asked", [[9], [0], []])
def test_a_claim_that_does_not_exist_is_refused(asked: list[int]) -> None:
    with pytest.raises(InterventionError, match="numbered 1 to 8"):
        claims_with_needs(asked)


def test_each_claim_has_its_file_and_the_report_has_them_all(finished: Finished) -> None:
    folder, report = finished
    assert sorted(path.name for path in (folder / "claims").glob("claim-*.json")) == [
        f"claim-{number}.json" for number in range(1, 8)
    ]
    assert [claim.number for claim in report.claims] == [1, 2, 3, 4, 5, 6, 7]


def test_the_known_heads_are_in_their_roles(finished: Finished) -> None:
    names = {(part.role, part.name) for part in finished[1].parts}
    assert {("reader", "L2H0"), ("writer", "L1H0"), ("gate", "L1H1"), ("suppressor", "L2H1")} <= names


def test_a_report_comes_back_from_its_file(finished: Finished) -> None:
    folder, report = finished
    assert CircuitReport.load(folder / "circuit.json").to_dict() == report.to_dict()


def test_circuit_json_has_each_claims_numbers_and_verdict(finished: Finished) -> None:
    told = json.loads((finished[0] / "circuit.json").read_text())
    for claim in told["claims"].values():
        assert {"effect", "low", "high", "control", "p", "n", "supported", "rule", "parts"} <= claim.keys()
        assert claim["supported"] in (True, False, "undecided")
    assert told["model"]["versions"]["readout"]


def test_the_summary_is_one_screen_with_a_line_a_claim(finished: Finished) -> None:
    lines = finished[1].summary().splitlines()
    assert len(lines) < 40
    assert max(map(len, lines)) <= 120
    assert sum(line.split()[:1] == [str(number)] for number in range(1, 8) for line in lines) == 7


def test_running_again_tests_nothing_again(
    finished: Finished, setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: object) -> None:
        raise AssertionError("a claim was tested again")

    monkeypatch.setattr(running, "run_claim", refuse)
    assert run_circuit(setting, finished[0], (1, 2, 3)).to_dict() == finished[1].to_dict()


def test_a_stopped_run_tests_only_what_is_missing(
    finished: Finished, setting: Setting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "claims").mkdir()
    for name in ("settings.json", "claims/claim-3.json", "claims/token-heads.json"):
        (tmp_path / name).write_bytes((finished[0] / name).read_bytes())
    tested = []
    kept = {claim.number: claim for claim in finished[1].claims}

    def count(number: int, *args: object) -> object:
        tested.append(number)
        return kept[number]

    monkeypatch.setattr(running, "run_claim", count)
    report = run_circuit(setting, tmp_path, (3, 4))
    assert tested == [4]
    assert [claim.number for claim in report.claims] == [3, 4]


def test_claims_of_other_settings_are_not_mixed(finished: Finished) -> None:
    other = make_setting(handmade_model(), DISTRIBUTION, contexts=12, draws=21)
    with pytest.raises(InterventionError, match=r"draws \(20 there, 21 here\)"):
        run_circuit(other, finished[0], (3,))


def test_a_damaged_claim_is_named(finished: Finished, setting: Setting, tmp_path: Path) -> None:
    (tmp_path / "claims").mkdir()
    (tmp_path / "settings.json").write_bytes((finished[0] / "settings.json").read_bytes())
    (tmp_path / "claims" / "claim-3.json").write_text("{")
    with pytest.raises(FitError, match=r"claim-3\.json cannot be read"):
        run_circuit(setting, tmp_path, (3,))


@pytest.mark.parametrize("name", FIGURES)
def test_figures_are_drawn_from_the_json_alone(finished: Finished, tmp_path: Path, name: str) -> None:
    figure = FIGURES[name](json.loads((finished[0] / "circuit.json").read_text()))
    assert figure is not None
    assert all(file.stat().st_size > 2000 for file in save(figure, tmp_path / name))


def test_a_figure_of_claims_that_were_not_tested_is_none(finished: Finished) -> None:
    nothing = finished[1].to_dict() | {"claims": {}}
    assert [draw(nothing) for draw in FIGURES.values()] == [None] * len(FIGURES)


def test_where_no_head_is_named_nothing_can_be_kept(setting: Setting, finished: Finished) -> None:
    from dataclasses import replace

    bare = {claim.number: replace(claim, parts=()) for claim in finished[1].claims if claim.number < 6}
    found = claim_7(setting, bare)
    assert found.supported == "undecided"
    assert "nothing to keep" in found.notes[0]
