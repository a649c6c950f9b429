"""The router, its loss and its training: shapes and ranges, terms by hand, exact resume, what gets a gradient."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.special import log_softmax

from readout.errors import ReadoutError
from readout.icr.bases import make_basis
from readout.icr.carriers import ResidualStream, RoutedAttention
from readout.icr.encoders import Reader
from readout.icr.queries import Queries, read_queries
from readout.icr.router import Router, RouterSettings, routing_loss
from readout.icr.routing import Weights
from readout.icr.study import Study
from readout.icr.training import RouterTrainer, TrainingReport, epoch_batches, routed_answers

SETTINGS = RouterSettings(hidden=8, epochs=2, batch=8, learning_rate=0.01)


def test_alpha_and_gamma_have_their_shapes_and_ranges() -> None:
    router = Router(5, 2, 3, 4, SETTINGS)
    torch.nn.init.normal_(router.for_alpha[-1].weight, std=5)
    weights = router(torch.randn(7, 5) * 10)
    assert weights.alpha.shape == (7, 2, 3)
    assert weights.gamma.shape == (7, 2, 4)
    assert weights.alpha.abs().max() <= 1
    assert 0 <= weights.gamma.min() <= weights.gamma.max() <= 1
    assert weights.alpha.min() < -0.5


def test_alpha_starts_at_zero_and_gamma_near_where_it_is_told() -> None:
    router = Router(5, 2, 3, 4, replace(SETTINGS, gate_bias=-2.0))
    weights = router(torch.randn(7, 5) * 0.01)
    assert torch.equal(weights.alpha, torch.zeros(7, 2, 3))
    torch.testing.assert_close(weights.gamma, torch.full((7, 2, 4), 1 / (1 + math.exp(2))), atol=0.05, rtol=0)


def test_the_same_seed_gives_the_same_router_and_leaves_torchs_alone() -> None:
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    one, two, other = (Router(5, 2, 3, 4, replace(SETTINGS, seed=seed)) for seed in (1, 1, 2))
    assert torch.equal(torch.random.get_rng_state(), before)
    assert torch.equal(one.for_gamma[0].weight, two.for_gamma[0].weight)
    assert not torch.equal(one.for_gamma[0].weight, other.for_gamma[0].weight)


def test_every_term_of_the_loss_is_the_equations() -> None:
    draw = np.random.default_rng(0)
    logits = draw.standard_normal((3, 9)).astype(np.float32)
    options, answers = np.array([[1, 2, -1], [4, 5, 6], [0, 8, 3]]), np.array([1, 0, 2])
    alpha, gamma = draw.uniform(-1, 1, (3, 2, 4)), draw.uniform(0, 1, (3, 2, 5))
    log_p = log_softmax(logits, axis=1)
    entropy = -(np.exp(log_p) * log_p).sum(1)
    zero_shot = entropy + np.array([-0.3, 0.5, -0.1])
    right = options[range(3), answers]
    expected = {
        "cross_entropy": -log_p[range(3), right].mean(),
        "confidence": (0.3 + 0.0 + 0.1) / 3,
        # (1/L) sum_l w_l |alpha_l|_1 / r with w = 1, 3
        "sparsity": np.mean([(1 * np.abs(one[0]).sum() / 4 + 3 * np.abs(one[1]).sum() / 4) / 2 for one in alpha]),
        "gating": np.mean([np.mean([one[layer].sum() / 5 for layer in range(2)]) for one in gamma]),
    }
    weights = Weights(torch.from_numpy(alpha).float(), torch.from_numpy(gamma).float())
    given = [torch.from_numpy(one) for one in (logits, options, answers, zero_shot.astype(np.float32))]
    loss = routing_loss(*given, weights, SETTINGS)
    found = loss.terms()
    for name, value in expected.items():
        assert found[name] == pytest.approx(value, rel=1e-4), name
    total = expected["cross_entropy"] + 0.01 * expected["confidence"]
    total += 1e-3 * expected["sparsity"] + 0.02 * expected["gating"]
    assert found["total"] == pytest.approx(total, rel=1e-5)
    own = routing_loss(*given, weights, replace(SETTINGS, cross_entropy="answers")).terms()["cross_entropy"]
    by_hand = -np.mean([log_softmax(logits[i, options[i][options[i] >= 0]])[answers[i]] for i in range(3)])
    assert own == pytest.approx(by_hand, rel=1e-5)


def test_alpha_is_scaled_along_half_a_cosine() -> None:
    assert [RouterSettings(epochs=2).scale(e) for e in (0, 1)] == pytest.approx([1.0, 0.8])
    assert [RouterSettings(epochs=3).scale(e) for e in range(3)] == pytest.approx([1.0, 0.9, 0.8])
    assert RouterSettings(epochs=1).scale(0) == 0.8


def test_settings_out_of_range_or_unknown_are_refused() -> None:
    with pytest.raises(ReadoutError, match="batch"):
        RouterSettings(batch=0)
    with pytest.raises(ReadoutError, match="cross_entropy"):
        RouterSettings(cross_entropy="words")  # type: ignore[arg-type]
    with pytest.raises(ReadoutError, match="unknown depth"):
        RouterSettings.from_dict({"depth": 3})
    assert RouterSettings.from_dict(SETTINGS.to_dict()) == SETTINGS


def test_an_epoch_takes_every_query_once_in_batches_of_alike_lengths() -> None:
    lengths = np.random.default_rng(0).integers(3, 40, 300)
    batches = epoch_batches(lengths, SETTINGS, 0)
    assert sorted(np.concatenate(batches).tolist()) == list(range(300))
    spread = np.mean([np.ptp(lengths[rows]) for rows in batches])
    assert spread < 6
    assert any((one != two).any() for one, two in zip(batches, epoch_batches(lengths, SETTINGS, 1), strict=True))


def carrier_of(study: Study, kind: str = "attention") -> RoutedAttention | ResidualStream:
    vectors, layers = study.vectors(0), (2, 3)
    if kind == "residual":
        return ResidualStream.of(study.model, vectors, 4, layers)
    return RoutedAttention(study.model, make_basis(vectors, 4, layers=layers), trained=kind == "trained")


def features_of(study: Study, queries: Queries) -> np.ndarray:
    own = study.ground(0).queries
    return Reader.fit(study.ground(0).encode, "query", own.texts, own.domains)(queries.texts, queries.domains)


def trainer_of(study: Study, out: Path | None = None, kind: str = "attention", **changes: object) -> RouterTrainer:
    queries = study.ground(0).queries
    return RouterTrainer(
        carrier_of(study, kind), queries, features_of(study, queries), replace(SETTINGS, **changes), out
    )


def test_training_lowers_the_loss_and_touches_only_the_router(study: Study) -> None:
    before = {name: one.clone() for name, one in study.model.model.named_parameters()}
    report = trainer_of(study, epochs=3, cross_entropy="answers").run()
    losses = [one["cross_entropy"] for one in report.epochs]
    # three answers, alike often: knowing no more than that costs log 3
    assert losses[-1] < losses[0]
    assert losses[-1] < np.log(3)
    assert report.steps == 3 * 18
    for name, one in study.model.model.named_parameters():
        assert torch.equal(one, before[name])
        assert one.grad is None


def test_a_stopped_run_goes_on_with_the_same_result(study: Study, tmp_path: Path) -> None:
    whole = trainer_of(study, tmp_path / "whole")
    whole.run()
    stopped = trainer_of(study, tmp_path / "stopped")
    stopped._epoch(0, False)
    stopped._save(tmp_path / "stopped")
    again = trainer_of(study, tmp_path / "stopped")
    assert len(again.history) == 1
    report = again.run()
    for name, one in whole.router.state_dict().items():
        assert torch.equal(one, again.router.state_dict()[name]), name
    assert report.steps == whole.steps
    with pytest.raises(ReadoutError, match="other settings"):
        trainer_of(study, tmp_path / "stopped", learning_rate=0.5)


def test_the_untrained_router_answers_as_zero_shot_does(study: Study) -> None:
    trainer = trainer_of(study)
    queries = study.test("synthetic0")
    features = features_of(study, queries)
    for kind in ("attention", "residual"):
        carrier = carrier_of(study, kind)
        if kind == "residual":
            torch.nn.init.zeros_(trainer.router.for_gamma[-1].weight)
        found = routed_answers(carrier, trainer.router, queries, features, 0.8)
        np.testing.assert_allclose(found, queries.zero_shot, atol=1e-4)


def test_queries_kept_at_a_layer_train_as_those_read_from_the_start(study: Study) -> None:
    features = features_of(study, study.ground(0).queries)
    kept = read_queries(study.model, study.ground(0).queries.examples, 2)
    reports = [
        RouterTrainer(carrier_of(study), queries, features, replace(SETTINGS, epochs=1)).run()
        for queries in (kept, kept.from_the_start())
    ]
    assert reports[0].epochs[0]["total"] == pytest.approx(reports[1].epochs[0]["total"], rel=1e-4)
    with pytest.raises(ReadoutError, match="read up to layer 3"):
        RouterTrainer(carrier_of(study), read_queries(study.model, kept.examples, 3), features, SETTINGS)


def test_a_bias_trained_directly_moves_its_directions_and_a_frozen_one_does_not(study: Study) -> None:
    trainer = trainer_of(study, kind="trained")
    before = {name: one.detach().clone() for name, one in trainer.carrier.parameters().items()}
    trainer.run()
    assert set(before) == {f"{side}.{layer}" for side in ("query", "key") for layer in (2, 3)}
    assert all(not torch.equal(before[name], one) for name, one in trainer.carrier.parameters().items())
    assert trainer_of(study).carrier.parameters() == {}


def test_the_residual_control_trains_as_many_numbers_as_routing(study: Study) -> None:
    counts = [trainer_of(study, kind=kind, epochs=1).run().parameters for kind in ("attention", "residual")]
    assert counts[0] == counts[1]


def test_a_loss_is_flat_when_the_last_epoch_changed_it_little() -> None:
    assert TrainingReport(({"total": 1.0}, {"total": 0.99}), 2, 1).is_flat
    falling = TrainingReport(({"total": 1.0}, {"total": 0.9}), 2, 1)
    assert not falling.is_flat
    assert falling.last_change == pytest.approx(-0.1)
    assert not TrainingReport(({"total": 1.0},), 1, 1).is_flat
    assert TrainingReport(({"total": 1.0},), 1, 1).to_dict()["last_change"] is None
