"""Recognisers: a scripted endpoint, and pocketsphinx, which hears a person read."""

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from testbed.recordings import recordings
from testbed.scripted_judges import heard, scripted_judge
from voiceagent_tts.audio.pcm import pcm_to_float
from voiceagent_tts.errors import EngineError, InvalidRequestError
from voiceagent_tts.plugins.bench.quality.transcribers import open_transcriber
from voiceagent_tts.plugins.recordings.word_errors import word_errors

SILENCE = np.zeros(4_800, np.float32)


def test_an_endpoint_is_asked_for_its_model_in_the_language() -> None:
    """The address may end with `/v1`; the key goes into the header; every answer is text."""
    with scripted_judge() as server:
        server.answers = [heard("hello"), b'{"text": 5}', b"{}"]
        transcribe = open_transcriber(f'{server.url}/v1{{"model": "large"}}', "a key")
        assert transcribe(SILENCE, "en") == "hello"
        path, key, body = server.requests[0]
        assert (path, key) == ("/v1/audio/transcriptions", "Bearer a key")
        assert b"large" in body and b'"language"\r\n\r\nen' in body and b"RIFF" in body
        assert transcribe(SILENCE, "en") == "5"
        with pytest.raises(EngineError, match="expected a transcript"):
            transcribe(SILENCE, "en")


@pytest.mark.parametrize(
    "address", ["", "whisper", "faster-whisper:", "ftp://x", "http://x{", "\0"]
)
def test_what_is_no_recogniser_is_refused(address: str) -> None:
    """With what there is instead."""
    with pytest.raises(InvalidRequestError, match="expected"):
        open_transcriber(address)


def test_faster_whisper_gets_16_khz_and_the_language(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its segments are joined. The package is a stand-in: its models cannot be downloaded here."""
    calls: list[tuple[int, str, Any]] = []

    class WhisperModel:
        def __init__(self, name: str, device: str, compute_type: str) -> None:
            if name == "none":
                raise ValueError("no such model")

        def transcribe(self, audio: Any, language: str, beam_size: int) -> tuple[list[Any], None]:
            calls.append((len(audio), language, audio.dtype))
            return [SimpleNamespace(text=" Hello"), SimpleNamespace(text=" there. ")], None

    package = ModuleType("faster_whisper")
    package.__dict__["WhisperModel"] = WhisperModel
    monkeypatch.setitem(sys.modules, "faster_whisper", package)
    assert open_transcriber("faster-whisper:large-v3")(SILENCE, "de") == "Hello there."
    assert calls == [(3_200, "de", np.float32)]
    with pytest.raises(InvalidRequestError, match="no such model"):
        open_transcriber("faster-whisper:none")


@pytest.mark.thorough
def test_a_real_recogniser_hears_a_reading_and_its_planted_errors() -> None:
    """Pocketsphinx on a person's reading: few errors, and more after a third of it is cut."""
    transcribe = open_transcriber("pocketsphinx")
    read = [one for one in recordings("test") if one.speaker == "librivox"]
    pairs = [(one.text, pcm_to_float(one.pcm)) for one in read]
    whole = [word_errors(text, transcribe(samples, "en"), "en").rate for text, samples in pairs]
    cut = [
        word_errors(text, transcribe(samples[: 2 * len(samples) // 3], "en"), "en")
        for text, samples in pairs
    ]
    assert pairs and np.mean(whole) < 0.4
    assert np.mean([each.rate for each in cut]) > np.mean(whole) + 0.15
    assert sum(each.deleted for each in cut) > sum(each.inserted for each in cut)


def test_without_its_package_faster_whisper_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The error names the package."""
    monkeypatch.setitem(sys.modules, "faster_whisper", None)
    with pytest.raises(InvalidRequestError, match="package .faster_whisper. is missing"):
        open_transcriber("faster-whisper:large-v3")


def test_pocketsphinx_knows_only_english() -> None:
    """Another language is refused; silence has no words."""
    transcribe = open_transcriber("pocketsphinx")
    assert transcribe(SILENCE, "en") == ""
    with pytest.raises(InvalidRequestError, match="English"):
        transcribe(SILENCE, "de")
