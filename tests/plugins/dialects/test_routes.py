"""Clients of other services on the real engine: raw messages, good and bad."""

import asyncio
import base64
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection, connect

from testbed.servers import metric_value, until_free
from testbed.slow_lexicon import SLOW_VOICE, slow_lexicon
from testbed.waiting import PATIENCE_S, until
from voiceagent_tts.config import Settings
from voiceagent_tts.core import BYTES_PER_SAMPLE, SAMPLE_RATE_HZ
from voiceagent_tts.server.serve import RunningServer, running

pytestmark = pytest.mark.asyncio(loop_scope="module")

SENTENCE = "The quick brown fox jumps over the lazy dog."
PATHS = {
    "vllm_omni": "/v1/audio/speech/stream",
    "cartesia": "/tts/websocket",
    "elevenlabs": "/v1/text-to-speech/default/multi-stream-input?output_format=pcm_24000",
}
ERROR_FIELDS = {
    "vllm_omni": {"type", "code", "message"},
    "cartesia": {"type", "context_id", "status_code", "message"},
    "elevenlabs": {"error", "code", "message"},
}


class Raw:
    """A socket for messages written by hand."""

    def __init__(self, websocket: ClientConnection) -> None:
        self.websocket = websocket

    async def send(self, *messages: dict[str, Any] | str | bytes) -> None:
        for message in messages:
            data = json.dumps(message) if isinstance(message, dict) else message
            await self.websocket.send(data)

    async def receive(self) -> dict[str, Any] | bytes:
        async with asyncio.timeout(PATIENCE_S):
            data = await self.websocket.recv()
        return data if isinstance(data, bytes) else json.loads(data)

    async def until(self, kind: str, **fields: Any) -> list[dict[str, Any] | bytes]:
        """Return all messages up to the first one of a type with these fields."""
        events: list[dict[str, Any] | bytes] = []
        while True:
            event = await self.receive()
            events.append(event)
            if isinstance(event, dict) and event.items() >= {"type": kind, **fields}.items():
                return events

    async def error(self) -> dict[str, Any]:
        """Return the next message, which must be an error."""
        event = (await self.until("error"))[-1]
        assert isinstance(event, dict)
        return event


@contextlib.asynccontextmanager
async def connected(server: RunningServer, dialect: str) -> AsyncIterator[Raw]:
    """Open a socket that closes with the block."""
    url = f"ws{server.url.removeprefix('http')}{PATHS[dialect]}"
    async with connect(url, compression=None, max_size=None) as websocket:
        yield Raw(websocket)


def config(**fields: Any) -> dict[str, Any]:
    """Build vLLM-Omni's first message."""
    return {"type": "session.config", "voice": "default", "language": "English", **fields}


def text(text: str) -> dict[str, Any]:
    """Build vLLM-Omni's text message."""
    return {"type": "input.text", "text": text}


DONE = {"type": "input.done"}


def request(
    context_id: str, transcript: str, *, more: bool = False, **fields: Any
) -> dict[str, Any]:
    """Build Cartesia's request."""
    return {
        "context_id": context_id,
        "transcript": transcript,
        "continue": more,
        "model_id": "sonic-3",
        "voice": {"mode": "id", "id": "default"},
        "output_format": {"container": "raw", "encoding": "pcm_s16le", "sample_rate": 24000},
        "language": "en",
        **fields,
    }


def pcm_of(events: list[dict[str, Any] | bytes], context_id: str | None = None) -> bytes:
    """Return the audio of the messages, of one context if they name contexts."""
    pieces: list[bytes] = []
    for event in events:
        if isinstance(event, bytes):
            pieces.append(event)
        elif event["type"] == "chunk" and event["context_id"] == context_id:
            pieces.append(base64.b64decode(event["data"]))
    return b"".join(pieces)


def made_samples(server: RunningServer) -> float:
    """Return the number of samples that the engine has made, at 24 kHz."""
    return metric_value(server, "tts_audio_seconds_total") * SAMPLE_RATE_HZ


