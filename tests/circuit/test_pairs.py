"""Pairs differ in what is exchanged and in no position."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from handmade import DISTRIBUTION

from readout.circuit.pairs import Pairs, class_pairs, class_swapped, label_swapped
from readout.errors import InterventionError
from readout.prompts import Prompt, TokenizedPrompt, tokenize
from readout.prompts.prompt import Demonstration
from readout.training.tokenizer import build_tokenizer

SHOWN = (("kali", "ka", "form"), ("boli", "bo", "case"), ("kamu", "ka", "form"), ("bomu", "bo", "case"))


def tokenized(shown: tuple[tuple[str, str, str], ...] = SHOWN) -> TokenizedPrompt:
    prompt = Prompt(
        0,
        tuple(Demonstration(*one) for one in shown),
        "kani",
        "ka",
        ("form", "case"),
        ("ka", "bo"),
        "{text} -> {label}\n",
    )
    return tokenize([prompt], build_tokenizer())[0]


def words(prompt: TokenizedPrompt) -> str:
    return " ".join(build_tokenizer().convert_ids_to_tokens(prompt.token_ids.tolist()))


def test_label_swapping_exchanges_the_labels_alone() -> None:
    swapped = label_swapped(tokenized())
    assert words(swapped) == "<s> kali -> case boli -> form kamu -> case bomu -> form kani ->"


def test_class_swapping_exchanges_the_texts_and_keeps_the_labels() -> None:
    swapped = class_swapped(tokenized())
    assert words(swapped) == "<s> boli -> form kali -> case bomu -> form kamu -> case kani ->"


@pytest.mark.parametrize("swap", [label_swapped, class_swapped])
def test_a_swapped_prompt_is_what_tokenising_its_words_gives(swap: object) -> None:
    swapped = swap(tokenized())  # type: ignore[operator]
    again = tokenize([swapped.prompt], build_tokenizer())[0]
    for name in ("token_ids", "label_positions", "demonstration_labels", "label_ids", "demonstration_spans"):
        assert np.array_equal(getattr(swapped, name), getattr(again, name)), name


@pytest.mark.parametrize("swap", [label_swapped, class_swapped])
def test_swapping_twice_gives_the_prompt_back(swap: object) -> None:
    twice = swap(swap(tokenized()))  # type: ignore[operator]
    assert twice.prompt == tokenized().prompt
    assert np.array_equal(twice.token_ids, tokenized().token_ids)


@pytest.mark.parametrize("swap", [label_swapped, class_swapped])
def test_the_right_answer_of_the_swapped_prompt_is_the_other_label(swap: object) -> None:
    own = swap(tokenized()).prompt  # type: ignore[operator]
    assert own.labels[own.label_classes.index(own.query_class)] == "case"


def test_texts_go_where_one_of_their_length_stood() -> None:
    long = (("kali kamu", "ka", "form"), ("boli", "bo", "case"), ("kamu", "ka", "form"), ("bomu boni", "bo", "case"))
    assert words(class_swapped(tokenized(long))) == (
        "<s> bomu boni -> form kamu -> case boli -> form kali kamu -> case kani ->"
    )


def test_classes_of_different_lengths_are_refused_with_both_lengths() -> None:
    with pytest.raises(InterventionError, match=r"have \[1, 2\] and \[1, 1\] tokens"):
        class_swapped(tokenized((("kali kamu", "ka", "form"), *SHOWN[1:])))


def test_prompts_without_a_partner_are_left_out_and_counted() -> None:
    pairs = class_pairs([tokenized(), tokenized(SHOWN[:3])])
    assert len(pairs.prompts) == 1
    assert pairs.note == "1 of 2 prompts left out: no partner of equal positions"


def test_no_pair_at_all_is_an_error() -> None:
    with pytest.raises(InterventionError, match="no prompt has a partner"):
        class_pairs([tokenized(SHOWN[:3])])


def test_partners_of_another_length_are_refused() -> None:
    one = tokenized()
    shorter = replace(one, token_ids=one.token_ids[:-1])
    with pytest.raises(InterventionError, match="15 tokens and its partner 14"):
        Pairs((one,), (shorter,))


def test_with_three_classes_the_third_stays() -> None:
    distribution = replace(DISTRIBUTION, classes=3, size=1)
    prompt = tokenize(distribution.prompts(), build_tokenizer())[0]
    swapped = class_swapped(prompt)
    right = prompt.prompt.label_classes.index(prompt.prompt.query_class)
    third = prompt.prompt.label_classes[(right + 2) % 3]
    for before, after in zip(prompt.prompt.demonstrations, swapped.prompt.demonstrations, strict=True):
        assert (before == after) == (before.class_name == third)
