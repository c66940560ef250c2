"""A long text keeps no other client waiting, whatever door it comes by."""

import asyncio
import itertools
import json
from collections.abc import Mapping, Sequence
from typing import Any

import httpx
import pytest
from websockets.sync.client import connect

from testbed.long_texts import CHARS, KINDS, MOST_CALLS, SPREAD
from testbed.loop_work import LoopWork, loop_work
from testbed.servers import StartServer
from testbed.speechless import BriefProxy, SpeechlessProxy
from testbed.waiting import PATIENCE_S
from voiceagent_tts.plugins.cache.store import PhraseCache
from voiceagent_tts.server.serve import RunningServer

MOST_BYTES = 300_000
"""Bytes and characters that functions return in one iteration: a message of 20,000 characters is
passed on by some of them. The times of all its characters in one message made them 860,000."""
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


async def test_times_of_words_without_audio_are_sent_in_parts(
    start_server: StartServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """10,000 words lie in half a second of sound, so that their times do not wait for audio."""
    server = await start_server()
    door, body = f"{_ELEVENLABS}/with-timestamps?output_format=pcm_24000", {"text": "a " * 10_000}
    await _ask_for_file(server, door, {"text": "Hello."}, 1)
    server.state.synthesizer.proxy = BriefProxy(PhraseCache(10e6, 60.0, 2)).connect
    with loop_work(monkeypatch) as work:
        assert await _ask_for_file(server, door, body, CHARS) > 1
    assert not _is_long(work), (work.most, work.most_bytes)


_STREAM = "/v1/text-to-speech/default"
_VLLM = "/v1/audio/speech/stream"
_MP3 = f"{_STREAM}/multi-stream-input?output_format=mp3_44100_128"
SOCKETS: dict[str, Any] = {
    "/tts/websocket": lambda text: [
        {**_SONIC, "language": None, "context_id": "a", "transcript": text, "add_timestamps": True}
    ],
    f"{_STREAM}/stream-input?output_format=pcm_24000&enable_ssml_parsing=true": lambda text: [
        {"text": text},
        {"text": ""},
    ],
    _MP3: lambda text: [
        {"text": text, "context_id": "a", "flush": True},
        {"context_id": "a", "close_context": True},
    ],
    _VLLM: lambda text: [
        {"type": "session.config", "response_format": "pcm", "stream_audio": True,
         "timestamp_type": "word", "timestamp_transport_strategy": "async"},
        {"type": "input.text", "text": text},
        {"type": "input.done"},
    ],
}  # fmt: skip
"""Doors by sockets, and the messages that have a text spoken to its end."""
ENDS = ('"type":"done"', '"isFinal":true', '"type":"session.done"')


def _talk(url: str, messages: Sequence[Mapping[str, Any]], most: int | None) -> None:
    """Send messages, and read until the context is over, or `most` answers are there."""
    with connect(url, max_size=None) as socket:
        for message in messages:
            socket.send(json.dumps(message, ensure_ascii=False))
        for _ in itertools.count() if most is None else range(most):
            answer = str(socket.recv(timeout=PATIENCE_S))
            assert '"error"' not in answer.replace('"error":false', ""), answer
            if any(end in answer for end in ENDS):
                return


async def _sent(
    server: RunningServer, door: str, kind: str, patch: pytest.MonkeyPatch, most: int | None
) -> LoopWork:
    """The work of the server's loop for a long text of a kind that comes by a socket."""
    words, _, _ = KINDS[kind]
    url = f"{server.url.replace('http', 'ws', 1)}{door}"
    with loop_work(patch) as work:
        await asyncio.sleep(0)
        messages = SOCKETS[door]((words * CHARS)[: CHARS - 9])  # some add spaces
        await asyncio.to_thread(_talk, url, messages, most)
    return work


def _is_long(work: LoopWork) -> bool:
    return work.most > MOST_CALLS or work.most_bytes > MOST_BYTES


PLAIN_KINDS = [kind for kind, (_, _, lexicon) in KINDS.items() if not lexicon]
"""No door here takes a lexicon."""
COSTLIEST = (
    *("kana", "thai in short sentences", "a letter and '. '", "&amp; ", "<a>b</a> "),
    *("[a](b) ", "**a** ", '"a." ', 'a.""""" ', "<speak><sub "),
)
"""Of those, the ones that make the longest turns at some door, in calls or in bytes."""


@pytest.mark.parametrize("door", SOCKETS)
@pytest.mark.parametrize(
    "kinds",
    [
        pytest.param(COSTLIEST, id="costliest"),
        pytest.param(PLAIN_KINDS, id="all", marks=(pytest.mark.thorough, pytest.mark.costly)),
    ],
)
async def test_no_text_by_a_socket_makes_a_long_turn(
    door: str, kinds: Sequence[str], start_server: StartServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Texts of 20,000 characters, until there is some audio of them."""
    server = await start_server()
    await _sent(server, door, "latin", monkeypatch, 1)
    work = {kind: await _sent(server, door, kind, monkeypatch, ANSWERS) for kind in kinds}
    assert {k: (w.most, w.most_bytes) for k, w in work.items() if _is_long(w)} == {}


@pytest.mark.parametrize("door", SOCKETS)
@pytest.mark.parametrize(
    "kind", [pytest.param(k, marks=() if k in SPREAD[:2] else pytest.mark.thorough) for k in SPREAD]
)
async def test_no_turn_is_long_until_the_end_of_a_text(
    door: str, kind: str, start_server: StartServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor in the middle, and not at its end, of which the voice says nothing."""
    server = await start_server()
    server.state.synthesizer.proxy = SpeechlessProxy(PhraseCache(10e6, 60.0, 2)).connect
    work = await _sent(server, door, kind, monkeypatch, None)
    assert not _is_long(work), (work.most, work.most_bytes)
