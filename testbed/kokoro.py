"""Kokoro with its published weights, which `make kokoro` fetches."""

from functools import cache
from pathlib import Path

from testbed.missing import MissingPartError
from voiceagent_tts.kokoro.load import load_voices
from voiceagent_tts.kokoro.published import Files, find
from voiceagent_tts.phonemes.voice import LoadedVoice

FOLDER = Path(__file__).parent.parent / ".kokoro"


def kokoro_files() -> Files:
    """The files of Kokoro.

    Raises:
        MissingPartError: they are not on this machine.
    """
    if not any(FOLDER.glob("*.onnx")):
        raise MissingPartError("the weights of Kokoro are not here: make kokoro")
    return find(str(FOLDER))


@cache
def kokoro_voices() -> dict[str, LoadedVoice]:
    """All voices; errors as for `kokoro_files`."""
    return load_voices(kokoro_files())
