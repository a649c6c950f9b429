"""Clustered intervals: the one source of every interval that this package reports."""

from readout.statistics.bootstrap import (
    bootstrap_difference,
    bootstrap_weights,
    cluster_bootstrap,
    ratio_bootstrap,
)
from readout.statistics.checks import check_level, check_seed, generator
from readout.statistics.clusters import cluster_index, cluster_sums
from readout.statistics.estimate import Estimate
from readout.statistics.intervals import cluster_difference, cluster_mean, cluster_means, cluster_ratios
from readout.statistics.multiple import adjust_p_values, max_t_p_values

__all__ = [
    "Estimate",
    "adjust_p_values",
    "bootstrap_difference",
    "bootstrap_weights",
    "check_level",
    "check_seed",
    "cluster_bootstrap",
    "cluster_difference",
    "cluster_index",
    "cluster_mean",
    "cluster_means",
    "cluster_ratios",
    "cluster_sums",
    "generator",
    "max_t_p_values",
    "ratio_bootstrap",
]
