"""`python -m benchmarks.bargein`."""

import typer

from benchmarks.bargein.run import main

if __name__ == "__main__":
    typer.run(main)
