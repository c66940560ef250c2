"""Transcripts against what a recogniser hears; the server is real, its answers are scripted."""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from testbed.parity_reference import REFERENCE
from testbed.scripted_judges import ScriptedJudge, heard, scripted_judge
from voiceagent_tts.errors import EngineError
from voiceagent_tts.plugins.training.prepare import PrepareOptions, prepare
from voiceagent_tts.plugins.training.transcription import (
    Recogniser,
    is_plausible_pace,
    word_error_rate,
)


@pytest.fixture
def whisper() -> Iterator[ScriptedJudge]:
    """Run a transcription server."""
    with scripted_judge() as server:
        yield server


@pytest.mark.parametrize(
    ("expected", "got", "rate"),
    [
        ("Hello, there!", "hello there", 0.0),
        ("it's naïve", "It’s nai\u0308ve.", 0.0),
        ("one two three four", "one three four", 0.25),
        ("one two", "one or two", 0.5),
        ("one two", "", 1.0),
        ("你好，世界。", "你好世間", 0.25),
        ("...", "", 0.0),
    ],
)
def test_word_error_rates(expected: str, got: str, rate: float) -> None:
    """Substitutions, deletions and insertions count; case and punctuation do not."""
    assert word_error_rate(expected, got) == rate


def test_a_pace_that_nobody_speaks_is_a_mismatch() -> None:
    """A sentence in 3 s is plausible; a word in 20 s or a page in 2 s is not."""
    assert is_plausible_pace("She sells sea shells by the sea shore.", 3.0)
    assert is_plausible_pace("你好，世界。", 1.5)
    assert not is_plausible_pace("Yes.", 20.0)
    assert not is_plausible_pace("She sells sea shells. " * 20, 2.0)


def test_transcripts_that_are_not_heard_are_dropped(
    whisper: ScriptedJudge, recordings: Path, tmp_path: Path
) -> None:
    """The clip whose words the server does not hear is a mismatch; the key reaches the server."""
    texts = [(recordings / f"{number}.txt").read_text() for number in range(4)]
    whisper.answers = [
        heard(texts[0]),
        heard("Something else was said here."),
        *map(heard, texts[2:]),
    ]
    options = PrepareOptions(recogniser=Recogniser(whisper.url, "large", "a key"))
    report = prepare(
        recordings, REFERENCE / "base-0b6", tmp_path / "data", options, lambda done, total: None
    )
    (dropped,) = report["dropped_clips"]
    assert (dropped["name"], dropped["problem"]) == ("1.wav", "mismatch")
    assert "Something" not in json.dumps(report)
    path, key, body = whisper.requests[0]
    assert (path, key) == ("/v1/audio/transcriptions", "Bearer a key")
    assert b"large" in body and b"RIFF" in body


@pytest.mark.parametrize("answer", [b"", b"{}", b"[]", b"not JSON"])
def test_a_server_without_a_transcript_is_an_error(whisper: ScriptedJudge, answer: bytes) -> None:
    """A failing server ends the command with its address and what to check."""
    whisper.answers = [answer]
    with pytest.raises(EngineError, match="expected a transcript"):
        Recogniser(whisper.url).transcribe(np.zeros(4_800, np.float32), "en")


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "nonsense", "http://[", ""])
def test_an_unreachable_server_is_an_error(url: str) -> None:
    """So does an address where nothing listens, or that is none."""
    with pytest.raises(EngineError, match="expected a transcript"):
        Recogniser(url).transcribe(np.zeros(4_800, np.float32), None)
