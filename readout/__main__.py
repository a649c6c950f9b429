"""``python -m readout``."""

from readout.cli import main

main()
