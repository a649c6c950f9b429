"""Constants of readers from class means of their queries and keys, beside fitted ones.

    python paper_figures/key_query.py

Draws paper_figures/output/key_query.{png,pdf} from fits/key_query.json.
"""

import json

from draw import FITS, HERE

from readout.figures import save
from readout.figures.key_query import key_query

if __name__ == "__main__":
    for file in save(key_query(json.loads((FITS / "key_query.json").read_text())), HERE / "output" / "key_query"):
        print(file.relative_to(HERE.parent))