async def check_alive(raw: Raw, dialect: str) -> None:
    """Check that the next request is spoken normally."""
    match dialect:
        case "cartesia":
            await raw.send(request("alive", "Yes."))
            assert pcm_of(await raw.until("done", context_id="alive"), "alive")
        case "elevenlabs":
            await raw.send({"text": "Yes. ", "flush": True}, {"close_context": True})
            first = await raw.receive()
            assert isinstance(first, dict) and first["audio"]
        case _:
            await raw.send(DONE)  # whatever was in progress is over
            await raw.until("session.done")
            await raw.send(config(), text("Yes."), DONE)
            assert pcm_of(await raw.until("session.done"))


# vLLM-Omni's dialect


async def test_utterances_follow_each_other(shared_server: RunningServer) -> None:
    """Three utterances sent at once are spoken one after the other, each complete."""
    texts = [SENTENCE, "Yes.", SENTENCE]
    async with connected(shared_server, "vllm_omni") as raw:
        await raw.send(config(), *(m for t in texts for m in (text(t), DONE)))
        before, lengths = made_samples(shared_server), []
        for index in range(3):
            events = await raw.until("session.done", utterance_index=index)
            told = [event["utterance_index"] for event in events if isinstance(event, dict)]
            assert set(told) == {index}, "utterances are not mixed"
            lengths.append(len(pcm_of(events)) // BYTES_PER_SAMPLE)
        assert sum(lengths) == round(made_samples(shared_server) - before)
        assert min(lengths[0], lengths[2]) > 2 * lengths[1] > 0
    await until_free(shared_server)


async def test_utterances_keep_their_order_while_one_waits(tmp_path: Path) -> None:
    """A later one does not overtake one whose voice is still being read."""
    settings = Settings(port=0, voices_folder=tmp_path)
    async with running(settings) as server, connected(server, "vllm_omni") as raw:
        with slow_lexicon(tmp_path):
            await raw.send(config(voice=SLOW_VOICE), text("First."), DONE)
            await raw.send(config(), text("Second."), DONE)
            await until(lambda: server.state.synthesizer.contexts_active == 1, "one is open")
        events = await raw.until("session.done", utterance_index=1)
    order = [event["utterance_index"] for event in events if isinstance(event, dict)]
    assert order == sorted(order) and {*order} == {0, 1}


# Cartesia's dialect


async def test_contexts_speak_side_by_side(shared_server: RunningServer) -> None:
    """Concurrent contexts each get their own format and every sample of the engine's audio."""
    telephone = {"container": "raw", "encoding": "pcm_alaw", "sample_rate": 8000}
    async with connected(shared_server, "cartesia") as raw:
        before = made_samples(shared_server)
        await raw.send(request("a", SENTENCE), request("b", SENTENCE, output_format=telephone))
        events = await raw.until("done")
        events += await raw.until("done")
        made = made_samples(shared_server) - before
        samples = len(pcm_of(events, "a")) // BYTES_PER_SAMPLE + 3 * len(pcm_of(events, "b"))
        assert samples == pytest.approx(made, abs=3)


async def test_a_flush_speaks_what_there_is(shared_server: RunningServer) -> None:
    """A flush speaks the pending text, `flush_done` follows, and the context continues."""
    async with connected(shared_server, "cartesia") as raw:
        await raw.send(request("a", "No mark ends this ", more=True, flush=True))
        events = await raw.until("flush_done", flush_id=1)
        assert pcm_of(events, "a")
        assert {event["flush_id"] for event in events if isinstance(event, dict)} == {1}
        await raw.send(request("a", "but this."))
        events = await raw.until("done", context_id="a")
        assert {e["flush_id"] for e in events if isinstance(e, dict) and e["type"] == "chunk"} == {
            2
        }


# Bad input, for both dialects


@pytest.mark.parametrize("dialect", PATHS)
@pytest.mark.parametrize("data", ["", "[]", "[" * 30_000, '{"text": 1}', b"\x00\xff", r'"\ud800"'])
async def test_a_bad_message_is_answered(
    shared_server: RunningServer, dialect: str, data: str | bytes
) -> None:
    """A bad message gets an error in the client's own dialect, and the next request works."""
    async with connected(shared_server, dialect) as raw:
        if dialect == "vllm_omni":
            await raw.send(config())
        await raw.send(data)
        error = await raw.receive()
        assert isinstance(error, dict) and error["message"]
        assert error.keys() >= ERROR_FIELDS[dialect]
        await check_alive(raw, dialect)
