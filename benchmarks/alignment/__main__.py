"""`python -m benchmarks.alignment`."""

import typer

from benchmarks.alignment.run import main

if __name__ == "__main__":
    typer.run(main)
