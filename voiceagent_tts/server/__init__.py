"""The thin shell: FastAPI over the synthesizer."""
