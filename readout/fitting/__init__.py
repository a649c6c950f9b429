"""Fitting the softmax readout; free of torch. The lmfit bridge is in `readout.fitting.lmfit_bridge`."""

from readout.fitting.constants import ConstantsFit, fit_constants
from readout.fitting.label_words import LabelWords, fit_label_words
from readout.fitting.links import LINKS, Gain, GainPerHead, Link, Power, Share, label_mass, make_link
from readout.fitting.observations import Observations
from readout.fitting.permutations import permuted_match, split_contexts
from readout.fitting.pooling import Pooled, pool_constants
from readout.fitting.readers import FEWEST_CONTEXTS, ReaderRow, ReaderTable, choose_readers
from readout.fitting.readout import SoftmaxReadout
from readout.fitting.synthetic import draw_observations
from readout.fitting.terms import TERMS, features

__all__ = [
    "FEWEST_CONTEXTS",
    "LINKS",
    "TERMS",
    "ConstantsFit",
    "Gain",
    "GainPerHead",
    "LabelWords",
    "Link",
    "Observations",
    "Pooled",
    "Power",
    "ReaderRow",
    "ReaderTable",
    "Share",
    "SoftmaxReadout",
    "choose_readers",
    "draw_observations",
    "features",
    "fit_constants",
    "fit_label_words",
    "label_mass",
    "make_link",
    "permuted_match",
    "pool_constants",
    "split_contexts",
]
