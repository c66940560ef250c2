"""`python -m benchmarks.alignment`."""

import os

# As a worker does (`voiceagent_tts.seam.engine_kind`): NumPy reads them when it is loaded. Products
# this small take almost twice the CPU time on two threads, which wait for each other.
os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")

import typer

from benchmarks.alignment.run import main

if __name__ == "__main__":
    typer.run(main)
