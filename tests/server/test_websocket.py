"""A `tts.v1` socket on the real engine: formats, pacing, cuts, and many contexts at once."""

import asyncio
import io
import json
import time
from collections.abc import Callable, Iterable, Sequence
from typing import cast, get_args
from unittest.mock import Mock

import numpy as np
import pytest
import soundfile
from fastapi import WebSocket
from structlog.testing import capture_logs
from websockets.exceptions import ConnectionClosedOK

from testbed.loop_work import loop_work
from testbed.raw_websocket import PING, PONG, TEXT, frame, raw_websocket
from testbed.waiting import PATIENCE_S, undisturbed, until
from testbed.wire import Wire, check_coverage
from voiceagent_tts.core import SAMPLE_RATE_HZ, Encoding, Segment, WordTimestamp, ms_to_samples
from voiceagent_tts.errors import ErrorCode
from voiceagent_tts.protocol.client_connection import ClientAudio
from voiceagent_tts.protocol.messages import (
    AudioFormat,
    ContextOpen,
    ContextOpened,
    CutMessage,
    ErrorMessage,
    FlushedMessage,
    PongMessage,
    SampleRate,
    SessionLimits,
    WordsMessage,
)
from voiceagent_tts.protocol.server_connection import ServerConnection, WireMessages
from voiceagent_tts.server.admission import AdmittedContext
from voiceagent_tts.server.serve import RunningServer
from voiceagent_tts.server.socket_context import ContextWriter
from voiceagent_tts.server.websocket import SocketWriter
from voiceagent_tts.synthesizer.options import ContextOptions
from voiceagent_tts.synthesizer.workers import Speaker
from voiceagent_tts.text.cut import cut_text
from voiceagent_tts.text.segmenter import Segmenter

pytestmark = pytest.mark.asyncio(loop_scope="module")

SENTENCE = "The quick brown fox jumps over the lazy dog."
SUBTYPES = {"pcm_s16le": "PCM_16", "pcm_f32le": "FLOAT", "pcm_mulaw": "ULAW", "pcm_alaw": "ALAW"}


def engine_samples(server: RunningServer) -> float:
    seconds = server.state.metrics.registry.get_sample_value("tts_audio_seconds_total")
    assert seconds is not None
    return seconds * SAMPLE_RATE_HZ


def decode(pcm: bytearray, audio: AudioFormat) -> np.ndarray:
    """Decode audio with an independent decoder: [S] float32."""
    samples, _ = soundfile.read(
        io.BytesIO(pcm),
        channels=1,
        samplerate=audio.sample_rate,
        format="RAW",
        subtype=SUBTYPES[audio.encoding],
        endian="LITTLE",
        dtype="float32",
    )
    return samples


@pytest.mark.parametrize("transport", ["binary", "base64"])
@pytest.mark.parametrize("sample_rate", get_args(SampleRate))
@pytest.mark.parametrize("encoding", get_args(Encoding))
async def test_every_format_holds_every_sample(
    shared_server: RunningServer, wire: Wire, encoding, sample_rate, transport
) -> None:
    """Every rate, encoding and transport decodes to the length and level of the engine's audio."""
    audio = AudioFormat(encoding=encoding, sample_rate=sample_rate, transport=transport)
    before = engine_samples(shared_server)
    received = await wire.say(SENTENCE, language="en", audio=audio)
    made = round(engine_samples(shared_server) - before)
    samples = decode(received.pcm, audio)
    assert len(samples) == round(made * sample_rate / SAMPLE_RATE_HZ)
    assert 0.02 < np.sqrt(np.mean(samples**2)) < 0.5
    assert max(len(e.pcm) for e in received.events if isinstance(e, ClientAudio)) <= 4096


async def test_audio_is_paced_by_its_listener(wire: Wire) -> None:
    """At most `max_lead_s` and one message are sent ahead of a listener who plays at once."""

    async def listen() -> list[float]:
        received = await wire.start(f"{SENTENCE} {SENTENCE}", max_lead_s=1, language="en")
        began = time.monotonic()
        leads_s = []
        while received.record.done is None:
            if isinstance(await wire.receive(), ClientAudio):
                leads_s.append(received.audio_ms / 1000 - (time.monotonic() - began))
        assert received.audio_ms > 4_000
        return leads_s

    leads_s = await undisturbed(listen)
    assert max(leads_s) < 2
    assert min(leads_s) > 0, "the listener heard a gap"


