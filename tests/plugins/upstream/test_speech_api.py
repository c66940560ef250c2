"""OpenAI's speech API: bodies, lists of voices, and what a status means."""

from typing import Any

import pytest

from voiceagent_tts.errors import EngineError
from voiceagent_tts.plugins.upstream.speech_api import (
    SpeechAPI,
    retry_wait_s,
    voices_in,
)

API = SpeechAPI("http://user:secret@host:1/v1?x=secret", "tts-1", {"lang_code": "a"})


@pytest.mark.parametrize(
    ("answer", "names"),
    [
        ({"voices": ["a", "b", "a"]}, ["a", "b"]),
        ({"voices": [{"id": "a", "name": "A"}, {"id": "z", "alias_of": "a"}]}, ["a"]),
        ({"data": [{"name": "a"}, {"voice_id": "b"}, {"x": 1}, 3, None]}, ["a", "b"]),
        (["a"], ["a"]),
        ({"voices": "a"}, []),
        (None, []),
    ],
)
def test_lists_of_voices_have_several_forms(answer: Any, names: list[str]) -> None:
    """Whatever else a server sends is no list."""
    assert voices_in(answer) == names


@pytest.mark.parametrize(
    ("status", "part"),
    [
        (401, "UPSTREAM_KEY"),
        (403, "UPSTREAM_KEY"),
        (404, "UPSTREAM_MODEL"),
        (400, "does not accept"),
        (500, "failed"),
        (503, "failed"),
    ],
)
def test_a_status_says_what_to_do(status: int, part: str) -> None:
    """Without the secrets of the address."""
    error = API.failure(status, None)
    assert isinstance(error, EngineError)
    assert part in error.message
    assert f"http://host:1/v1 answered with HTTP {status}" in error.message
    assert "secret" not in error.message


def test_only_what_may_pass_is_tried_again() -> None:
    """And not after a wait that a listener would notice."""
    assert [retry_wait_s(status, None, 0.1) for status in (429, 500, 503)] == [0.1] * 3
    assert [retry_wait_s(status, None, 0.1) for status in (400, 401, 404, 501)] == [None] * 4
    assert retry_wait_s(429, "1", 0.1) == 1.0
    assert retry_wait_s(429, "60", 0.1) is None


@pytest.mark.parametrize(
    ("content_type", "first"),
    [
        ("application/json", b"{}"),
        ("text/html; charset=utf-8", b"<"),
        ("audio/wav", b"RIFF1234WAVE"),
        ("audio/mpeg", b"ID3\x04"),
    ],
)
def test_what_is_no_pcm_is_refused(content_type: str, first: bytes) -> None:
    """Before it is heard as noise."""
    with pytest.raises(EngineError, match="expected raw PCM"):
        API.check_audio(content_type, first)
    API.check_audio("audio/pcm", b"\x00\x01")
    API.check_audio("application/octet-stream", b"\x00\x01")
