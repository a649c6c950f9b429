"""Errors that a user can act on: each message says what was expected, what came and what to do."""


class ReadoutError(ValueError):
    """Bad input, refused where it enters. The command line prints it as one line and exits with code 2."""


class PromptError(ReadoutError):
    """A prompt specification, a task or a label that cannot be used."""


class UnsupportedModelError(ReadoutError):
    """A model that this package cannot read rightly."""


class RecordError(ReadoutError):
    """A record that is corrupt, unfinished or of another specification."""


class FitError(ReadoutError):
    """Data from which a readout cannot be fitted."""


class InterventionError(ReadoutError):
    """An intervention that does not fit the model or the prompts."""


class ClusterError(ReadoutError):
    """Workers that cannot be started, or die again and again."""
