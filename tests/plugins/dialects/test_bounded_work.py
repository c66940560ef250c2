"""A long text keeps no other client waiting, whatever door it comes by."""

from collections.abc import Mapping
from typing import Any

import httpx
import pytest

from testbed.loop_work import loop_work
from testbed.servers import StartServer
from testbed.waiting import PATIENCE_S
from voiceagent_tts.server.serve import RunningServer

CHARS = 20_000
MOST_CALLS = 40_000
"""As in tests/synthesizer/test_bounded_work.py."""
ANSWERS = 20
"""Parts of an answer that are read: some of them are audio."""
TEXTS = {
    "prose": "The quick brown fox jumps over the lazy dog. ",
    "digits": "1234567890 ",
    "money": "$3.50 ",
    "lines": "a\n",
    "han": "漢。",
    "tags": "<b>a</b>",
}
_SONIC = {
    "model_id": "sonic-3",
    "voice": {"mode": "id", "id": "default"},
    "language": "en",
    "output_format": {"container": "raw", "encoding": "pcm_s16le", "sample_rate": 24_000},
}
_ELEVENLABS = "/v1/text-to-speech/default/stream"
FILES: dict[str, Any] = {
    "/tts/bytes": lambda text: _SONIC | {"transcript": text},
    f"{_ELEVENLABS}?output_format=pcm_24000": lambda text: {"text": text},
    f"{_ELEVENLABS}/with-timestamps?output_format=pcm_24000": lambda text: {"text": text},
}
"""Doors by HTTP, and the body of a request."""


async def _ask_for_file(
    server: RunningServer, path: str, body: Mapping[str, Any], most: int
) -> int:
    async with (
        httpx.AsyncClient(base_url=server.url, timeout=PATIENCE_S) as http,
        http.stream("POST", path, json=body) as answer,
    ):
        parts = 0
        async for _ in answer.aiter_raw():
            parts += 1
            if parts == most:
                break
        return parts if answer.is_success else 0


@pytest.mark.parametrize("door", FILES)
async def test_no_door_makes_a_long_turn_of_the_loop(
    door: str, start_server: StartServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Texts of 20,000 characters; a server's first request, which sets up things, is another."""
    server = await start_server()
    most: dict[str, int] = {}
    for name, words in {"warm up": "Hello. ", **TEXTS}.items():
        is_long = name in TEXTS
        text = (words * CHARS)[: CHARS if is_long else 7]
        parts = ANSWERS if is_long else 1
        with loop_work(monkeypatch) as work:
            got = await _ask_for_file(server, door, FILES[door](text), parts)
        assert got == parts, name
        if is_long:
            most[name] = work.most
    assert {name: calls for name, calls in most.items() if calls > MOST_CALLS} == {}
