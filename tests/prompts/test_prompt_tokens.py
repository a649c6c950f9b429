import numpy as np
import pytest
from tokenizers import Tokenizer, processors
from transformers import PreTrainedTokenizerFast

from readout.errors import PromptError
from readout.prompts import Demonstration, Prompt, PromptDistribution, contexts, show, tokenize

CLASSES = {"foo": "A", "bar": "B", "baz": "C"}


def prompt(shown, query="cat", template="{text}: {label}\n", labels=("foo", "bar")):
    """A prompt from (text, label) pairs."""
    demonstrations = tuple(Demonstration(text, f"class of {label}", label) for text, label in shown)
    classes = tuple(f"class of {label}" for label in labels)
    return Prompt(0, demonstrations, query, classes[0], tuple(labels), classes, template)


BASIC = prompt([("dog", "foo"), ("owl", "bar"), ("rain", "foo")])


def test_the_text_ends_before_the_label_and_its_space():
    assert BASIC.text == "dog: foo\nowl: bar\nrain: foo\ncat:"
    assert prompt([("dog", "foo")], template="Text: {text}\nLabel: {label}\n\n").text == (
        "Text: dog\nLabel: foo\n\nText: cat\nLabel:"
    )
    assert prompt([("dog", "foo")], template="{text}\n{label}\n").text == "dog\nfoo\ncat\n"


def test_braces_in_texts_are_text():
    assert prompt([("{label} {0}", "foo")]).text == "{label} {0}: foo\ncat:"


def test_positions_of_whole_word_tokens_are_where_they_are_counted_by_hand(word_level):
    tokenizer = word_level("dog owl rain cat foo bar big :")
    (one,) = tokenize([prompt([("big dog", "foo"), ("owl", "bar")], query="big cat")], tokenizer)
    #                  big dog : foo \n owl : bar \n big cat :
    assert one.token_ids.tolist() == [8, 2, 9, 6, 1, 3, 9, 7, 1, 8, 5, 9]
    assert one.label_positions.tolist() == [3, 7]
    assert one.cue_positions.tolist() == [2, 6]
    assert one.demonstration_labels.tolist() == [0, 1]
    assert one.label_ids.tolist() == [6, 7]
    assert one.demonstration_spans.tolist() == [[0, 2], [5, 6]]
    assert one.query_span.tolist() == [9, 11]
    assert one.query_position == 11
    assert {array.dtype for array in (one.token_ids, one.label_positions, one.label_ids, one.query_span)} == {
        np.dtype(np.int64)
    }


def test_a_beginning_token_moves_every_position_by_one(word_level):
    words = "dog owl rain cat foo bar :"
    (plain,) = tokenize([BASIC], word_level(words))
    (begun,) = tokenize([BASIC], word_level(words, "[BOS] $A"))
    assert begun.token_ids[1:].tolist() == plain.token_ids.tolist()
    assert begun.label_positions.tolist() == (plain.label_positions + 1).tolist()
    assert begun.demonstration_spans.tolist() == (plain.demonstration_spans + 1).tolist()
    assert begun.query_position == plain.query_position + 1


def test_an_end_token_is_not_the_query_position(word_level):
    words = "dog owl rain cat foo bar :"
    (one,) = tokenize([BASIC], word_level(words, "[BOS] $A [EOS] [EOS]"))
    (begun,) = tokenize([BASIC], word_level(words, "[BOS] $A"))
    assert one.token_ids.tolist() == begun.token_ids.tolist()
    assert one.query_position == begun.query_position


def test_byte_level_labels_carry_their_leading_space(byte_level):
    (one,) = tokenize([BASIC], byte_level)
    pieces = [byte_level.decode([token]) for token in one.token_ids]
    assert "".join(pieces) == BASIC.text
    assert [pieces[place] for place in one.label_positions] == [" foo", " bar", " foo"]
    assert [pieces[place] for place in one.cue_positions] == [":", ":", ":"]
    assert [byte_level.decode([token]) for token in one.label_ids] == [" foo", " bar"]
    assert ["".join(pieces[a:b]) for a, b in one.demonstration_spans] == ["dog", "owl", "rain"]
    assert "".join(pieces[slice(*one.query_span)]) == "cat"
    assert pieces[one.query_position] == ":"


