"""Small tokenisers of the kinds that models use."""

from collections.abc import Callable

import pytest
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

LINES = [
    "dog: foo\ncat: bar\nowl: foo\nrain: bar\nsnow: baz\n",
    "a long sentence about dogs -> foo\nanother sentence -> bar\n(foo) (bar) foo\nbar\n",
    "odd  spaces and foobar, barn, bazaar; Label: foo\n\n",
]


@pytest.fixture(scope="session")
def byte_level() -> PreTrainedTokenizerFast:
    """Byte-level pairs, as in GPT-2 and SmolLM2: ' foo' and ' bar' are tokens, nothing is added."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=400, initial_alphabet=alphabet, show_progress=False, min_frequency=1)
    tokenizer.train_from_iterator(LINES * 3, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer)


@pytest.fixture(scope="session")
def merging() -> PreTrainedTokenizerFast:
    """Byte-level pairs that merge across words: '(foo' and 'foo)' are tokens."""
    merges = [("f", "o"), ("fo", "o"), ("(", "foo"), ("foo", ")")]
    pieces = [*sorted(pre_tokenizers.ByteLevel.alphabet()), *(a + b for a, b in merges)]
    tokenizer = Tokenizer(models.BPE({piece: place for place, piece in enumerate(pieces)}, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer)


@pytest.fixture(scope="session")
def word_level() -> Callable[..., PreTrainedTokenizerFast]:
    """Build a tokeniser of whole words: words[i] is token i + 2, after the unknown word and the line break."""

    def build(words: str, template: str | None = None) -> PreTrainedTokenizerFast:
        vocabulary = {"[UNK]": 0, "\n": 1} | {word: 2 + place for place, word in enumerate(words.split())}
        specials = {"[BOS]": len(vocabulary), "[EOS]": len(vocabulary) + 1}
        tokenizer = Tokenizer(models.WordLevel(vocabulary | specials, unk_token="[UNK]"))
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Split(" ", "removed"), pre_tokenizers.Split("\n", "isolated"), pre_tokenizers.Punctuation()]
        )
        if template:
            tokenizer.post_processor = processors.TemplateProcessing(
                single=template, special_tokens=list(specials.items())
            )
        return PreTrainedTokenizerFast(
            tokenizer_object=tokenizer, unk_token="[UNK]", bos_token="[BOS]", eos_token="[EOS]"
        )

    return build


@pytest.fixture(scope="session")
def metaspace() -> PreTrainedTokenizerFast:
    """Pieces with '▁' for spaces and no splitting into words, as in Llama 2; '7' never joins its space."""
    merges = [("▁", "f"), ("▁f", "o"), ("▁fo", "o"), ("▁", "a")]
    pieces = ["<unk>", "<s>", "▁", *"fodgcat:\n7", *(a + b for a, b in merges)]
    vocabulary = {piece: place for place, piece in enumerate(pieces)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges, unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    tokenizer.decoder = decoders.Metaspace()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", unk_token="<unk>")
