import dataclasses
import hashlib
import json
import subprocess
import sys
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from readout.errors import PromptError
from readout.prompts import PromptDistribution, label_pool, load_task
from readout.prompts.draws import Draws

WORDS = load_task(PromptDistribution())
CONCEPT = {word: concept for concept, words in WORDS.texts.items() for word in words}


def digest_of(prompts):
    lines = "\n".join(f"{p.context} {p.text!r} {p.query_class} {p.correct_label}" for p in prompts)
    return hashlib.sha256(lines.encode()).hexdigest()[:16]


def test_the_same_specification_gives_the_same_prompts_on_any_machine():
    # computed once and written down: a change of NumPy, Python or platform must not move it
    assert digest_of(PromptDistribution(size=5).prompts()) == "1a64caa096a9ea6c"
    spec = PromptDistribution(
        classes=4, shots=((6, 2, 1, 1), (3, 2)), labels="names", order="alternating", seed=11, size=7, class_half="b"
    )
    assert digest_of(spec.prompts()) == "a3d2f4bcdf3fb375"


def test_the_digest_of_a_specification_stays_the_same():
    assert PromptDistribution().digest()[:16] == "f347cc4d5e44b355"


def test_a_larger_size_extends_a_smaller_one():
    small, large = PromptDistribution(size=3), PromptDistribution(size=6)
    assert large.prompts()[: 3 * 4] == small.prompts()


def test_more_queries_extend_fewer_and_leave_the_contexts_alone():
    few, many = PromptDistribution(queries=2, size=4).prompts(), PromptDistribution(queries=5, size=4).prompts()
    assert [p for place, p in enumerate(many) if place % 5 < 2] == few


def test_another_seed_gives_other_prompts():
    assert PromptDistribution(seed=1).prompts() != PromptDistribution(seed=2).prompts()


def test_prompts_come_in_order_of_context_and_share_its_demonstrations():
    prompts = PromptDistribution(size=3, queries=4).prompts()
    assert [p.context for p in prompts] == [c for c in range(3) for _ in range(4)]
    for start in range(0, 12, 4):
        assert len({p.demonstrations for p in prompts[start : start + 4]}) == 1
        assert len({p.query for p in prompts[start : start + 4]}) == 4


@settings(deadline=None, max_examples=40)
@given(
    classes=st.integers(2, 8),
    shots=st.integers(0, 9),
    queries=st.integers(1, 5),
    order=st.sampled_from(["shuffled", "grouped", "alternating"]),
    labels=st.sampled_from(["words", "letters", "names", "nonsense", "own", "swapped", "flipped"]),
    half=st.sampled_from(["all", "a", "b"]),
    seed=st.integers(0, 2**70),
)
def test_every_context_holds_what_was_asked_for(classes, shots, queries, order, labels, half, seed):
    spec = PromptDistribution(
        classes=classes, shots=shots, queries=queries, order=order, labels=labels, text_half=half, seed=seed, size=3
    )
    for prompt in spec.prompts():
        texts = [d.text for d in prompt.demonstrations]
        assert len({*texts, prompt.query}) == classes * shots + 1
        assert Counter(d.class_name for d in prompt.demonstrations) == Counter(
            {name: shots for name in prompt.label_classes if shots}
        )
        assert prompt.query_class in prompt.label_classes
        assert prompt.query_class == CONCEPT[prompt.query]
        assert len(set(prompt.labels)) == classes
        given_labels = dict(zip(prompt.label_classes, prompt.labels, strict=True))
        assert all(
            d.label == given_labels[d.class_name] and CONCEPT[d.text] == d.class_name for d in prompt.demonstrations
        )
        assert prompt.counts == (shots,) * classes
        assert prompt.text.endswith(f"{prompt.query}:")


def test_explicit_counts_go_to_the_classes_at_random():
    prompts = PromptDistribution(classes=3, shots=(6, 2, 1), size=300, queries=1).prompts()
    assert all(sorted(p.counts) == [1, 2, 6] for p in prompts)
    first = Counter(p.counts[0] for p in prompts)
    # 100 expected each; five standard deviations are 41
    assert all(59 <= first[count] <= 141 for count in (1, 2, 6))


