"""Kokoro with its published weights, which `make kokoro` fetches."""

from functools import cache
from pathlib import Path

import pytest

from testbed.missing import MissingPartError
from voiceagent_tts.kokoro.load import load_voices
from voiceagent_tts.kokoro.published import Files, find
from voiceagent_tts.phonemes.reading import LoadedVoice

QUICK = pytest.param("kokoro", marks=[pytest.mark.kokoro, pytest.mark.xdist_group("kokoro")])
"""Name of the engine, as a parameter of tests."""
THOROUGH = pytest.param("kokoro", marks=[*QUICK.marks, pytest.mark.thorough])
"""The same for claims of the engine that it shares with hibari: it takes 0.4 s for each text."""

FOLDER = Path(__file__).parent.parent / ".kokoro"


def kokoro_files() -> Files:
    if not any(FOLDER.glob("*.onnx")):
        raise MissingPartError("the weights of Kokoro are not here: make kokoro")
    return find(str(FOLDER))


@cache
def kokoro_voices() -> dict[str, LoadedVoice]:
    return load_voices(kokoro_files())