def test_the_label_id_is_what_follows_the_prompt_when_both_are_tokenised_together(byte_level):
    (one,) = tokenize([BASIC], byte_level)
    for label, token in zip(BASIC.labels, one.label_ids, strict=True):
        assert byte_level(f"{BASIC.text} {label}").input_ids == [*one.token_ids, token]


def test_offsets_that_leave_out_the_leading_space_change_nothing(byte_level):
    trimmed = Tokenizer.from_str(byte_level.backend_tokenizer.to_str())
    trimmed.post_processor = processors.ByteLevel(trim_offsets=True)
    (one,) = tokenize([BASIC], PreTrainedTokenizerFast(tokenizer_object=trimmed))
    (plain,) = tokenize([BASIC], byte_level)
    assert one.token_ids.tolist() == plain.token_ids.tolist()
    assert one.label_positions.tolist() == plain.label_positions.tolist()
    assert one.demonstration_spans.tolist() == plain.demonstration_spans.tolist()


def test_pieces_with_marked_spaces_and_a_beginning_token_are_found(metaspace):
    (one,) = tokenize(
        [prompt([("dog", "foo"), ("cat", "a")], labels=("foo", "a"), template="{text}:{label}\n")], metaspace, "first"
    )
    assert one.token_ids[0] == 1
    spaced = prompt([("dog", "foo"), ("cat", "foo")], labels=("foo",))
    (one,) = tokenize([spaced], metaspace)
    assert metaspace.convert_ids_to_tokens(one.token_ids[one.label_positions]) == ["▁foo", "▁foo"]
    assert metaspace.convert_ids_to_tokens(one.token_ids[one.cue_positions]) == [":", ":"]


def test_a_label_whose_space_is_a_token_of_its_own_is_refused(metaspace):
    with pytest.raises(PromptError, match="the label '7' is 2 tokens"):
        tokenize([prompt([("dog", "7")], labels=("7",))], metaspace)


def test_labels_may_follow_a_line_break_or_a_bracket_without_a_space(byte_level):
    for template, cue in (("{text}\n{label}\n", "\n"), ("{text} ({label})\n", " (")):
        shown = prompt([("dog", "foo"), ("owl", "bar")], template=template)
        (one,) = tokenize([shown], byte_level, "first")
        start = byte_level(shown.text).input_ids
        assert one.token_ids.tolist() == start
        assert all(byte_level.decode([one.token_ids[place]]) == cue for place in one.cue_positions)
        assert (one.token_ids[one.label_positions] == one.label_ids[one.demonstration_labels]).all()


def test_a_label_that_merges_with_the_text_before_it_is_refused(merging):
    with pytest.raises(PromptError, match=r"'foo' merges with the text before it into '\(foo'; put a space"):
        tokenize([prompt([("dog", "foo")], template="{text} ({label}\n", labels=("foo",))], merging)


def test_a_label_that_merges_with_the_text_after_it_is_refused(merging):
    with pytest.raises(PromptError, match=r"'foo' merges with the text after it into 'foo\)'; put a line break"):
        tokenize([prompt([("dog", "foo")], template="{text}\n{label})\n", labels=("foo",))], merging)


def test_a_label_of_several_tokens_is_refused_with_its_pieces(byte_level):
    with pytest.raises(
        PromptError, match=r"the label 'quux' is \d tokens \(' ', 'q', .*\), expected one; choose"
    ) as error:
        tokenize([prompt([("dog", "quux")], labels=("quux", "foo"))], byte_level)
    assert "\n" not in str(error.value)


def test_the_first_piece_of_a_label_can_stand_for_it(byte_level):
    long = prompt([("dog", "foofoo"), ("owl", "barX")], labels=("foofoo", "barX"))
    (one,) = tokenize([long], byte_level, "first")
    assert [byte_level.decode([token]) for token in one.label_ids] == [" foo", " bar"]
    assert (one.token_ids[one.label_positions] == one.label_ids).all()


def test_two_labels_with_the_same_first_token_are_refused(byte_level):
    same = prompt([("dog", "foo"), ("owl", "foofoo")], labels=("foo", "foofoo"))
    with pytest.raises(PromptError, match="the labels 'foo' and 'foofoo' have the same first token ' foo'"):
        tokenize([same], byte_level, "first")


def test_unknown_labels_of_a_word_tokeniser_are_refused_as_the_same_token(word_level):
    with pytest.raises(PromptError, match="have the same first token"):
        tokenize([BASIC], word_level("dog owl rain cat :"))


