"""Imports Pipecat once for all tests of this folder."""

import warnings

with warnings.catch_warnings():
    # Its deprecated classes warn where they are defined, in the name of `abc`.
    warnings.simplefilter("ignore")
    import pipecat.services.tts_service  # noqa: F401
