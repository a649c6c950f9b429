"""What a trained model does on clean prompts: accuracy by number of classes, and the readout's held-out error."""

from pathlib import Path

import torch

from readout.models import load_model, pack
from readout.pipeline import default_pair
from readout.prompts import PromptDistribution, tokenize
from readout.records import ExtractionOptions, extract
from readout.training.growth import readout_error

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


def held_out(folder: Path) -> dict[str, float]:
    """Held-out error of the readout on the main job's own distributions (384 prompts each).

    Parameters
    ----------
    folder : Path
        Model in transformers' format.

    Returns
    -------
    dict of str to float
        `readout_kl`, `agreement`, `frequency_kl`, `ceiling_kl` (`readout.training.growth.readout_error`).
    """
    model = load_model(str(folder), device="cpu", self_test=False)
    fit, target = (extract(model, each, options=ExtractionOptions(effects=False)) for each in default_pair("synthetic"))
    return readout_error(fit, target)
