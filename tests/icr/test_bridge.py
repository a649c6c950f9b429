"""The bridge between routed heads and the circuit: where gates fall, and what opens at zero shot."""

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr

from readout.errors import ReadoutError
from readout.figures.icr_bridge import bridge as draw_bridge
from readout.icr.bridge import CircuitHeads, build_bridge, gate_fall, summarise_bridge, watch
from readout.icr.methods.plain import FewShot
from readout.icr.methods.routed import Routed, Variant
from readout.icr.passes import last_logits
from readout.icr.queries import Queries
from readout.icr.router import RouterSettings
from readout.icr.study import Study
from readout.models import LanguageModel

LAYERS = (2, 3)
READERS = ((2, 1), (3, 0))


@pytest.fixture(scope="module")
def circuit(tiny_model: LanguageModel) -> CircuitHeads:
    draw = np.random.default_rng(1)
    return CircuitHeads(READERS, {head: float(draw.normal()) for head in tiny_model.heads})


@pytest.fixture(scope="module")
def routed(study: Study) -> Routed:
    settings = RouterSettings(hidden=8, epochs=1, batch=8, learning_rate=0.01)
    method = Routed("bridge test", Variant(rank=2, settings=settings))
    method.fit(study.ground(0))
    return method


@pytest.fixture(scope="module")
def few(study: Study) -> Queries:
    return study.test("synthetic0").of(range(10))


def test_gates_that_sit_on_the_readers_alone_have_the_largest_excess_and_a_small_p() -> None:
    gates = np.zeros((2, 2, 8))
    gates[:, 0, 1] = gates[:, 1, 0] = 1.0
    falls = {(layer, head): float(gates[0, place, head]) for place, layer in enumerate(LAYERS) for head in range(8)}
    found = gate_fall(gates, LAYERS, CircuitHeads(READERS, falls))
    assert found.excess == 1.0
    assert found.excess_by_seed == (1.0, 1.0)
    # one of 8 x 8 placements of two heads, one a layer, does as well
    assert found.p == pytest.approx(1 / 64, abs=0.005)
    assert found.correlation == pytest.approx(1.0)
    assert found.correlation_p == pytest.approx(1 / 64, abs=0.005)
    assert found.readers == ("L2H1", "L3H0")


def test_the_excess_is_the_readers_gate_less_its_layers_others() -> None:
    gates = np.random.default_rng(0).uniform(size=(1, 2, 4))
    found = gate_fall(gates, LAYERS, CircuitHeads(READERS, {}))
    first, second = gates[0, 0, 1] - gates[0, 0, [0, 2, 3]].mean(), gates[0, 1, 0] - gates[0, 1, 1:].mean()
    assert found.excess == pytest.approx((first + second) / 2)
    assert np.isnan(found.correlation)


def test_the_correlation_is_spearmans_of_gates_and_falls_within_layers() -> None:
    draw = np.random.default_rng(2)
    gates, falls = draw.uniform(size=(3, 2, 6)), draw.normal(size=(2, 6))
    named = {(layer, head): falls[place, head] for place, layer in enumerate(LAYERS) for head in range(6)}
    found = gate_fall(gates, LAYERS, CircuitHeads(READERS, named))
    mean = gates.mean(0)
    own = [(table - table.mean(1, keepdims=True)).ravel() for table in (mean, falls)]
    assert found.correlation == pytest.approx(spearmanr(*own).statistic)


def test_without_a_routed_reader_there_is_no_excess() -> None:
    found = gate_fall(np.ones((1, 2, 4)), LAYERS, CircuitHeads(((0, 0),), {}))
    assert np.isnan(found.excess)
    assert found.to_dict()["excess"] is None


def test_a_layer_whose_heads_are_all_readers_compares_with_nothing() -> None:
    gates = np.array([[[0.9, 0.9], [0.6, 0.1]]])
    found = gate_fall(gates, LAYERS, CircuitHeads(((2, 0), (2, 1), (3, 0)), {}))
    assert found.excess == pytest.approx(0.5)
    alone = gate_fall(gates, LAYERS, CircuitHeads(((2, 0), (2, 1)), {}))
    assert np.isnan(alone.excess)
    assert np.isnan(alone.p)


def test_watching_routed_queries_reads_the_routed_pass(tiny_model: LanguageModel, few: Queries, routed: Routed) -> None:
    found = watch(tiny_model, few, READERS, routed)
    assert routed.reader is not None
    features = torch.from_numpy(routed.reader(few.texts, few.domains))
    with torch.no_grad():
        weights = routed.trainer.router(features).times(routed.trainer.settings.last_scale)
        logits = routed.carrier.logits(few.from_the_start().batch(range(len(few)), tiny_model), weights)  # type: ignore[union-attr]
    mass = logits.softmax(-1).gather(1, torch.from_numpy(few.options)).sum(1)
    np.testing.assert_allclose(found["label mass"], mass.numpy(), atol=1e-5)


def test_watching_few_shot_prompts_reads_them_whole(tiny_model: LanguageModel, study: Study, few: Queries) -> None:
    method = FewShot()
    method.fit(study.ground(0))
    found = watch(tiny_model, few, READERS, few_shot=method)
    text = method.text("synthetic0") + few.examples[3].prompt
    ids = torch.tensor([tiny_model.tokenizer(text).input_ids])
    with torch.no_grad():
        probability = tiny_model.model(input_ids=ids).logits[0, -1].softmax(-1)
    assert found["label mass"][3] == pytest.approx(float(probability[few.options[3]].sum()), abs=1e-5)


def test_zero_shot_is_watched_as_read(tiny_model: LanguageModel, few: Queries) -> None:
    found = watch(tiny_model, few, READERS)
    with torch.no_grad():
        logits = last_logits(tiny_model, few.from_the_start().batch(range(len(few)), tiny_model))
    mass = logits.softmax(-1).gather(1, torch.from_numpy(few.options)).sum(1)
    np.testing.assert_allclose(found["label mass"], mass.numpy(), atol=1e-5)
    assert ((found["first token"] > 0) & (found["first token"] < 1)).all()


def test_the_bridge_compares_each_condition_with_zero_shot_and_draws_it(
    tiny_model: LanguageModel, study: Study, few: Queries, routed: Routed, circuit: CircuitHeads
) -> None:
    method = FewShot()
    method.fit(study.ground(0))
    found = build_bridge(tiny_model, few, {"icr": [routed], "random basis": [routed]}, circuit, method)
    mass = found.level["label mass"]
    change = found.change["label mass"]["few-shot"]
    assert change.value == pytest.approx(mass["few-shot"].value - mass["zero-shot"].value, abs=1e-9)
    assert found.change["first token"]["icr minus random basis"].value == 0
    assert "few-shot" in found.summary()
    told = found.to_dict()
    assert summarise_bridge(told) == found.summary()
    figure = draw_bridge(told)
    drawn = [line.get_xdata()[0] for line in figure.axes[1].lines]
    assert mass["few-shot"].value in [pytest.approx(float(one)) for one in drawn]


def test_a_report_without_readers_is_refused() -> None:
    with pytest.raises(ReadoutError, match="claim 3"):
        CircuitHeads.of({"claims": {}})
    sweep = {"heads": ["L0H0"], "change": [0.1]}
    with pytest.raises(ReadoutError, match="no reader"):
        CircuitHeads.of({"claims": {"3": {"parts": [], "curves": {"sweep": sweep}}}})
