"""The word-level tokenizer of the from-scratch model, in transformers' format.

A prompt such as "kali kamu -> moon\\nsora sovi ->" becomes one token a word: spaces and line breaks separate words and
are no tokens themselves, so that the readable prompt is exactly a training sequence.
"""

from pathlib import Path

from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from tokenizers.processors import TemplateProcessing
from transformers import PreTrainedTokenizerFast

from readout.prompts.labels import label_pool
from readout.prompts.synthetic import CUE as CUE_WORD
from readout.prompts.synthetic import WORDS
from readout.training.batches import BOS, CUE, FIRST_LABEL, FIRST_WORD, UNKNOWN

BOS_WORD, UNKNOWN_WORD = "<s>", "<unk>"


def vocabulary() -> dict[str, int]:
    """Return every token's id: special tokens, words class by class, labels."""
    special = {BOS_WORD: BOS, UNKNOWN_WORD: UNKNOWN, CUE_WORD: CUE}
    words = {word: FIRST_WORD + number for number, word in enumerate(WORDS)}
    labels = {label: FIRST_LABEL + number for number, label in enumerate(label_pool("words"))}
    return special | words | labels


def build_tokenizer() -> PreTrainedTokenizerFast:
    """Build the tokenizer.

    Returns
    -------
    transformers.PreTrainedTokenizerFast
        Puts `<s>` before every text; an unknown word is `<unk>`, which is also the padding.
    """
    tokenizer = Tokenizer(WordLevel(vocabulary(), unk_token=UNKNOWN_WORD))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    tokenizer.post_processor = TemplateProcessing(single=f"{BOS_WORD} $A", special_tokens=[(BOS_WORD, BOS)])
    return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=tokenizer, bos_token=BOS_WORD, unk_token=UNKNOWN_WORD, pad_token=UNKNOWN_WORD
    )


def save_tokenizer(folder: Path) -> None:
    """Write the tokenizer beside a model (tokenizer.json, tokenizer_config.json)."""
    build_tokenizer().save_pretrained(folder)
