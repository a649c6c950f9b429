"""Batches by tokens, as large as memory takes: rows of alike lengths together, halved when memory runs out."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import torch
from accelerate.utils.memory import clear_device_cache, should_reduce_batch_size

from readout.errors import RecordError

CPU_TOKENS = 2048
"""On a CPU a larger batch is not faster, and memory that runs out ends the process instead of raising an error."""
MOST_TOKENS = 65_536
"""Where an accelerator begins."""

Row = list[int]
Result = TypeVar("Result")


def first_tokens(device: torch.device) -> int:
    """Tokens of the first batch to try on a device."""
    return CPU_TOKENS if device.type == "cpu" else MOST_TOKENS


class Batches:
    """Runs rows, each the numbers of the prompts packed into it, in batches of at most ``tokens`` padded tokens.

    A batch that does not fit into memory is halved, and so are those after it; a single row is split into rows of half
    its prompts.

    Attributes
    ----------
    tokens : what a batch may hold; the largest that fits, once memory has run out
    """

    def __init__(self, tokens: int) -> None:
        self.tokens = tokens

    def run(
        self, rows: Sequence[Row], length: Callable[[Row], int], read: Callable[[list[Row]], Result]
    ) -> Iterator[tuple[list[Row], Result]]:
        """Yield each batch with what ``read`` makes of it, the longest rows first.

        Parameters
        ----------
        rows : prompts packed together, by their numbers
        length : tokens that a row takes
        read : runs the model on a batch

        Raises
        ------
        RecordError
            If a single prompt does not fit into memory.
        """
        waiting = deque(sorted(rows, key=length, reverse=True))
        while waiting:
            batch = [waiting.popleft()]
            longest = length(batch[0])
            while waiting and (len(batch) + 1) * longest <= self.tokens:
                batch.append(waiting.popleft())
            out_of_memory = False
            try:
                result = read(batch)
            except RuntimeError as error:
                if not should_reduce_batch_size(error):
                    raise
                if len(batch) == len(batch[0]) == 1:
                    raise RecordError(
                        f"a prompt of {longest} tokens does not fit into memory by itself: use shorter prompts, a "
                        "lower precision (--dtype bfloat16) or a device with more memory"
                    ) from error
                out_of_memory = True
            if not out_of_memory:
                yield batch, result
                continue
            # Only here, where the error and what its frames hold are gone, can the memory be taken back.
            clear_device_cache()
            self.tokens = len(batch) * longest // 2
            if len(batch) == 1:
                half = len(batch[0]) // 2
                batch = [batch[0][:half], batch[0][half:]]
            waiting.extendleft(reversed(batch))
