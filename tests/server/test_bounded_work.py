"""What a client sends by a socket keeps no other waiting, however often it is sent."""

import asyncio
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from websockets.sync.client import ClientConnection, connect

from testbed.long_texts import CHARS, MOST_CALLS
from testbed.loop_work import LoopWork, loop_work
from testbed.servers import StartServer
from testbed.speechless import BriefProxy
from testbed.waiting import PATIENCE_S
from testbed.wire import Wire
from voiceagent_tts.plugins.cache.store import PhraseCache
from voiceagent_tts.protocol.client_connection import ClientAudio
from voiceagent_tts.protocol.messages import CutMessage, DoneMessage, ErrorMessage
from voiceagent_tts.seam.commands import SpeechOptions
from voiceagent_tts.server.serve import RunningServer
from voiceagent_tts.synthesizer.options import ContextOptions
from voiceagent_tts.synthesizer.segments import MAX_CONTEXT_CHARS
from voiceagent_tts.text.cut import TimedText

MOST_BYTES = 300_000
"""Bytes and characters that functions return in one iteration: the 64 kB of answers that may wait
for a client are passed on by some of them."""
MOST_ANSWER_BYTES = 1_250_000
"""What is made and sent at once for one message of a client: 6 ms."""
TEXTS = 2
"""Messages of `CHARS` characters that are spoken in one context."""
FLUSHES = 3_000
"""Flushes that one client sends: three times as many as may wait."""
PREPARATIONS = 300
NEVER_S = 1e6


def send(socket: ClientConnection, kind: str, **fields: Any) -> None:
    socket.send(json.dumps({"type": kind, "context_id": "a", **fields}))


def until(socket: ClientConnection, kind: str) -> dict[str, Any]:
    while True:
        data = socket.recv(timeout=PATIENCE_S)
        message = json.loads(data) if isinstance(data, str) else {"type": "audio"}
        assert kind == "error" or message["type"] != "error", message
        if message["type"] == kind:
            return message


async def worked(
    server: RunningServer,
    talk: Callable[[ClientConnection], Any],
    patch: pytest.MonkeyPatch,
    url: str | None = None,
) -> tuple[LoopWork, Any]:
    """The work of the server's loop while a client talks, and what that returns."""

    def talk_by_socket() -> Any:
        with connect(url or server.websocket_url, max_size=None) as socket:
            return talk(socket)

    with loop_work(patch) as work:
        await asyncio.sleep(0)
        result = await asyncio.to_thread(talk_by_socket)
    return work, result


def cut_often(socket: ClientConnection) -> Iterator[dict[str, Any]]:
    """Have a text of 20,000 words aligned; cut it while it is open, and after its end."""
    send(socket, "context.open", language="en", max_lead_s=0)
    for flush_id in range(TEXTS):
        send(socket, "text", text=("a " * CHARS)[:CHARS])
        send(socket, "flush", flush_id=flush_id)
        until(socket, "flushed")
        send(socket, "cut", played_ms=400)
        yield until(socket, "cut")
    send(socket, "end")
    yield until(socket, "done")
    send(socket, "cut", played_ms=400)
    yield until(socket, "cut")


