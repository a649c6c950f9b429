"""Matches: binary, and graded similarities fitted on one record and applied to another; free of torch but for the
sentence encoder and the query-key form."""

from readout.matching.encoder import EncoderCosine
from readout.matching.given import Given
from readout.matching.key_query import KeyQueryMeans
from readout.matching.residual import ResidualCosine
from readout.matching.similarity import Binary, Similarity, class_match

__all__ = ["Binary", "EncoderCosine", "Given", "KeyQueryMeans", "ResidualCosine", "Similarity", "class_match"]
