"""Cost of an extraction, side by side with what one would use instead, in one run on SmolLM2-135M.

1. Without shared contexts, against a plain forward pass over the same batches that unembeds the last position only.
2. With eight queries a context, prompts of about 512 tokens, against transformers' ``output_attentions`` over the same
   prompts (eager attention, last position unembedded): time, and peak memory over the loaded model.

Each measurement is a process of its own, so that peak memory is its own; rounds alternate and the best time of each
counts. Run ``python benchmarks/extract.py``; ``--threads`` and ``--rounds`` change the defaults.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time

import click

SHORT = {"task": "words", "classes": 2, "shots": 8, "queries": 1, "size": 64}
LONG = {"task": "trec", "classes": 2, "shots": 19, "queries": 8, "size": 2, "max_words": 12}
MIB = 2**20


def peak() -> int:
    """Highest resident memory of this process so far, in bytes."""
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def measure(kind: str, threads: int) -> dict[str, float]:
    """Load the model, run one kind of pass; return CPU seconds, peak memory (MiB over the loaded model) and tokens."""
    import torch
    from transformers.utils import logging

    from readout.models import load_model, pack
    from readout.prompts import PromptDistribution, tokenize
    from readout.records import ExtractionOptions, extract
    from readout.records.batching import CPU_TOKENS

    logging.disable_progress_bar()
    torch.set_num_threads(threads)
    case, way = kind.split(":")
    distribution = PromptDistribution(**(SHORT if case == "short" else LONG))
    model = load_model("smollm2-135m", self_test=False)
    prompts = tokenize(distribution.prompts(), model.tokenizer)
    warm_up = PromptDistribution(**(SHORT | {"size": 2, "shots": 2}))
    extract(model, warm_up)
    options = ExtractionOptions(share_contexts=case == "long")
    if way == "eager":
        model.model.set_attn_implementation("eager")
    elif way == "plain":
        model.model.set_attn_implementation("sdpa")
    loaded = peak()
    start = time.process_time()  # CPU time: other work on the machine disturbs it less
    if way == "readout":
        extract(model, distribution, options=options)
    elif way == "eager":
        with torch.inference_mode():
            for one in prompts:
                ids = torch.from_numpy(one.token_ids)[None]
                output = model.model(ids, output_attentions=True, use_cache=False, logits_to_keep=1)
                torch.stack([layer[0, :, -1] for layer in output.attentions])
    else:
        rows = sorted(prompts, key=lambda one: -len(one.token_ids))
        per_batch = CPU_TOKENS // len(rows[0].token_ids)
        with torch.inference_mode():
            for first in range(0, len(rows), per_batch):
                batch = pack([[one.token_ids] for one in rows[first : first + per_batch]])
                hidden = model.model.model(batch.token_ids, use_cache=False).last_hidden_state
                last = hidden[torch.arange(len(hidden)), batch.queries[:, 0]]
                model.model.lm_head(last).log_softmax(-1)
    seconds = time.process_time() - start
    tokens = sum(len(one.token_ids) for one in prompts)
    return {
        "seconds": seconds,
        "memory": (peak() - loaded) / MIB,
        "tokens": tokens,
        "length": tokens / len(prompts),
        "prompts": len(prompts),
    }


@click.command(help=__doc__)
@click.option("--threads", default=1, show_default=True)
@click.option("--rounds", default=3, show_default=True)
@click.option("--one", hidden=True, default="")
def main(threads: int, rounds: int, one: str) -> None:
    if one:
        print(json.dumps(measure(one, threads)))
        return
    kinds = ["short:plain", "short:readout", "long:eager", "long:readout"]
    found: dict[str, list[dict[str, float]]] = {kind: [] for kind in kinds}
    for _ in range(rounds):
        for kind in kinds:
            command = [sys.executable, __file__, "--one", kind, "--threads", str(threads)]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            found[kind].append(json.loads(done.stdout.splitlines()[-1]))
    best = {kind: min(runs, key=lambda run: run["seconds"]) for kind, runs in found.items()}
    memory = {kind: min(run["memory"] for run in runs) for kind, runs in found.items()}
    for kind, run in best.items():
        print(
            f"{kind:<14} {run['seconds']:8.2f} s  {run['tokens'] / run['seconds']:8.0f} prompt tokens/s  "
            f"{run['prompts']:.0f} prompts of {run['length']:.0f} tokens  peak +{memory[kind]:.0f} MiB"
        )
    ratio = best["short:readout"]["seconds"] / best["short:plain"]["seconds"]
    faster = best["long:eager"]["seconds"] / best["long:readout"]["seconds"]
    share = memory["long:readout"] / memory["long:eager"]
    print(f"extraction without shared contexts / plain forward pass: {ratio:.2f} (bound 1.15)")
    print(f"output_attentions / extraction with eight queries a context: {faster:.1f} times (bound 6)")
    print(f"peak memory over the loaded model, extraction / output_attentions: {share:.2f} (bound 0.5)")


if __name__ == "__main__":
    main()