async def test_aligned_words_make_no_long_turn(
    start_server: StartServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cuts of a text of 20,000 words, one of which left by an estimate, and its end."""
    server = await start_server()
    server.state.synthesizer.proxy = BriefProxy(PhraseCache(10e6, 60.0, 2)).connect
    work, answers = await worked(server, lambda socket: [*cut_often(socket)], monkeypatch)
    assert work.most <= MOST_CALLS and work.most_bytes <= MOST_BYTES, (work.most, work.most_bytes)
    first, second, done, third = answers
    assert [len(cut["text_spoken"]) for cut in (first, second, third)] == [19999, 39999, 40000]
    assert (done["reason"], done["words_final"]) == ("complete", None)


def flush_often(socket: ClientConnection) -> list[dict[str, Any]]:
    """Flush a long sentence again and again while it is spoken; return the errors."""
    send(socket, "context.open", language="en", speed=0.25)
    send(socket, "text", text="word " * 49 + "end. ")
    for flush_id in range(FLUSHES):
        send(socket, "flush", flush_id=flush_id)
    return [until(socket, "error") for _ in range(FLUSHES - 1_000)]


async def test_flushes_that_wait_are_limited(
    start_server: StartServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More are refused with a code, and none makes a long turn."""
    server = await start_server()
    work, errors = await worked(server, flush_often, monkeypatch)
    assert {(error["code"], error["context_id"]) for error in errors} == {("text_too_long", "a")}
    assert work.most <= MOST_CALLS and work.most_bytes <= MOST_BYTES, (work.most, work.most_bytes)


def prepare_often(kind: str, **fields: Any) -> Callable[[ClientConnection], None]:
    """Returns what announces many contexts, and waits until the server has read all of it."""

    def announce(socket: ClientConnection) -> None:
        message = json.dumps({"type": kind, **fields})
        for _ in range(PREPARATIONS):
            socket.send(message)
        socket.ping().wait(PATIENCE_S)

    return announce


@pytest.mark.parametrize(
    ("path", "announce"),
    [
        ("/v1/tts/ws", prepare_often("prepare", voice="de", instruct="x" * 2_000)),
        (
            "/v1/audio/speech/stream",
            prepare_often("session.config", voice="de", response_format="pcm"),
        ),
    ],
)
async def test_engines_prepare_a_few_of_the_contexts_that_a_client_announces(
    path: str,
    announce: Callable[[ClientConnection], None],
    start_server: StartServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No limit of a key counts what is announced, so the time between two is the server's."""
    server = await start_server()
    prepared: list[ContextOptions] = []
    monkeypatch.setattr(server.state.synthesizer, "prepare", prepared.append)
    monkeypatch.setattr("voiceagent_tts.server.admission._PREPARE_EVERY_S", NEVER_S)
    url = f"{server.url.replace('http', 'ws', 1)}{path}"
    work, _ = await worked(server, announce, monkeypatch, url)
    assert [options.voice for options in prepared] == ["de"]
    assert work.most <= MOST_CALLS and work.most_bytes <= MOST_BYTES, (work.most, work.most_bytes)


async def test_the_newest_of_the_contexts_that_are_announced_wait(
    start_server: StartServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """64 of each caller; nothing is kept of a caller without any."""
    opener = (server := await start_server()).state.opener
    prepared: list[str] = []
    done = asyncio.Event()

    def prepare(options: ContextOptions) -> None:
        prepared.append(options.speech.instruct or "")
        if len(prepared) == 65:
            done.set()

    monkeypatch.setattr(server.state.synthesizer, "prepare", prepare)
    monkeypatch.setattr("voiceagent_tts.server.admission._PREPARE_EVERY_S", 0.0)
    for number in range(PREPARATIONS):
        opener.prepare("busy", ContextOptions(speech=SpeechOptions(str(number))))
    opener.prepare("other", ContextOptions(speech=SpeechOptions("other")))
    await done.wait()
    newest = [str(number) for number in range(PREPARATIONS - 64, PREPARATIONS)]
    assert prepared == [newest[0], "other", *newest[1:]]


def test_an_answer_to_cut_is_not_large() -> None:
    """It has all text of a context, of which nothing may be said."""
    cut = TimedText("\N{GRINNING FACE}" * MAX_CONTEXT_CHARS).cut(0)
    answer = CutMessage(
        context_id="a",
        text_spoken=cut.text_spoken,
        text_remaining=cut.text_remaining,
        partial=cut.is_partial,
    )
    assert len(answer.encode().encode()) <= MOST_ANSWER_BYTES


async def test_readings_of_any_length_leave_the_worker_to_others(
    start_server: StartServer,
) -> None:
    """1,281 bytes that say 50,000 characters are refused; a neighbour goes on beside 18,000."""
    server = await start_server()
    supervisor = server.state.synthesizer.supervisors["espeak"]
    worker = supervisor.worker
    async with (
        Wire.connected(server.websocket_url) as wire,
        Wire.connected(server.websocket_url) as neighbour,
    ):
        lexicon = {"あ": {"say": "b" * 200, "ipa": "a" * 200}}
        options = {"language": "ja", "speed": 0.25, "max_lead_s": 0, "lexicon": lexicon}
        refused = await wire.open(**options)
        await wire.text(refused, "あ" * 249)
        await wire.end(refused)
        assert (await wire.until(ErrorMessage, refused)).code == "text_too_long"
        long = await wire.open(**options)
        await wire.text(long, "あ" * 90)
        await wire.end(long)
        for spoken_s in (1, 20, 40, 60):
            while long.audio_ms < spoken_s * 1000:
                await wire.until(ClientAudio, long)
            assert (await neighbour.say("Hello there.", language="en")).done.reason == "complete"
        await wire.cancel(long)
        assert (await wire.until(DoneMessage, long)).reason == "cancelled"
    assert supervisor.worker is worker and supervisor.restarts == 0
