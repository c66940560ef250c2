"""The embedded voice: espeak-ng behind the engine seam."""