def test_a_candidate_label_without_demonstrations_has_its_token(byte_level):
    (one,) = tokenize([prompt([("dog", "foo")], labels=("foo", "bar"))], byte_level)
    assert byte_level.decode([one.label_ids[1]]) == " bar"


def test_a_prompt_without_demonstrations_has_empty_positions(byte_level):
    (one,) = tokenize([prompt([])], byte_level)
    assert one.label_positions.shape == one.cue_positions.shape == (0,)
    assert one.demonstration_spans.shape == (0, 2)
    assert one.label_ids.shape == (2,)


def test_texts_of_several_bytes_a_character_are_spanned_whole(byte_level):
    (one,) = tokenize([prompt([("naïve 🙂 ☃", "foo"), ("déjà", "bar")], query="日本")], byte_level)
    decoded = [byte_level.decode(one.token_ids[a:b]) for a, b in [*one.demonstration_spans, one.query_span]]
    assert decoded == ["naïve 🙂 ☃", "déjà", "日本"]


def test_many_prompts_give_what_each_gives_alone(byte_level):
    prompts = PromptDistribution(size=60, queries=3, labels="letters", template="{text}\n{label}\n").prompts()
    for one, alone in zip(tokenize(prompts, byte_level)[::37], prompts[::37], strict=True):
        (again,) = tokenize([alone], byte_level)
        assert one.token_ids.tolist() == again.token_ids.tolist()
        assert one.label_positions.tolist() == again.label_positions.tolist()
        assert "".join(byte_level.decode([token]) for token in one.label_ids) == "".join(alone.labels)


def test_no_prompts_give_no_tokens(byte_level):
    assert tokenize([], byte_level) == []


def test_a_slow_tokeniser_is_refused():
    class Slow:
        is_fast = False

    with pytest.raises(PromptError, match="need a fast tokeniser, got Slow; load it with AutoTokenizer"):
        tokenize([BASIC], Slow())


def test_another_treatment_of_pieces_is_refused(byte_level):
    with pytest.raises(PromptError, match="label_pieces must be refuse or first"):
        tokenize([BASIC], byte_level, "last")


def test_a_text_without_tokens_is_refused(word_level):
    with pytest.raises(PromptError, match="makes no token of the text ' '"):
        tokenize([prompt([(" ", "foo")])], word_level("dog cat foo bar :"))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"labels": ("foo", "foo")}, "labels of a prompt must differ"),
        ({"labels": ("bar",)}, "shows the label 'foo', which is none of"),
        ({"template": "{text}"}, r"holds \{label\} 0 times"),
    ],
)
def test_a_prompt_that_contradicts_itself_is_refused(fields, message):
    with pytest.raises(PromptError, match=message):
        prompt([("dog", "foo")], **fields)


def test_labels_and_classes_of_a_prompt_are_parallel():
    with pytest.raises(PromptError, match="2 labels and 1 class"):
        Prompt(0, (), "cat", "A", ("foo", "bar"), ("A",), "{text}: {label}\n")


def test_a_query_of_another_class_has_no_correct_label():
    other = Prompt(0, (), "cat", "B", ("foo",), ("A",), "{text}: {label}\n")
    with pytest.raises(PromptError, match="no label of the prompt stands for the query's class 'B'"):
        _ = other.correct_label
    assert "answer: none (B)" in show([other])


def test_prompts_are_grouped_by_context():
    prompts = PromptDistribution(size=3, queries=2).prompts()
    assert contexts(prompts) == {0: [0, 1], 1: [2, 3], 2: [4, 5]}


def test_show_marks_label_tokens_as_the_model_sees_them(byte_level):
    shown = show([BASIC], byte_level)
    body = "dog:⟦ foo⟧\nowl:⟦ bar⟧\nrain:⟦ foo⟧\ncat:⟦?⟧"
    assert shown.split("\n", 1)[1] == body
    assert "answer: foo (class of foo)" in shown
    assert "tokens" in shown.split("\n")[0]
    assert show([BASIC]).split("\n", 1)[1] == body


def test_show_marks_only_the_first_piece_where_that_stands_for_the_label(byte_level):
    assert "dog:⟦ foo⟧foo\n" in show([prompt([("dog", "foofoo")], labels=("foofoo",))], byte_level, "first")