def test_a_mixture_draws_one_list_for_each_context_and_may_vary_the_classes():
    prompts = PromptDistribution(classes=4, shots=((4, 4, 4, 4), (8, 1)), size=200, queries=1).prompts()
    seen = Counter(tuple(sorted(p.counts)) for p in prompts)
    assert set(seen) == {(4, 4, 4, 4), (1, 8)}
    assert 65 <= seen[(1, 8)] <= 135
    assert {len(p.labels) for p in prompts} == {2, 4}


def test_query_classes_are_uniform_over_the_classes_of_the_context():
    prompts = PromptDistribution(classes=2, shots=(6, 2), size=250, queries=4).prompts()
    at_first = sum(p.query_class == p.label_classes[0] for p in prompts)
    at_larger = sum(p.counts[p.label_classes.index(p.query_class)] == 6 for p in prompts)
    # 500 expected of 1000; five standard deviations are 79
    assert 421 <= at_first <= 579
    assert 421 <= at_larger <= 579


def test_grouped_demonstrations_stand_by_class_and_alternating_ones_take_turns():
    grouped = PromptDistribution(classes=3, shots=3, order="grouped").prompts()[0]
    names = [d.class_name for d in grouped.demonstrations]
    assert names == [name for name in grouped.label_classes for _ in range(3)]
    turns = PromptDistribution(classes=2, shots=(3, 1), order="alternating").prompts()[0]
    places = [turns.label_classes.index(d.class_name) for d in turns.demonstrations]
    longer = turns.counts.index(3)
    assert places == [0, 1, longer, longer]


def test_shuffled_demonstrations_are_in_no_fixed_order():
    prompts = PromptDistribution(classes=2, shots=2, size=300, queries=1).prompts()
    seen = Counter(tuple(p.label_classes.index(d.class_name) for d in p.demonstrations) for p in prompts)
    assert len(seen) == 6
    # 50 expected for each of the six orders; five standard deviations are 32
    assert min(seen.values()) >= 18


def test_halves_of_classes_texts_and_labels_are_disjoint_and_cover_everything():
    def seen(**half):
        prompts = PromptDistribution(classes=4, shots=8, size=120, **half).prompts()
        texts = {d.text for p in prompts for d in p.demonstrations} | {p.query for p in prompts}
        return {p.query_class for p in prompts}, texts, {label for p in prompts for label in p.labels}

    for which, field in enumerate(("class_half", "text_half", "label_half")):
        a, b = (seen(**{field: half})[which] for half in "ab")
        assert not a & b
        assert len(a | b) == len(seen()[which])


def test_halves_do_not_depend_on_the_seed():
    sets = [
        {d.text for p in PromptDistribution(text_half="a", seed=s, size=200).prompts() for d in p.demonstrations}
        for s in (1, 2)
    ]
    other = {d.text for p in PromptDistribution(text_half="b", seed=3, size=200).prompts() for d in p.demonstrations}
    assert not (sets[0] | sets[1]) & other


def test_a_class_pool_restricts_the_classes():
    prompts = PromptDistribution(class_pool=("animals", "tools", "weather"), classes=2).prompts()
    assert {name for p in prompts for name in p.label_classes} == {"animals", "tools", "weather"}


def test_own_labels_are_the_class_names_and_swapped_ones_never_are():
    own = PromptDistribution(labels="own", classes=3).prompts()
    assert all(p.labels == p.label_classes for p in own)
    swapped = PromptDistribution(labels="swapped", classes=3, size=100).prompts()
    assert all(set(p.labels) == set(p.label_classes) for p in swapped)
    assert not any(a == b for p in swapped for a, b in zip(p.labels, p.label_classes, strict=True))
    # three classes have two derangements
    turns = Counter((p.label_classes.index(p.labels[0])) for p in swapped)
    assert set(turns) == {1, 2}


