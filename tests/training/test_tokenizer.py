"""A readable prompt is exactly a training sequence."""

import numpy as np

from readout.prompts import PromptDistribution, label_pool, tokenize
from readout.prompts.synthetic import WORDS
from readout.training.batches import BOS, CUE, FIRST_LABEL, FIRST_WORD, VOCABULARY
from readout.training.tokenizer import build_tokenizer, vocabulary


def test_every_word_and_label_is_one_token_of_its_own():
    assert sorted(vocabulary().values()) == list(range(VOCABULARY))
    assert not set(WORDS) & set(label_pool("words"))


def test_a_prompt_is_tokenised_into_the_sequence_that_the_model_is_trained_on():
    prompts = PromptDistribution("synthetic", classes=3, shots=2, size=4).prompts()
    for prompt, tokenized in zip(prompts, tokenize(prompts, build_tokenizer()), strict=True):
        expected = [BOS]
        for shown in prompt.demonstrations:
            expected += [FIRST_WORD + WORDS.index(word) for word in shown.text.split()]
            expected += [CUE, FIRST_LABEL + label_pool("words").index(shown.label)]
        expected += [FIRST_WORD + WORDS.index(word) for word in prompt.query.split()] + [CUE]
        assert tokenized.token_ids.tolist() == expected


def test_label_positions_hold_the_labels():
    prompts = PromptDistribution("synthetic", classes=2, shots=3, size=2).prompts()
    for tokenized in tokenize(prompts, build_tokenizer()):
        at = tokenized.token_ids[tokenized.label_positions]
        assert np.array_equal(at, tokenized.label_ids[tokenized.demonstration_labels])


def test_the_tokenizer_survives_its_folder(tmp_path):
    from transformers import AutoTokenizer

    build_tokenizer().save_pretrained(tmp_path)
    text = "kali kamu -> moon\nsora sovi ->"
    assert AutoTokenizer.from_pretrained(tmp_path)(text)["input_ids"] == build_tokenizer()(text)["input_ids"]
