"""A model whose weights are set by hand, so that every part of its circuit and every effect is known on paper.

Attention alone, no norm, no MLP, 3 layers of 4 heads, on the words and labels of the synthetic task: a prompt of
`DISTRIBUTION` is ``<s> word -> label word -> label ... word ->``. The residual stream has named blocks (`BLOCKS`): a
word's class C, a label's identity L, the key K and the query's class Q that heads write, the output O that the
unembedding reads, which line (demonstration) a token is of, and flags. A score is a sum of products of such blocks:

| head | role | score from i to j | writes |
|---|---|---|---|
| L0H0 | duplicate labels: the gate's source | 20 [same label] - 30 [same line] + 10 [j first] | D: seen before |
| L0H1 | the query's class (previous token) | 12 [same line] + 12 [j a text] + 18 [j first] | C of the text to Q |
| L1H0 | writer | 12 [same line] + 12 [i a label, j a text] + 18 [j first] | C of the text to K |
| L1H1 | gate | 12 D_j + 6 [j first] | G: some label has repeated |
| L2H0 | reader | 3 Q_i K_j + (8 G_i - 4) [j a label] + 6 [j first] | 8 L to O: copies |
| L2H1 | suppressor | 8 [j a label] + j / 2 | -1.5 L to O: the last label |
| L2H2 | anti-copying | as the reader | -1 L to O |
| others | idle | 0 | nothing |

With a repeated label D and G are almost 1, and the reader's scores are 7 at a matching label, 4 at another and 6 at the
first token: with four shots of two classes its masses are about .87, .04 and .08. Without, they are -1, -4 and 6: it
looks at the first token. Replacing the writer's output by a class-swapped prompt's turns the answer round, wholly.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PretrainedConfig, PreTrainedModel
from transformers.masking_utils import create_causal_mask
from transformers.modeling_outputs import CausalLMOutput
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from readout.circuit.setting import Setting, make_setting
from readout.models import LanguageModel
from readout.prompts import PromptDistribution, TokenizedPrompt, label_pool
from readout.prompts.synthetic import FIRST_SYLLABLES, WORDS
from readout.training.batches import FIRST_LABEL, FIRST_WORD
from readout.training.tokenizer import build_tokenizer

TASK = "synthetic:words=1"
DISTRIBUTION = PromptDistribution(TASK, classes=2, shots=4, order="shuffled", queries=1, size=16, seed=3)
LABEL_WORDS = label_pool("words")
MOST_TOKENS, LINES = 64, 21
SIZES = {
    "C": len(FIRST_SYLLABLES), "K": len(FIRST_SYLLABLES), "Q": len(FIRST_SYLLABLES), "L": len(LABEL_WORDS),
    "O": len(LABEL_WORDS), "line": LINES, "one": 1, "label": 1, "text": 1, "first": 1, "D": 1, "G": 1, "position": 1,
}  # fmt: skip
HEAD_DIM = len(LABEL_WORDS) + LINES + 5

Product = tuple[str, str, float]
"""Block of i, block of j, strength: so much is added to the score from i to j for each unit of their product."""
Writing = tuple[str, str, float]
"""Block of j, block that it is added to at i, strength."""
SAME_LINE: list[Product] = [("line", "line", 12.0), ("one", "first", 18.0)]
READING: list[Product] = [
    ("Q", "K", 3.0), ("G", "label", 8.0), ("one", "label", -4.0), ("one", "first", 6.0)
]  # fmt: skip
HEADS: dict[tuple[int, int], tuple[list[Product], Writing]] = {
    (0, 0): ([("L", "L", 20.0), ("line", "line", -30.0), ("one", "first", 10.0)], ("label", "D", 1.0)),
    (0, 1): ([*SAME_LINE, ("one", "text", 12.0)], ("C", "Q", 1.0)),
    (1, 0): ([*SAME_LINE, ("label", "text", 12.0)], ("C", "K", 1.0)),
    (1, 1): ([("one", "D", 12.0), ("one", "first", 6.0)], ("D", "G", 1.0)),
    (2, 0): (READING, ("L", "O", 8.0)),
    (2, 1): ([("one", "label", 8.0), ("one", "position", 0.5)], ("L", "O", -1.5)),
    (2, 2): (READING, ("L", "O", -1.0)),
}


class HandmadeConfig(PretrainedConfig):
    """Sizes."""

    model_type = "handmade"


class IdentityNorm(nn.Module):
    """A norm that does nothing, so that effects add up."""

    def forward(self, hidden: Tensor) -> Tensor:
        return hidden


class HandmadeAttention(nn.Module):
    """Attention as in any model of transformers, without position in it; scores are not scaled."""

    def __init__(self, config: Any, layer: int) -> None:
        super().__init__()
        self.config, self.layer_idx, self.is_causal, self.num_key_value_groups = config, layer, True, 1
        inside = config.num_attention_heads * config.head_dim
        self.q, self.k, self.v = (nn.Linear(config.hidden_size, inside, bias=False) for _ in range(3))
        self.o = nn.Linear(inside, config.hidden_size, bias=False)

    def forward(self, hidden: Tensor, mask: Any) -> Tensor:
        shape = (*hidden.shape[:2], self.config.num_attention_heads, -1)
        heads = [part(hidden).view(shape).transpose(1, 2) for part in (self.q, self.k, self.v)]
        attend = ALL_ATTENTION_FUNCTIONS.get_interface(self.config._attn_implementation, _eager)
        outputs, _ = attend(self, *heads, mask, scaling=1.0)
        return self.o(outputs.reshape(*hidden.shape[:2], -1).contiguous())


def _eager(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Any, scaling: float
) -> tuple[Tensor, None]:
    scores = scaling * query @ key.transpose(2, 3)
    if mask is not None:
        scores = scores + mask
    return (scores.softmax(-1) @ value).transpose(1, 2), None


class HandmadeLayer(nn.Module):
    """Attention and its residual connection."""

    def __init__(self, config: Any, layer: int) -> None:
        super().__init__()
        self.attention = HandmadeAttention(config, layer)

    def forward(self, hidden: Tensor, mask: Any) -> Tensor:
        return hidden + self.attention(hidden, mask)


class HandmadeModel(PreTrainedModel):
    """Embedding of tokens and of positions, layers, unembedding."""

    config_class = HandmadeConfig
    _supports_attention_backend = True
    _supports_sdpa = True

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.places = nn.Embedding(MOST_TOKENS, config.hidden_size)
        self.layers = nn.ModuleList(HandmadeLayer(config, layer) for layer in range(config.num_hidden_layers))
        self.norm = IdentityNorm()
        self.unembedding = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        for parameter in self.parameters():
            nn.init.zeros_(parameter)
        self.post_init()

    def _init_weights(self, module: nn.Module) -> None:
        """Weights are set by hand."""

    def get_input_embeddings(self) -> nn.Module:
        return self.tokens

    def get_output_embeddings(self) -> nn.Module:
        return self.unembedding

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, position_ids: Tensor | None = None, **_: Any
    ) -> CausalLMOutput:
        if position_ids is None:
            position_ids = torch.arange(input_ids.shape[1], device=input_ids.device).expand_as(input_ids)
        hidden = self.tokens(input_ids) + self.places(position_ids)
        mask = create_causal_mask(
            config=self.config,
            inputs_embeds=hidden,
            attention_mask=attention_mask,
            cache=None,
            position_ids=position_ids,
        )
        for layer in self.layers:
            hidden = layer(hidden, mask)
        return CausalLMOutput(logits=self.unembedding(self.norm(hidden)))


def build(
    sizes: dict[str, int],
    heads: dict[tuple[int, int], tuple[list[Product], Writing]],
    vocabulary: int,
    head_dim: int,
    shape: tuple[int, int],
) -> tuple[HandmadeModel, dict[str, slice]]:
    """A model with these heads and zeros elsewhere, and where its blocks are.

    Parameters
    ----------
    sizes : width of each block of the residual stream
    heads : by (layer, head), the products that its score is a sum of, and what it writes
    vocabulary : number of tokens
    head_dim : width of a head
    shape : number of layers and of heads a layer
    """
    stops = np.cumsum(list(sizes.values()))
    blocks = {name: slice(int(stop) - size, int(stop)) for (name, size), stop in zip(sizes.items(), stops, strict=True)}
    config = HandmadeConfig(
        vocab_size=vocabulary,
        # Even: alternating signs must have mean 0, by which the package finds out what a norm does.
        hidden_size=int(stops[-1]) + int(stops[-1]) % 2,
        num_hidden_layers=shape[0],
        num_attention_heads=shape[1],
        num_key_value_heads=shape[1],
        head_dim=head_dim,
        tie_word_embeddings=False,
    )
    model = HandmadeModel(config)
    with torch.no_grad():
        for (layer, head), (products, (read, written, strength)) in heads.items():
            part, start = model.layers[layer].attention, head * head_dim
            for left, right, factor in products:
                stop = start + sizes[left]
                part.q.weight[start:stop, blocks[left]] = factor * torch.eye(sizes[left])
                part.k.weight[start:stop, blocks[right]] = torch.eye(sizes[right])
                start = stop
            inside = slice(head * head_dim, head * head_dim + sizes[read])
            part.v.weight[inside, blocks[read]] = torch.eye(sizes[read])
            part.o.weight[blocks[written], inside] = strength * torch.eye(sizes[read])
    return model, blocks


def handmade_model() -> LanguageModel:
    """The model of this file's docstring, with the synthetic task's tokenizer."""
    tokenizer = build_tokenizer()
    model, at = build(SIZES, HEADS, len(tokenizer), HEAD_DIM, (3, 4))
    with torch.no_grad():
        model.tokens.weight[:, at["one"]] = 1.0
        for number in range(len(WORDS)):
            model.tokens.weight[FIRST_WORD + number, at["C"].start + number // 8] = 1.0
            model.tokens.weight[FIRST_WORD + number, at["text"]] = 1.0
        for number in range(len(LABEL_WORDS)):
            model.tokens.weight[FIRST_LABEL + number, at["L"].start + number] = 1.0
            model.tokens.weight[FIRST_LABEL + number, at["label"]] = 1.0
            model.unembedding.weight[FIRST_LABEL + number, at["O"].start + number] = 1.0
        model.places.weight[0, at["first"]] = 1.0
        model.places.weight[:, at["position"]] = torch.arange(MOST_TOKENS)[:, None].float()
        for place in range(1, MOST_TOKENS):
            model.places.weight[place, at["line"].start + (place - 1) // 3] = 1.0
    return LanguageModel(model, tokenizer, "handmade")


Change = Callable[[int, np.ndarray], np.ndarray]


@lru_cache(maxsize=4)
def _weights(model: LanguageModel) -> dict[str, np.ndarray]:
    return {name: one.double().numpy() for name, one in model.model.state_dict().items()}


def by_numpy(
    model: LanguageModel,
    tokens: Sequence[int] | np.ndarray,
    outputs: Change | None = None,
    scores: Change | None = None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The pass in NumPy, out of the weights: what the tests hold the package's numbers against.

    Parameters
    ----------
    model : a model of this file
    tokens : int64[T]
    outputs : changes a layer's heads' outputs, float64[T, heads, head_dim]
    scores : changes a layer's scores before the mask, float64[heads, T, T]

    Returns
    -------
    logits float64[vocabulary] at the last token, attention float64[layers, heads, T, T], and what heads gave (edited)
    float64[layers, T, heads, head_dim]
    """
    own = model.model
    weights = _weights(model)
    n_heads, t = own.config.num_attention_heads, len(tokens)
    hidden = weights["tokens.weight"][tokens] + weights["places.weight"][:t]
    seen, given = [], []
    for layer in range(own.config.num_hidden_layers):
        q, k, v = (
            (hidden @ weights[f"layers.{layer}.attention.{one}.weight"].T).reshape(t, n_heads, -1) for one in "qkv"
        )
        score = np.einsum("ihd,jhd->hij", q, k)
        score = score if scores is None else scores(layer, score)
        score = np.where(np.tri(t, dtype=bool), score, -np.inf)
        attention = np.exp(score - score.max(-1, keepdims=True))
        attention /= attention.sum(-1, keepdims=True)
        mixed = np.einsum("hij,jhd->ihd", attention, v)
        mixed = mixed if outputs is None else outputs(layer, mixed)
        hidden = hidden + mixed.reshape(t, -1) @ weights[f"layers.{layer}.attention.o.weight"].T
        seen.append(attention)
        given.append(mixed)
    return weights["unembedding.weight"] @ hidden[-1], np.stack(seen), np.stack(given)


@lru_cache(maxsize=1)
def handmade_setting() -> Setting:
    """The model with prompts of `DISTRIBUTION`: six contexts to choose, six to test, 20 random draws."""
    return make_setting(handmade_model(), DISTRIBUTION, contexts=12, draws=20)


def logit_difference(prompt: TokenizedPrompt, logits: np.ndarray) -> float:
    """Logit of the prompt's right label minus that of the other one, out of all logits."""
    right = prompt.prompt.label_classes.index(prompt.prompt.query_class)
    return float(logits[prompt.label_ids[right]] - logits[prompt.label_ids[1 - right]])


def mean_output(model: LanguageModel, prompts: Sequence[TokenizedPrompt], layer: int, head: int) -> np.ndarray:
    """Mean output of a head at the query, in NumPy."""
    return np.mean([by_numpy(model, one.token_ids)[2][layer, -1, head] for one in prompts], 0)


def replaced(layer: int, head: int, positions: Any, values: np.ndarray) -> Change:
    """A change for `by_numpy`: a head's outputs at some positions."""

    def change(at: int, outputs: np.ndarray) -> np.ndarray:
        outputs = outputs.copy()
        if at == layer:
            outputs[positions, head] = values
        return outputs

    return change