async def test_unpaced_audio_comes_as_fast_as_it_is_made(wire: Wire) -> None:
    """With `max_lead_s` 0 a long text arrives without gaps, in a fraction of its playing time."""

    async def listen() -> tuple[float, float]:
        began = time.monotonic()
        received = await wire.say(SENTENCE * 40, language="en")
        assert received.audio_ms > 60_000
        return time.monotonic() - began, received.audio_ms / 1000

    took_s, audio_s = await undisturbed(listen)
    assert took_s < audio_s / 4


async def test_queued_audio_is_merged(wire: Wire) -> None:
    """Audio that is ready leaves in few messages, as full as the size limit allows."""
    received = await wire.say(SENTENCE, language="en")
    sizes = [len(event.pcm) for event in received.events if isinstance(event, ClientAudio)]
    assert sizes.count(4096) > len(sizes) / 2


async def test_a_flush_speaks_what_there_is(wire: Wire) -> None:
    """A flush speaks the pending text at once; `flushed` follows its audio and gives its end."""
    received = await wire.open(max_lead_s=0, language="en", max_buffer_delay_ms=3000)
    await wire.text(received, "No mark ends this")
    await wire.flush(received)
    flushed = await wire.until(FlushedMessage, received)
    assert flushed.audio_ms == received.audio_ms > 0
    check_coverage("No mark ends this", received.words)
    await wire.flush(received)
    assert (await wire.until(FlushedMessage, received)).audio_ms == flushed.audio_ms
    await wire.speak(received, ", and more.")
    assert received.done.reason == "complete"


async def test_a_list_begins_after_a_break_or_a_flush(wire: Wire) -> None:
    """A break or a flush in the white space before a list item does not end its context."""
    text = 'Steps:\n<break time="50ms"/>1. Open the box.\n2. Close it.'
    paused = await wire.say(text, language="en", markup=True, timestamps="none")
    assert paused.done.reason == "complete"
    flushed = await wire.open(max_lead_s=0, language="en")
    await wire.text(flushed, "Steps:\n    ")
    await wire.flush(flushed)
    await wire.speak(flushed, "1. Open the box.")
    assert flushed.done.reason == "complete"


@pytest.mark.parametrize(
    ("call", "is_ended"),
    [("push", False), ("flush", False), ("flush", True), ("settle", False), ("release", False)],
)
async def test_an_unexpected_failure_ends_its_context_alone(
    wire: Wire, monkeypatch: pytest.MonkeyPatch, call: str, *, is_ended: bool
) -> None:
    """In a message or a timer of a context; the others speak on, and the log has no text."""
    secret = "Reading a secret"
    work = getattr(Segmenter, call)
    doomed: list[Segmenter] = []

    def work_or_fail(segmenter: Segmenter, *args: str) -> list[Segment]:
        if segmenter in doomed:
            raise IndexError(secret)
        return work(segmenter, *args)

    push = Segmenter.push

    def push_noted(segmenter: Segmenter, delta: str) -> list[Segment]:
        if secret in delta:
            doomed.append(segmenter)
        return work_or_fail(segmenter, delta) if call == "push" else push(segmenter, delta)

    monkeypatch.setattr(Segmenter, call, work_or_fail)
    monkeypatch.setattr(Segmenter, "push", push_noted)
    healthy = await wire.open(max_lead_s=0, language="en")
    await wire.text(healthy, "Before it fails, ")
    failing = await wire.open(max_lead_s=0, language="en", max_buffer_delay_ms=50)
    with capture_logs() as logs:
        await wire.text(failing, secret + ("." if call == "settle" else ", and"))
        if is_ended:
            await wire.end(failing)
        elif call == "flush":
            await wire.flush(failing)
        await wire.finish(failing)
    assert failing.done.reason == "error"
    assert failing.error is not None and failing.error.code == ErrorCode.INTERNAL
    (failure,) = [entry for entry in logs if entry["event"] == "server_failed"]
    assert failure["context_id"] == failing.record.context_id and failure["session_id"]
    assert "work_or_fail" in failure["calls"] and secret not in str(logs)
    await wire.speak(healthy, "and after it.")
    assert healthy.done.reason == "complete"


