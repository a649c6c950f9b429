"""Transfer: the readout and its heads, fitted and named on one task, on every other."""
