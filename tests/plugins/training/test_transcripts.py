"""Transcripts against what a recogniser hears; the server is real, its answers are scripted."""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from testbed.parity_reference import REFERENCE
from testbed.scripted_judges import ScriptedJudge, heard, scripted_judge
from voiceagent_tts.errors import EngineError
from voiceagent_tts.plugins.recordings.recogniser import Recogniser
from voiceagent_tts.plugins.training.prepare import PrepareOptions, prepare


@pytest.fixture
def whisper() -> Iterator[ScriptedJudge]:
    """Run a transcription server."""
    with scripted_judge() as server:
        yield server


def test_transcripts_that_are_not_heard_are_dropped(
    whisper: ScriptedJudge, recordings: Path, tmp_path: Path
) -> None:
    """The clip whose words the server does not hear is a mismatch; the key reaches the server."""
    texts = [(recordings / f"{number}.txt").read_text() for number in range(4)]
    whisper.answers = [
        heard(texts[0]),
        heard("Something else was said here."),
        heard(texts[2].lower().rstrip(".")),
        heard(texts[3]),
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


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "nonsense", "http://[", ""])
def test_an_unreachable_server_is_an_error(url: str) -> None:
    """So does an address where nothing listens, or that is none."""
    with pytest.raises(EngineError, match="expected a transcript"):
        Recogniser(url).transcribe(np.zeros(4_800, np.float32), None)
