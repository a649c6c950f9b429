"""Directions of few-shot prompts, against vectors whose structure is known."""

from pathlib import Path

import numpy as np
import pytest
import torch
from families import tiny

from readout.errors import ReadoutError
from readout.icr.bases import bias_size, make_basis
from readout.icr.directions import (
    Vectors,
    centred,
    components,
    few_shot_prompts,
    pca_basis,
    principal_angles,
    read_vectors,
    report_directions,
)
from readout.icr.examples import load_split
from readout.icr.passes import last_logits, make_batch
from readout.icr.projections import PreRotary
from readout.icr.study import Study
from readout.models import LanguageModel

RNG = np.random.default_rng(0)


def made_up(prompts: int = 60, width: int = 12, shift: float = 0.0, seed: int = 0) -> Vectors:
    """Three domains; shift moves their means apart."""
    draw = np.random.default_rng(seed)
    domains = np.repeat(["a", "b", "c"], prompts // 3)
    means = {name: draw.standard_normal(width) * shift for name in "abc"}
    own = np.stack([means[name] for name in domains])
    sides = [{0: (own + draw.standard_normal((prompts, width)) * np.linspace(2, 0.1, width)).astype(np.float32)}
             for _ in range(2)]  # fmt: skip
    return Vectors(sides[0], sides[1], tuple(domains), {}, 4)


def test_components_are_the_eigenvectors_of_the_covariance() -> None:
    values = centred(made_up().query[0], made_up().domains, "mean")
    directions, shares = components(values, 3)
    sizes, vectors = np.linalg.eigh(values.T @ values)
    np.testing.assert_allclose(np.abs(vectors[:, ::-1][:, :3].T @ directions), np.eye(3), atol=1e-8)
    np.testing.assert_allclose(shares, sizes[::-1][:3] / sizes.sum(), rtol=1e-8)
    np.testing.assert_allclose(directions.T @ directions, np.eye(3), atol=1e-10)


def test_more_directions_than_prompts_are_refused() -> None:
    with pytest.raises(ReadoutError, match="rank 5"):
        components(RNG.standard_normal((4, 9)), 5)


def test_centring_removes_the_mean_or_each_domains() -> None:
    vectors = made_up(shift=5.0)
    np.testing.assert_allclose(centred(vectors.query[0], vectors.domains, "mean").mean(0), 0, atol=1e-9)
    within = centred(vectors.query[0], vectors.domains, "domain")
    for name in "abc":
        np.testing.assert_allclose(within[np.array(vectors.domains) == name].mean(0), 0, atol=1e-9)
    with pytest.raises(ReadoutError, match="centring"):
        centred(vectors.query[0], vectors.domains, "median")  # type: ignore[arg-type]


def test_the_share_between_domains_is_high_only_where_domains_differ() -> None:
    apart = report_directions(made_up(shift=20.0), 2)
    alike = report_directions(made_up(shift=0.0), 2)
    assert apart.between["query"][0] > 0.95
    assert alike.between["query"][0] < 0.2
    assert "between domains" in apart.summary()
    assert apart.to_dict()["between"]["query"] == list(apart.between["query"])


def test_principal_angles_are_those_of_planes_turned_by_a_known_angle() -> None:
    turn = np.radians(30)
    first = np.eye(4)[:, :2]
    other = np.column_stack([np.eye(4)[:, 0], np.cos(turn) * np.eye(4)[:, 1] + np.sin(turn) * np.eye(4)[:, 2]])
    np.testing.assert_allclose(principal_angles(first, other), [0, 30], atol=1e-5)


def test_halves_of_many_prompts_agree_better_than_random_subspaces() -> None:
    report = report_directions(made_up(600, shift=3.0), 2)
    assert report.angles["query"][0] < 30 < report.chance_angles["query"][0]


def test_what_is_read_is_the_last_tokens_projection_before_the_rotary_embedding() -> None:
    model = LanguageModel(tiny("llama"))
    ids = [RNG.integers(3, 96, n) for n in (7, 4)]

    class Words:
        def __call__(self, text: str) -> object:
            return type("Encoded", (), {"input_ids": ids[int(text)].tolist()})

    model.tokenizer = Words()
    found = read_vectors(model, [("a", "0"), ("b", "1")], [1])
    for row, one in enumerate(ids):
        keep = {1: torch.empty(0)}
        with torch.no_grad():
            last_logits(model, make_batch([one]), keep=keep)
            block = model.model.model.layers[1]
            normed = block.input_layernorm(keep[1][0, -1])
            np.testing.assert_allclose(found.query[1][row], block.self_attn.q_proj(normed), atol=1e-5)
            np.testing.assert_allclose(found.key[1][row], block.self_attn.k_proj(normed), atol=1e-5)
        np.testing.assert_allclose(found.residual[1][row], keep[1][0, -1], atol=1e-5)
    assert found.key[1].shape[1] == found.query[1].shape[1] // 2  # two query heads share a key head


def test_after_a_query_norm_is_where_it_is_read() -> None:
    model = LanguageModel(tiny("qwen3"))
    taps = PreRotary(model, [1])
    with torch.no_grad(), taps.reading():
        last_logits(model, make_batch([RNG.integers(3, 96, 6)]))
    by_head = taps.query[1].unflatten(-1, (4, -1))  # type: ignore[no-untyped-call]
    weight = model.model.model.layers[1].self_attn.q_norm.weight
    torch.testing.assert_close((by_head / weight).pow(2).mean(-1), torch.ones(by_head.shape[:-1]), atol=1e-3, rtol=0)


def test_vectors_and_their_provenance_survive_the_file(tmp_path: Path) -> None:
    vectors = made_up()
    vectors.save(tmp_path / "v.safetensors", {"model": "m", "seed": 3})
    again, provenance = Vectors.load(tmp_path / "v.safetensors")
    np.testing.assert_array_equal(again.query[0], vectors.query[0])
    assert (again.domains, again.head_dim, provenance) == (vectors.domains, 4, {"model": "m", "seed": 3})
    (tmp_path / "bad").write_bytes(b"no")
    with pytest.raises(ReadoutError, match="readout icr directions"):
        Vectors.load(tmp_path / "bad")


def test_the_size_of_a_bias_is_its_spread_over_keys() -> None:
    vectors = made_up()
    basis = pca_basis(vectors, 3)
    table = (vectors.query[0] @ basis.query[0].numpy()) @ (vectors.key[0] @ basis.key[0].numpy()).T
    assert bias_size(basis, vectors)[0] == pytest.approx(float(np.sqrt(table.var(1).mean())), rel=1e-4)


def test_a_random_basis_is_orthonormal_and_can_be_matched_in_size() -> None:
    vectors = made_up(shift=4.0)
    loose = make_basis(vectors, 3, "random-unmatched", "raw")
    torch.testing.assert_close(loose.query[0].T @ loose.query[0], torch.eye(3), atol=1e-5, rtol=0)
    for scale in ("raw", "dimension", "std"):
        wanted = bias_size(make_basis(vectors, 3, "pca", scale), vectors)
        for kind in ("random", "pca-within"):
            assert bias_size(make_basis(vectors, 3, kind, scale), vectors)[0] == pytest.approx(wanted[0], rel=1e-4)
    assert bias_size(loose, vectors)[0] < bias_size(make_basis(vectors, 3, "pca", "raw"), vectors)[0]


def test_scales_do_what_their_names_say() -> None:
    vectors = made_up(shift=4.0)
    raw, small, even = (make_basis(vectors, 2, "pca", scale) for scale in ("raw", "dimension", "std"))
    torch.testing.assert_close(small.query[0] * 2, raw.query[0])  # head_dim 4
    np.testing.assert_allclose((vectors.query[0] @ even.query[0].numpy()).std(0), 1, rtol=1e-4)
    np.testing.assert_allclose((vectors.key[0] @ even.key[0].numpy()).std(0), 1, rtol=1e-4)
    with pytest.raises(ReadoutError, match="scale"):
        make_basis(vectors, 2, "pca", "big")
    with pytest.raises(ReadoutError, match="basis"):
        make_basis(vectors, 2, "ica")


def test_few_shot_prompts_are_balanced_and_end_with_a_query_that_is_not_shown() -> None:
    train = {"synthetic0": load_split("synthetic0").train}
    prompts = few_shot_prompts(train, 5, 2, seed=1)
    assert prompts == few_shot_prompts(train, 5, 2, seed=1)
    for name, text in prompts:
        *shown, query = text.split("\n")
        assert (name, len(shown)) == ("synthetic0", 6)
        labels = [line.split(" -> ")[1] for line in shown]
        assert sorted(labels) == sorted(["book", "road", "star"] * 2)
        assert query.endswith(" ->")
        assert query not in [line.rsplit(" ", 1)[0] for line in shown]


def test_demonstrations_are_left_out_before_the_query_is_cut(tiny_model: LanguageModel) -> None:
    train = {"synthetic0": load_split("synthetic0").train}
    for _, text in few_shot_prompts(train, 3, 4, 0, max_tokens=20, tokenizer=tiny_model.tokenizer):
        assert len(tiny_model.tokenizer(text).input_ids) <= 20
        assert text.endswith(" ->")


def test_a_studys_directions_are_made_once_and_say_where_they_come_from(study: Study) -> None:
    vectors = study.vectors(0)
    path = study.folder / "cache" / "directions-0.safetensors"
    stamp = path.stat().st_mtime_ns
    np.testing.assert_array_equal(study.vectors(0).query[2], vectors.query[2])
    assert path.stat().st_mtime_ns == stamp
    assert Vectors.load(path)[1]["fingerprint"] == study.model.provenance["fingerprint"]