async def test_credit_that_fails_ends_its_context_alone(
    wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is given when audio has left, which is nothing that a client has asked for."""
    grant, failing = Speaker.grant, set[Speaker]()

    def grant_or_fail(speaker: Speaker, playout_end: float, samples_wanted: int) -> None:
        if speaker in failing:
            raise IndexError("a bug")
        if speaker.request.language == "de":
            failing.add(speaker)
        grant(speaker, playout_end, samples_wanted)

    monkeypatch.setattr(Speaker, "grant", grant_or_fail)
    healthy = await wire.start(SENTENCE, language="en")
    broken = await wire.start(SENTENCE * 20, language="de", max_lead_s=0)
    await wire.finish(broken)
    assert broken.error is not None and broken.error.code == ErrorCode.INTERNAL
    assert broken.done.reason == "error"
    assert (await wire.finish(healthy)).done.reason == "complete"


async def test_audio_that_cannot_be_encoded_ends_its_context(
    wire: Wire, shared_server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A filter's audio comes in an iteration of the event loop in which no client is served."""

    def cut_short(pcm: bytes, on_filtered: Callable[[bytes], None]) -> None:
        asyncio.get_running_loop().call_soon(on_filtered, pcm[:-1])

    audio_filter = Mock(key_id="key", start=lambda: cut_short)
    monkeypatch.setattr(shared_server.state, "audio_filter", audio_filter)
    broken = await wire.say(SENTENCE, language="en", audio=AudioFormat(sample_rate=8000))
    assert broken.error is not None and broken.error.code == ErrorCode.INTERNAL
    assert broken.done.reason == "error"


async def test_an_open_that_fails_unexpectedly_leaves_the_socket(
    wire: Wire, shared_server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its context is over with `internal`, and the next one speaks."""

    async def fail(*_: object, **__: object) -> AdmittedContext:
        raise IndexError("a bug")

    with monkeypatch.context() as patch:
        patch.setattr(shared_server.state.opener, "open", fail)
        failing = await wire.open(language="en")
        await wire.finish(failing)
    assert failing.error is not None and failing.error.code == ErrorCode.INTERNAL
    assert failing.done.reason == "error"
    assert (await wire.say(SENTENCE, language="en")).done.reason == "complete"


async def test_text_waits_no_longer_than_asked(wire: Wire) -> None:
    """`max_buffer_delay_ms` releases words without punctuation; the last one waits: it may grow."""
    received = await wire.open(max_lead_s=0, language="en", max_buffer_delay_ms=100)
    await wire.text(received, "Hello there my fri")
    words = await wire.until(WordsMessage, received)
    assert words.words == ["Hello", "there", "my"]
    await wire.speak(received, "end")
    assert received.words[-1].word.text == "friend"


async def test_a_cut_is_the_same_during_and_after(wire: Wire) -> None:
    """`cut` splits the text as the word times say, during speech and after it."""
    text = f"{SENTENCE} {SENTENCE} "
    received = await wire.say(text, language="en")
    for played_ms in (0, 1, 500, 1_234, received.audio_ms - 1, received.audio_ms, 10**9):
        await wire.send_raw(wire.connection.cut(received.record.context_id, played_ms))
        cut = await wire.until(CutMessage)
        assert cut.text_spoken + cut.text_remaining == text
        played = min(ms_to_samples(played_ms), received.record.samples_received)
        assert cut.text_spoken == cut_text(text, received.words, played, is_final=True).text_spoken
    assert cut.text_spoken == text
    assert not cut.partial


async def test_a_cancel_goes_by_what_was_played(wire: Wire) -> None:
    """`cancelled` splits at `played_ms` if given, else by the playout clock."""
    for played_ms, basis in ((700, "played_ms"), (None, "clock")):
        received = await wire.open(language="en")
        await wire.text(received, SENTENCE * 20)  # a minute: a late test has not heard all of it
        await wire.until(ClientAudio, received)
        await wire.stop(received, played_ms)
        assert received.cancelled is not None
        assert received.cancelled.basis == basis
        assert received.cancelled.audio_sent_ms == received.audio_ms == received.done.audio_ms
        assert received.cancelled.text_remaining.endswith("lazy dog.")


async def test_a_cancel_may_meet_the_end(wire: Wire) -> None:
    """A cancel that crosses the end in flight is answered once and leaves no context open."""
    for sample_rate in (24000, 8000):
        for _ in range(20):
            audio = AudioFormat(sample_rate=sample_rate)
            received = await wire.start("Hi.", max_lead_s=0, language="en", audio=audio)
            await wire.stop(received)
            assert received.done.reason in ("complete", "cancelled")
    await wire.send_raw({"type": "ping", "t": 7})
    assert await wire.until(PongMessage) == PongMessage(t=7)


async def test_a_cancel_may_meet_the_last_audio(shared_server: RunningServer) -> None:
    """A cancel between a context's end and its last message, as on a slow socket, is answered."""
    synthesizer = shared_server.state.synthesizer
    connection = ServerConnection(
        SessionLimits(max_text_chars=99, context_idle_s=9, max_audio_s=9, max_lead_s=9)
    )
    connection.ready(session_id="s", model="m")
    [message] = connection.receive(
        '{"type":"context.open","context_id":"c","audio":{"sample_rate":8000}}'
    )
    assert isinstance(message, ContextOpen)
    context = await synthesizer.open(ContextOptions(language="en", max_lead_s=0))
    connection.opened("c", voice="default", language="en", seed=None, queue_ms=0)
    unused = cast("WebSocket", None)
    socket = SocketWriter(unused, shared_server.state, connection, "s", on_over=lambda _: None)
    writer = ContextWriter(socket, message, context)
    context.push_text("Hello.")
    context.finish()
    while synthesizer.contexts_active:
        if (outgoing := writer.next_message()) is None:
            await asyncio.sleep(0.001)
        else:
            outgoing.on_sent()
    assert writer.done is None, "the resampler's last samples were the last message"
    connection.receive('{"type":"cancel","context_id":"c"}')
    writer.cancel(None, "")
    messages = []
    while writer.done is None:
        outgoing = writer.next_message()
        assert outgoing is not None, "the context is still owed its `done`"
        messages += outgoing.messages
    assert '"type":"done"' in str(messages[-1])


async def test_a_context_whose_messages_cannot_be_made_ends_alone(
    wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is sent is checked; a defect in one context is its error, and the socket goes on."""
    make = ServerConnection.words

    def refusing(
        connection: ServerConnection, context_id: str, words: Sequence[WordTimestamp]
    ) -> WireMessages:
        assert all(each.word.text != "Boom." for each in words)
        return make(connection, context_id, words)

    monkeypatch.setattr(ServerConnection, "words", refusing)
    other = await wire.start(SENTENCE, language="en")
    broken = await wire.open(language="en")
    await wire.text(broken, "Boom.")
    await wire.end(broken)
    assert (await wire.until(ErrorMessage, broken)).code == ErrorCode.INTERNAL
    assert (await wire.finish(broken)).done.reason == "error"
    await wire.send_raw(wire.connection.cut(broken.record.context_id, 0))
    assert (await wire.until(CutMessage)).text_remaining == "Boom."
    assert (await wire.finish(other)).done.reason == "complete"


async def test_contexts_share_a_socket_evenly(wire: Wire) -> None:
    long = await wire.start(SENTENCE * 200, max_lead_s=0, language="en")
    for _ in range(5):
        assert (await wire.say("Hello.", language="en")).done.reason == "complete"
    assert long.record.done is None, "the long context delays no other"
    await wire.stop(long)


async def test_a_close_is_obeyed_at_once(shared_server: RunningServer) -> None:
    """`close` cancels its contexts without waiting for their audio; the close code is 1000."""
    async with Wire.connected(shared_server.websocket_url) as wire:
        received = await wire.start(SENTENCE * 400, max_lead_s=0, language="en")
        await wire.send_raw(wire.connection.close())
        with pytest.raises(ConnectionClosedOK) as closed:
            while True:
                await wire.receive()
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1000
        assert received.record.done is None
    synthesizer = shared_server.state.synthesizer
    await until(lambda: not synthesizer.contexts_active, "its context is cancelled")


async def test_session_defaults_and_answers(wire: Wire) -> None:
    received = await wire.say("Guten Tag.", voice="F3", language="German", seed=5)
    opened = received.events[0]
    assert isinstance(opened, ContextOpened)
    assert (opened.voice, opened.language, opened.seed) == ("f3", "de", 5)


async def test_a_tiny_lead_still_plays(wire: Wire) -> None:
    for sample_rate in (8000, 24000):
        audio = AudioFormat(sample_rate=sample_rate)
        received = await wire.open(max_lead_s=1e-9, language="en", audio=audio)
        assert (await wire.speak(received, "Hello.")).done.reason == "complete"


async def test_no_times_if_none_are_wanted(wire: Wire) -> None:
    received = await wire.say(SENTENCE, language="en", timestamps="none")
    assert received.audio_ms > 0
    assert not received.words


async def test_a_client_that_reads_no_pongs_gets_few(shared_server: RunningServer) -> None:
    """Five megabytes of pings fill no memory; what comes after them is read, and the last answered.

    RFC 6455 demands a pong for the latest ping only.
    """
    async with raw_websocket(shared_server.url, "/v1/tts/ws") as raw:
        (session,) = shared_server.state.sessions
        await raw.send(frame(PING, bytes(125)) * 40_000)
        opening = {"type": "context.open", "context_id": "a", "language": "en"}
        await raw.send(frame(TEXT, json.dumps(opening).encode()))
        await until(lambda: session.idle_since is None, "the context is open")
        assert session.send_queue_bytes < 500_000
        await raw.send(frame(PING, b"last"))
        received = 0
        async with asyncio.timeout(PATIENCE_S):
            while (await raw.receive()) != (PONG, b"last"):
                received += 1
        assert received < 40_000 / 4


async def test_answers_that_are_not_read_take_little_memory(
    shared_server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They count by their bytes, so an answer that repeats a long text stops the reading soon."""
    held_bytes = [0]
    original = SocketWriter.answer

    def answer(self: SocketWriter, messages: Iterable[str | bytes]) -> None:
        original(self, messages)
        held_bytes.append(sum(map(len, self._answers)))

    monkeypatch.setattr(SocketWriter, "answer", answer)
    turn = [
        {"type": "context.open", "context_id": "a", "language": "en"},
        {"type": "text", "context_id": "a", "text": "日" * 15_000},
        {"type": "cancel", "context_id": "a"},
    ]
    cuts = [{"type": "cut", "context_id": "a", "played_ms": number} for number in range(200)]
    messages = [json.dumps(message, ensure_ascii=False) for message in (*turn, *cuts)]
    async with raw_websocket(shared_server.url, "/v1/tts/ws") as raw:
        await raw.send(*(frame(TEXT, message.encode()) for message in messages))
        await until(lambda: max(held_bytes) > 40_000, "an answer waits")
        for _ in range(500):  # the server reads as much as it will
            await asyncio.sleep(0)
        most_bytes, answered = max(held_bytes), 0
        async with asyncio.timeout(PATIENCE_S):
            while answered < len(cuts):
                answered += b'"cut"' in (await raw.receive())[1]
    assert most_bytes < 256_000


async def test_small_messages_come_in_small_parts(
    shared_server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One iteration of the event loop reads some of the messages that a client has sent at once."""
    async with raw_websocket(shared_server.url, "/v1/tts/ws") as raw:
        (session,) = shared_server.state.sessions
        pings = frame(PING, b"") * 20_000
        opening = {"type": "context.open", "context_id": "a", "language": "en"}
        with loop_work(monkeypatch) as work:
            await raw.send(pings, frame(TEXT, json.dumps(opening).encode()))
            await until(lambda: session.idle_since is None, "the context is open")
    assert work.most < 100_000
