"""Ablate every head at the query position: from the kept pass, against one full forward pass a head.

    python benchmarks/intervene.py [--model smollm2-135m] [--tokens 128,512] [--prompts 4] [--heads 6] [--rounds 3]

One thread, CPU time. For each length, on the same prompts and in turns: (a) one full forward pass with a hook that
replaces one head's output at the query by its mean, for a few heads spread over the layers; (b) the ablations of all
heads from the kept pass, with and without that pass itself. The full pass is transformers' own (sdpa attention); it
unembeds the query alone, which makes it faster than a plain call and the ratio smaller; the ratio against the plain
call is printed too. Both give the same numbers: the largest difference is printed.
"""

import argparse
import time

import numpy as np
import torch

from readout.circuit import ablate, intervene
from readout.circuit.self_test import can_resume
from readout.circuit.states import keep_states
from readout.models import LanguageModel, load_model
from readout.prompts import PromptDistribution, TokenizedPrompt, tokenize

BOUNDS = {128: (120, 240), 512: (200, 800)}
"""What issue 4 asks for: ratio with the kept pass counted, and without."""


def prompts_of(model: LanguageModel, tokens: int, count: int) -> list[TokenizedPrompt]:
    """Word prompts of exactly `tokens` tokens: more shots than fit, cut at the front to one length."""
    drawn = PromptDistribution("words", classes=max(2, tokens // 60), shots=16, queries=1, size=4 * count, seed=5)
    found = []
    for one in tokenize(drawn.prompts(), model.tokenizer):
        surplus = len(one.token_ids) - tokens
        if surplus >= 0 and len(found) < count:
            found.append(_cut(one, surplus))
    if len(found) < count:
        raise SystemExit(f"only {len(found)} prompts have {tokens} tokens")
    return found


def _cut(prompt: TokenizedPrompt, surplus: int) -> TokenizedPrompt:
    """The prompt without its first tokens; positions that fall out move to the first token."""
    moved = {
        name: np.maximum(getattr(prompt, name) - surplus, 0)
        for name in ("label_positions", "cue_positions", "demonstration_spans", "query_span")
    }
    return TokenizedPrompt(
        prompt.prompt, prompt.token_ids[surplus:], moved["label_positions"], prompt.demonstration_labels,
        prompt.label_ids, moved["cue_positions"], moved["demonstration_spans"], moved["query_span"],
        prompt.query_position - surplus,
    )  # fmt: skip


class Hooked:
    """One full forward pass with a hook on one head's output: the plain way."""

    def __init__(self, model: LanguageModel, prompts: list[TokenizedPrompt]) -> None:
        self.model, self.ids = model, torch.from_numpy(np.stack([one.token_ids for one in prompts]))
        states = keep_states(model, prompts)
        self.means = {layer: kept.outputs[:, -1].mean(0) for layer, kept in states.kept.items()}
        self.labels = torch.from_numpy(np.stack([one.label_ids for one in prompts]))

    @torch.inference_mode()
    def logits(self, layer: int, head: int, plain: bool = False) -> torch.Tensor:
        part = next(one for one in self.model.wiring.attentions if one.layer == layer)
        own = slice(head * part.value_dim, (head + 1) * part.value_dim)

        def replace(module: torch.nn.Module, args: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
            outputs = args[0].clone()
            outputs[:, -1, own] = self.means[layer][head]
            return (outputs, *args[1:])

        handle = part.projection.register_forward_pre_hook(replace)
        self.model.model.set_attn_implementation("sdpa")
        try:
            found = self.model.model(input_ids=self.ids, use_cache=False, logits_to_keep=0 if plain else 1).logits
        finally:
            handle.remove()
            self.model.model.set_attn_implementation("readout")
        return found[:, -1].gather(1, self.labels)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--tokens", default="128,512")
    parser.add_argument("--prompts", type=int, default=4)
    parser.add_argument("--heads", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    model = load_model(options.model, device="cpu")
    can_resume(model)
    print(
        f"{model.name}, one thread, {options.prompts} prompts at a time, CPU seconds, least of {options.rounds} rounds"
    )
    for tokens in map(int, options.tokens.split(",")):
        report(model, tokens, options)


def report(model: LanguageModel, tokens: int, options: argparse.Namespace) -> None:
    """Measure one length."""
    prompts = prompts_of(model, tokens, options.prompts)
    hooked = Hooked(model, prompts)
    sweep = [ablate([head]) for head in model.heads]
    some = [model.heads[i] for i in np.linspace(0, len(model.heads) - 1, options.heads).astype(int)]
    intervene(model, prompts[:1], sweep)
    times: dict[str, list[float]] = {name: [] for name in ("full", "plain", "all", "kept")}
    for _ in range(options.rounds):
        slow = [_timed(times["full"], lambda one=one: hooked.logits(*one)) for one in some]
        _timed(times["plain"], lambda: hooked.logits(*some[0], plain=True))
        outcome = _timed(times["all"], lambda: intervene(model, prompts, sweep))
        _timed(times["kept"], lambda: keep_states(model, prompts))
    full, plain, every, kept = (min(times[name]) for name in times)
    fast = torch.from_numpy(outcome.edited.logits[[model.heads.index(one) for one in some]])
    deviation = float((torch.stack(slow) - fast).abs().max())
    heads = len(model.heads)
    with_pass, without = full * heads / every, full * heads / (every - kept)
    print(f"{tokens} tokens: one full pass {full:.3f} s ({plain:.3f} s with all tokens unembedded); all {heads} heads "
          f"{every:.3f} s, of which the kept pass {kept:.3f} s")  # fmt: skip
    bound = BOUNDS.get(tokens, (0, 0))
    print(f"  full / resumed, kept pass counted: {with_pass:6.0f} times (asked: {bound[0]}); against the plain call "
          f"{plain * heads / every:.0f}")  # fmt: skip
    print(f"  full / resumed, kept pass left out: {without:6.0f} times (asked: {bound[1]}); against the plain call "
          f"{plain * heads / (every - kept):.0f}")  # fmt: skip
    print(f"  largest difference of a label's logit: {deviation:.1e} (asked: 1e-5, logits of size "
          f"{float(fast.abs().max()):.0f})")  # fmt: skip


def _timed(times: list[float], call):
    start = time.process_time()
    result = call()
    times.append(time.process_time() - start)
    return result


if __name__ == "__main__":
    main()