def test_flipped_labels_are_own_names_in_about_half_of_the_contexts_and_swapped_in_the_others():
    prompts = PromptDistribution(labels="flipped", classes=2, shots=2, queries=2, size=200).prompts()
    kept = {p.context: p.labels == p.label_classes for p in prompts}
    assert all((p.labels == p.label_classes) == kept[p.context] for p in prompts)
    assert all(p.labels in (p.label_classes, p.label_classes[::-1]) for p in prompts)
    # a fair coin leaves 72 to 128 of 200 in all but one of 10,000 draws
    assert 72 <= sum(kept.values()) <= 128


def test_no_demonstrations_leave_the_query_and_its_candidate_labels():
    prompt = PromptDistribution(shots=0, classes=3).prompts()[0]
    assert prompt.demonstrations == ()
    assert prompt.text == f"{prompt.query}:"
    assert len(prompt.labels) == 3


def test_a_specification_survives_json():
    spec = PromptDistribution(
        classes=3, shots=((3, 2, 1), (2, 2, 2)), class_pool=("animals", "foods", "tools"), template="{text} = {label};"
    )
    assert PromptDistribution.from_json(spec.to_json()) == spec
    assert PromptDistribution.from_json('{"shots": [4, 2]}') == PromptDistribution(shots=(4, 2))
    assert hash(PromptDistribution.from_json(spec.to_json())) == hash(spec)


def test_the_digest_tells_specifications_apart():
    digests = {
        dataclasses.replace(PromptDistribution(), **change).digest() for change in ({}, {"seed": 1}, {"size": 65})
    }
    assert len(digests) == 3


def test_the_summary_fits_a_screen_and_names_what_matters():
    summary = PromptDistribution(classes=3, shots=(6, 2, 1), label_half="a", max_words=9, seed=5).summary()
    assert len(summary.splitlines()) <= 24
    for part in ("words", "64 contexts x 4 queries, seed 5", "6-2-1", "label half a", "9 words"):
        assert part in summary


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"task": "nowhere"}, "unknown task 'nowhere'; known are words, agnews"),
        ({"task": "notes.txt"}, r"\.jsonl, \.csv, \.parquet"),
        ({"classes": 1}, "classes must be a whole number, at least 2, got 1"),
        ({"classes": True}, "classes must be a whole number"),
        ({"size": 0}, "size must be a whole number, at least 1"),
        ({"size": "64"}, "size must be a whole number, at least 1, got '64'"),
        ({"queries": 0}, "queries must be"),
        ({"seed": -1}, "seed must be a whole number, at least 0"),
        ({"shots": -1}, "shots must be .* no number below 0, got -1"),
        ({"shots": 2.5}, "shots must be"),
        ({"shots": ()}, "shots must be"),
        ({"shots": (0, 0)}, r"shots must be .* \(0 for prompts without any\), a list .* \(not all 0\)"),
        ({"shots": ((0, 0), (2, 2))}, r"shots must be .* \(not all 0\)"),
        ({"shots": (4, 2, 1)}, "shots names 3 counts for 2 classes"),
        ({"shots": ((4, 2), (1, 1, 1))}, "a list in shots has 3 counts; with classes=2 give 2 to 2"),
        ({"shots": ((4, 2), 3)}, "shots must be"),
        ({"labels": "colors"}, "labels must be one of words, letters, names, nonsense, own, swapped, flipped"),
        ({"labels": ["words"]}, "labels must be one of"),
        ({"order": "random"}, "order must be one of"),
        ({"class_half": "c"}, r"class_half must be one of all, a, b, got 'c' \(--class-half\)"),
        ({"class_pool": ("animals", "foods", "animals")}, "class_pool must be a list of different class names"),
        ({"class_pool": "animals"}, "class_pool must be a list of class names"),
        ({"labels": "own", "label_half": "a"}, r"label_half \(--label-half\) is for label pools"),
        ({"labels": "letters", "label_half": "a", "classes": 14, "shots": 1}, "need 14 labels.*has 13"),
        ({"template": "{text}: label"}, "holds {label} 0 times"),
        ({"template": "{text} {text}: {label}\n"}, "holds {text} 2 times"),
        ({"template": "{label}: {text}\n"}, "label must come after the text"),
        ({"template": "{text}{label}\n"}, "nothing separates {text} from {label}"),
        ({"template": "{text}: {label}"}, "nothing follows {label}"),
        ({"template": "{text}:  {label}\n"}, "at most one space"),
        ({"template": 3}, "template must be a text"),
    ],
)
def test_a_field_out_of_range_is_refused_in_one_line(fields, message):
    with pytest.raises(PromptError, match=message) as error:
        PromptDistribution(**fields)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"class_pool": ("animals", "planets")}, "has no class 'planets'; it has animals, foods"),
        ({"class_pool": ("animals", "foods"), "classes": 3}, "3 classes were asked for.*offers 2"),
        ({"classes": 17}, "17 classes were asked for.*offers 16"),
        ({"classes": 9, "class_half": "a"}, "9 classes were asked for.*offers 8"),
        ({"shots": 37}, "'animals' has 40 different texts and a context may need 41"),
        ({"shots": 17, "text_half": "a"}, "has 20 different texts and a context may need 21"),
    ],
)
def test_a_task_that_holds_too_little_is_refused(fields, message):
    with pytest.raises(PromptError, match=message):
        PromptDistribution(**fields).prompts()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"class": 2}', "unknown fields class; a prompt distribution knows task, classes"),
        ("[1]", "is a JSON object, got list"),
        ('{"classes": 2,}', "not valid JSON.*line 1"),
    ],
)
def test_json_that_is_no_specification_is_refused(text, message):
    with pytest.raises(PromptError, match=message):
        PromptDistribution.from_json(text)


