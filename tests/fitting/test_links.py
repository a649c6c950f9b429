"""Links by hand and against scipy."""

import numpy as np
import pytest
from scipy import optimize

from readout.errors import FitError
from readout.fitting import LINKS, SoftmaxReadout, draw_observations, label_mass, make_link
from readout.validation.baselines import match_log_count

MASS = np.array([[[0.3, 0.1, 0.0], [0.1, 0.1, 0.2]], [[0.2, 0.2, 0.0], [0.0, 0.4, 0.0]]])
LABELS = np.array([[True, True, True], [True, True, False]])


def softmax(logits):
    weight = np.exp(logits)
    return weight / weight.sum()


def test_mass_adds_the_attention_of_a_labels_demonstrations():
    attention = np.array([[[0.1, 0.2, 0.3, 0.0]]])
    assert label_mass(attention, np.array([[0, 1, 0, -1]]), 3)[0, 0] == pytest.approx([0.4, 0.2, 0.0])


def test_share_is_the_labels_part_of_all_mass():
    prediction = make_link("share").predict(MASS, LABELS)
    assert prediction[0] == pytest.approx([0.5, 0.25, 0.25])
    assert prediction[1] == pytest.approx([0.25, 0.75, 0])


def test_power_raises_the_share_and_renormalises():
    prediction = LINKS["power"](constants=(2.0,)).predict(MASS, LABELS)
    assert prediction[0] == pytest.approx(np.array([4, 1, 1]) / 6)
    assert prediction[1] == pytest.approx(np.array([1, 9, 0]) / 10)


def test_gain_is_a_softmax_of_the_summed_mass():
    prediction = LINKS["gain"](constants=(3.0,)).predict(MASS, LABELS)
    assert prediction[0] == pytest.approx(softmax(3 * np.array([0.4, 0.2, 0.2])))
    assert prediction[1, :2] == pytest.approx(softmax(3 * np.array([0.2, 0.6])))
    assert prediction[1, 2] == 0


def test_gain_per_head_weighs_each_head():
    prediction = LINKS["gain_per_head"](constants=(2.0, -1.0)).predict(MASS, LABELS)
    assert prediction[0] == pytest.approx(softmax(np.array([0.5, 0.1, -0.2])))


def test_links_know_how_many_constants_they_add():
    assert [make_link(name).n_constants(5) for name in LINKS] == [0, 1, 1, 5]


@pytest.mark.parametrize("name", ["power", "gain", "gain_per_head"])
def test_link_constants_minimise_the_divergence(name):
    rng = np.random.default_rng(0)
    mass, labels = rng.dirichlet(np.ones(4), (80, 2))[:, :, :3], np.ones((80, 3), dtype=bool)
    labels[::3, 2] = False
    model = np.where(labels, rng.dirichlet(np.ones(3), 80), 0)
    model /= model.sum(axis=1, keepdims=True)
    link = make_link(name).fit(mass, model, labels)

    def loss(g):
        prediction = type(link)(constants=tuple(g)).predict(mass, labels)
        return -(model * np.log(np.where(labels, prediction, 1))).sum() / 80

    found = optimize.minimize(loss, np.ones(len(link.constants)), method="Nelder-Mead", options={"xatol": 1e-7})
    # The ridge that holds several constants together moves them in the fourth figure.
    assert link.constants == pytest.approx(found.x, rel=1e-2 if name == "gain_per_head" else 1e-4)


def test_a_link_finds_the_constants_that_made_the_probabilities():
    rng = np.random.default_rng(1)
    mass, labels = rng.dirichlet(np.ones(4), (200, 2))[:, :, :3], np.ones((200, 3), dtype=bool)
    for name, truth in (("power", (1.7,)), ("gain", (4.0,)), ("gain_per_head", (5.0, -2.0))):
        model = LINKS[name](constants=truth).predict(mass, labels)
        assert make_link(name).fit(mass, model, labels).constants == pytest.approx(truth, rel=5e-3)


def test_heads_with_equal_masses_get_equal_gains_not_huge_ones_that_cancel():
    rng = np.random.default_rng(2)
    mass = np.repeat(rng.dirichlet(np.ones(4), (100, 1))[:, :, :3], 2, axis=1)
    model = rng.dirichlet(np.ones(3), 100)
    one, two = make_link("gain_per_head").fit(mass, model, np.ones((100, 3), dtype=bool)).constants
    assert one == pytest.approx(two, abs=1e-3)


def test_share_of_one_head_with_binary_match_is_match_and_log_count():
    observations = draw_observations(-1.5, 2.2, contexts=20, counts=((2, 6), (1, 4)), seed=1)
    readout = SoftmaxReadout("share").fit(observations)
    constant = readout.constants_["L0H0"]["match"].value
    expected = match_log_count(observations, constant)
    assert readout.predict_proba(observations) == pytest.approx(expected, abs=1e-12)


def test_no_mass_at_all_gives_equal_shares():
    assert make_link("share").predict(np.zeros((1, 2, 3)), LABELS[1:])[0].tolist() == [0.5, 0.5, 0]


def test_a_label_without_mass_is_never_impossible():
    prediction = make_link("share").predict(np.array([[[0.5, 0.0]]]), np.ones((1, 2), dtype=bool))
    assert 0 < prediction[0, 1] < 1e-5


def test_an_unknown_link_or_one_without_its_constants_is_refused():
    with pytest.raises(FitError, match="share, power, gain, gain_per_head, got 'logit'"):
        make_link("logit")
    with pytest.raises(FitError, match="expected 1 constant for 2 heads, got 0; fit it first"):
        make_link("gain").predict(MASS, LABELS)
    with pytest.raises(FitError, match="needs label probabilities"):
        make_link("gain").fit(MASS, np.full((2, 3), np.nan), LABELS)
    with pytest.raises(FitError, match="at least one head"):
        make_link("share").fit(MASS[:, :0], LABELS / 2, LABELS)
