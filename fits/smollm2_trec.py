"""SmolLM2-135M on TREC questions: fit on 2 classes, predict 3 unbalanced ones with other questions and other labels.

    python fits/smollm2_trec.py

Writes fits/smollm2_trec.json. The classes of fit and target overlap (TREC has six); texts and labels do not.
"""

from dataclasses import replace

from main_job import regenerate

from readout.pipeline import default_pair

if __name__ == "__main__":
    fit, target = default_pair("trec")
    regenerate("smollm2_trec", fit, replace(target, classes=3, shots=((3, 5, 8), (2, 6, 8))))