def test_draws_below_a_number_are_uniform_and_samples_never_repeat():
    draws = Draws(3, 1)
    seen = Counter(draws.below(5) for _ in range(5000))
    # 1000 expected each; five standard deviations are 141
    assert all(859 <= seen[value] <= 1141 for value in range(5))
    assert sorted(draws.sample(range(9), 9)) == list(range(9))
    assert len(set(draws.sample(range(1000), 40))) == 40


def test_every_order_of_a_shuffle_is_equally_likely():
    draws = Draws(0)
    seen = Counter(tuple(draws.shuffled("abc")) for _ in range(6000))
    assert len(seen) == 6
    # 1000 expected each; five standard deviations are 144
    assert all(856 <= count <= 1144 for count in seen.values())


def test_importing_the_room_loads_no_heavy_package():
    code = "import sys, readout.prompts as p; p.PromptDistribution(size=2).prompts(); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"torch", "transformers", "tokenizers", "pandas", "datasets", "StaICC"} & set(loaded)


def test_concepts_are_sixteen_lists_of_forty_words_that_share_none():
    assert len(WORDS.texts) == 16
    assert all(len(words) == 40 for words in WORDS.texts.values())
    assert len(CONCEPT) == 640
    # neither does a plural of one concept stand in another
    assert not [word for word in CONCEPT if f"{word}s" in CONCEPT]


def test_label_pools_hold_enough_labels_and_no_word_of_a_concept():
    pools = {name: label_pool(name) for name in ("words", "letters", "names", "nonsense")}
    assert len(pools["words"]) >= 60
    assert len(pools["names"]) >= 40
    assert "".join(pools["letters"]) == "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    for labels in pools.values():
        assert len(set(labels)) == len(labels)
        assert not set(labels) & (set(CONCEPT) | set(WORDS.class_names))


def test_an_unknown_label_pool_is_refused():
    with pytest.raises(PromptError, match="no label pool 'colours'; known are words, letters, names, nonsense"):
        label_pool("colours")


def test_json_keeps_its_types():
    fields = json.loads(PromptDistribution(shots=(2, 1)).to_json())
    assert fields["shots"] == [2, 1]
    assert fields["class_pool"] == []


def test_a_summary_counts_one_in_the_singular():
    assert "1 context x 1 query, seed 0" in PromptDistribution(size=1, queries=1).summary()
    assert "cut to 1 word" in PromptDistribution(max_words=1).summary().splitlines()[-1]
