"""Measure, fit and test the key-value readout of in-context learning in causal language models."""

__version__ = "0.1.0"
