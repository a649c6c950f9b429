"""SmolLM2-135M on word concepts: fit on 2-3 classes, predict 4 unbalanced ones with other concepts and other labels.

    python fits/smollm2_words.py

Writes fits/smollm2_words.json. These are the distributions that ``readout run`` uses by default.
"""

from main_job import regenerate

from readout.pipeline import default_pair

if __name__ == "__main__":
    regenerate("smollm2_words", *default_pair("words"))
