"""Accuracy of a trained model by number of classes, at two or more shots."""

from pathlib import Path

import torch

from readout.models import load_model, pack
from readout.prompts import PromptDistribution, tokenize

SHOTS = {2: 3, 3: 3, 4: 3, 5: 2, 6: 2}


def clean_accuracy(folder: Path, task: str = "synthetic", size: int = 100) -> dict[str, float]:
    """Share of prompts whose right label is the likeliest token of the vocabulary, by number of classes.

    Parameters
    ----------
    folder : Path
        Model in transformers' format.
    task : str
        Task of the prompts; two queries for each of `size` contexts.
    size : int
        Contexts for each number of classes.

    Returns
    -------
    dict of str to float
        From the number of classes to the accuracy.
    """
    model = load_model(str(folder), device="cpu", self_test=False)
    found = {}
    for classes, shots in SHOTS.items():
        distribution = PromptDistribution(task, classes=classes, shots=shots, queries=2, size=size, seed=100 + classes)
        prompts = tokenize(distribution.prompts(), model.tokenizer)
        vocabulary = torch.arange(len(model.tokenizer)).expand(len(prompts), -1)
        answers = [p.label_ids[p.prompt.labels.index(p.prompt.correct_label)] for p in prompts]
        best = model.run(pack([[p.token_ids] for p in prompts]), vocabulary).log_probabilities.argmax(1)
        found[str(classes)] = float((best == torch.tensor([int(a) for a in answers])).float().mean())
    return found
