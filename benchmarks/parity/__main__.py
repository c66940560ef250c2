"""`python -m benchmarks.parity`."""

import typer

from benchmarks.parity.run import main

if __name__ == "__main__":
    typer.run(main)
