"""A user's own texts and labels: JSONL, CSV, Parquet, and Hugging Face data sets."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from readout.errors import PromptError
from readout.prompts.fields import option

SUFFIXES: Final = (".jsonl", ".csv", ".parquet")
HUB: Final = "hf:"


def is_hub(task: str) -> bool:
    """Whether a task names a Hugging Face data set."""
    return task.startswith(HUB)


def stamp(path: Path) -> tuple[int, int]:
    """Time of the last change (ns) and size (bytes) of a file.

    Raises
    ------
    PromptError
        When there is no such file.
    """
    if not path.is_file():
        raise PromptError(f"no file {str(path)!r}; give the path of a file that ends in {', '.join(SUFFIXES)}")
    status = path.stat()
    return status.st_mtime_ns, status.st_size


def read_file(path: Path, text_column: str, label_column: str) -> list[tuple[str, str]]:
    """Read texts and labels from a file.

    Parameters
    ----------
    path
        A .jsonl, .csv (with a header line) or .parquet file, UTF-8.
    text_column, label_column
        Names of the two columns; others are ignored.

    Returns
    -------
    list of (str, str)
        Text and label of each row. Labels that are whole numbers or true/false become text.

    Raises
    ------
    PromptError
        When a column is missing, the file is empty or malformed, or a row lacks its text or label.
    """
    read = {".jsonl": _read_jsonl, ".csv": _read_csv, ".parquet": _read_parquet}[path.suffix.lower()]
    try:
        return read(path, text_column, label_column)
    except UnicodeDecodeError as error:
        raise PromptError(f"{path.name} is not UTF-8 (byte {error.start}); save it as UTF-8") from error


def _read_jsonl(path: Path, text_column: str, label_column: str) -> list[tuple[str, str]]:
    pairs = []
    with path.open(encoding="utf-8-sig") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            where = f"{path.name}, line {number}"
            try:
                row = json.loads(line)
            except json.JSONDecodeError as error:
                raise PromptError(f"{where}: not valid JSON ({error.msg} at column {error.colno})") from error
            if not isinstance(row, dict):
                raise PromptError(f"{where}: expected a JSON object, got {type(row).__name__}")
            _need_columns(where, row, text_column, label_column)
            pairs.append(_pair(where, row[text_column], row[label_column]))
    return _not_empty(path.name, pairs)


def _read_csv(path: Path, text_column: str, label_column: str) -> list[tuple[str, str]]:
    import pandas

    try:
        # everything as text: "NA" and "1.0" are words here, not numbers
        table = pandas.read_csv(path, dtype=str, keep_default_na=False, encoding="utf-8-sig")
    except pandas.errors.EmptyDataError:
        raise PromptError(f"{path.name} is empty; it needs a header line and one row for each text") from None
    except pandas.errors.ParserError as error:
        raise PromptError(f"{path.name} is not a readable CSV: {' '.join(str(error).split())}") from error
    return _from_table(path.name, table, text_column, label_column)


def _read_parquet(path: Path, text_column: str, label_column: str) -> list[tuple[str, str]]:
    import pandas

    try:
        table = pandas.read_parquet(path, engine="pyarrow")
    except ImportError as error:
        raise PromptError("reading Parquet needs pyarrow; pip install pyarrow") from error
    except Exception as error:  # pyarrow raises its own kinds for damaged files
        raise PromptError(f"{path.name} is not a readable Parquet file: {' '.join(str(error).split())}") from error
    return _from_table(path.name, table, text_column, label_column)


def _from_table(name: str, table: Any, text_column: str, label_column: str) -> list[tuple[str, str]]:
    _need_columns(name, list(table.columns), text_column, label_column)
    rows = zip(table[text_column].tolist(), table[label_column].tolist(), strict=True)
    pairs = [_pair(f"{name}, row {number}", text, label) for number, (text, label) in enumerate(rows, start=1)]
    return _not_empty(name, pairs)


def read_hub(task: str, text_column: str, label_column: str, split: str) -> list[tuple[str, str]]:
    """Read texts and labels from a Hugging Face data set, on the hub or in a local folder.

    Parameters
    ----------
    task
        `hf:NAME-OR-FOLDER` or `hf:NAME-OR-FOLDER:SPLIT`. A folder holds what `save_to_disk` wrote, or data
        files.
    text_column, label_column
        Names of the two columns. Labels of the type ClassLabel become their names.
    split
        The split, where the task names none; "" is "train".

    Returns
    -------
    list of (str, str)
        Text and label of each row.

    Raises
    ------
    PromptError
        When the `datasets` package, the data set, the split or a column is missing.
    """
    name, _, own_split = task.removeprefix(HUB).partition(":")
    if not name:
        raise PromptError(f"the task {task!r} names no data set; write hf:NAME-OR-FOLDER or hf:NAME-OR-FOLDER:SPLIT")
    split = own_split or split or "train"
    try:
        import datasets
    except ImportError as error:
        raise PromptError("tasks that start with hf: need the datasets package; pip install datasets") from error
    folder = Path(name)
    saved = any((folder / mark).is_file() for mark in ("state.json", "dataset_dict.json"))
    try:
        loaded = datasets.load_from_disk(name) if saved else datasets.load_dataset(name)
    except Exception as error:  # the hub, the network and the file readers raise many kinds
        raise PromptError(f"the data set {name!r} cannot be loaded: {' '.join(str(error).split())}") from error
    if isinstance(loaded, dict):
        if split not in loaded:
            raise PromptError(f"the data set {name!r} has no split {split!r}; it has {', '.join(map(str, loaded))}")
        loaded = loaded[split]
    _need_columns(name, loaded.column_names, text_column, label_column)
    labels: Iterable[Any] = loaded[label_column]
    names = getattr(loaded.features[label_column], "names", None)
    if names is not None:
        # unlabelled rows carry -1, which would otherwise read as the last name
        labels = [names[label] if label is not None and 0 <= label < len(names) else None for label in labels]
    rows = zip(loaded[text_column], labels, strict=True)
    pairs = [_pair(f"{name}, row {number}", text, label) for number, (text, label) in enumerate(rows, start=1)]
    return _not_empty(name, pairs)


def _need_columns(where: str, columns: Iterable[Any], text_column: str, label_column: str) -> None:
    present = [str(column) for column in columns]
    for column, field in ((text_column, "text_column"), (label_column, "label_column")):
        if column not in present:
            raise PromptError(
                f"{where}: no column {column!r} (it has {', '.join(map(repr, present)) or 'none'}); "
                f"name the right one with {option(field)}"
            )


def _pair(where: str, text: Any, label: Any) -> tuple[str, str]:
    if not isinstance(text, str) or not text.strip():
        raise PromptError(f"{where}: expected a text, got {text!r}; fill the row or leave it out")
    if isinstance(label, bool | int):
        label = str(label)
    if not isinstance(label, str) or not label.strip():
        raise PromptError(f"{where}: expected a label (a word or a whole number), got {label!r}")
    return text, label


def _not_empty(name: str, pairs: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    if not pairs:
        raise PromptError(f"{name} is empty; it needs one row for each text")
    return list(pairs)
