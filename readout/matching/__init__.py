"""Matches: binary, and graded similarities fitted on one record and applied to another; free of torch but for the
sentence encoder."""

from readout.matching.encoder import EncoderCosine
from readout.matching.given import Given
from readout.matching.residual import ResidualCosine
from readout.matching.similarity import Binary, Similarity, class_match

__all__ = ["Binary", "EncoderCosine", "Given", "ResidualCosine", "Similarity", "class_match"]
