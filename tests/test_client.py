import asyncio
import contextlib
import gc
import math
import socket
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable
from http import HTTPStatus
from typing import Any

import pytest
from websockets.asyncio.server import ServerConnection as WebSocket
from websockets.asyncio.server import serve
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response
from websockets.typing import Subprotocol

from testbed.servers import StartServer
from voiceagent_tts.client import (
    ClientAudio,
    ClientContext,
    DoneMessage,
    Event,
    FlushedMessage,
    TTSClient,
    websocket_address,
)
from voiceagent_tts.core import Cut, Word, WordTimestamp, ms_to_samples
from voiceagent_tts.errors import (
    ConnectionLostError,
    EngineError,
    ErrorCode,
    InvalidRequestError,
    OverloadedError,
    UnauthorizedError,
    VoiceAgentError,
)
from voiceagent_tts.protocol.messages import (
    SUBPROTOCOL,
    AudioFormat,
    AudioMessage,
    CancelledMessage,
    ClientMessage,
    Close,
    ContextCancel,
    ContextCut,
    ContextEnd,
    ContextFlush,
    ContextOpen,
    ContextText,
    Prepare,
    SessionLimits,
    WordList,
)
from voiceagent_tts.protocol.refusals import RefusedMessageError
from voiceagent_tts.protocol.server_connection import Answer, ServerConnection, WireMessages
from voiceagent_tts.settings.access import Quota
from voiceagent_tts.text.cut import TimedText

WORD_SAMPLES = 1_920  # every word sounds for 80 ms
LIMITS = SessionLimits(
    max_text_chars=8_192, context_idle_s=120, max_audio_s=600, max_lead_s=8, max_contexts=4
)


class Peer:
    """One accepted socket of a small real server: each word of a text is 80 ms of its number."""

    def __init__(self, websocket: WebSocket) -> None:
        self.websocket = websocket
        self.connection = ServerConnection(LIMITS)
        self.opens: dict[str, ContextOpen] = {}
        self.over: set[str] = set()
        self.texts: dict[str, str] = {}
        self.words: dict[str, list[WordTimestamp]] = {}
        self.received: list[ClientMessage] = []

    async def run(self) -> None:
        """Handle messages until the socket closes."""
        await self.send(self.connection.ready(session_id="s", model="numbers"))
        async for data in self.websocket:
            try:
                messages = self.connection.receive(data)
            except RefusedMessageError as error:
                await self.send(self.connection.refused(error))
                continue
            for message in messages:
                assert not isinstance(message, Answer), "tts.v1 answers nothing by itself"
                self.received.append(message)
                await self.answer(message)

    async def send(self, messages: WireMessages) -> None:
        """Send the messages of the connection."""
        for message in messages:
            await self.websocket.send(message)

    async def answer(self, message: ClientMessage) -> None:
        """Handle one message."""
        say = self.send
        match message:
            case ContextOpen(context_id=context_id, voice="broken"):
                await say(self.connection.error(EngineError("it broke"), context_id))
                await say(self.connection.done(context_id, "error", chars=0))
            case ContextOpen(context_id=context_id):
                self.opens[context_id] = message
                self.texts[context_id], self.words[context_id] = "", []
                await say(
                    self.connection.opened(
                        context_id, voice="v", language="en", seed=None, queue_ms=0
                    )
                )
            case ContextText(context_id=context_id, text=text):
                self.texts[context_id] += text
                await self.speak(context_id)
            case ContextFlush(context_id=context_id, flush_id=flush_id):
                audio_ms = 80 * len(self.words[context_id])
                await say(self.connection.flushed(context_id, flush_id, audio_ms))
            case ContextEnd(context_id=context_id):
                if self.opens[context_id].voice != "slow":
                    await self.done(context_id, "complete")
            case ContextCancel(context_id=context_id, played_ms=played_ms):
                basis = "clock" if played_ms is None else "played_ms"
                cut = self.cut(context_id, played_ms or 0)
                await say(self.connection.cancelled(context_id, cut, basis))
                await self.done(context_id, "cancelled")
            case ContextCut(context_id=context_id, played_ms=played_ms):
                await say(self.connection.cut(context_id, self.cut(context_id, played_ms)))
            case Prepare():
                pass
            case Close():
                await self.websocket.close()
            case _:
                pass

    async def speak(self, context_id: str) -> None:
        """Speak the words that have not been spoken yet."""
        text, said = self.texts[context_id], self.words[context_id]
        rate = self.opens[context_id].audio.sample_rate
        for token in text.split()[len(said) :]:
            number = len(said)
            char_start = text.index(token, said[-1].word.char_end if said else 0)
            start = number * WORD_SAMPLES
            word = Word(token, char_start, char_start + len(token))
            said.append(WordTimestamp(word, start, start + WORD_SAMPLES, 1.0))
            await self.send(self.connection.words(context_id, said[-1:]))
            samples = WORD_SAMPLES * rate // 24_000
            pcm = number.to_bytes(2, "little") * samples
            await self.send(self.connection.audio(context_id, pcm, number * samples))

    async def done(self, context_id: str, reason: Any) -> None:
        """End a context."""
        self.over.add(context_id)
        chars = len(self.texts[context_id])
        await self.send(self.connection.done(context_id, reason, chars=chars))

    def cut(self, context_id: str, played_ms: int) -> Cut:
        """Return the cut at a playback position."""
        words, is_final = self.words[context_id], context_id in self.over
        timed_text = TimedText(self.texts[context_id], words, len(words) * WORD_SAMPLES, is_final)
        return timed_text.cut(ms_to_samples(played_ms))


class SmallServer:
    """A real WebSocket server on loopback, and the sockets that it accepted."""

    def __init__(self) -> None:
        self.peers: list[Peer] = []
        self.status: HTTPStatus | None = None
        self.authorizations: list[str | None] = []
        self.refusals_left = 0
        self.url = ""

    async def serve_peer(self, websocket: WebSocket) -> None:
        """Serve one client."""
        peer = Peer(websocket)
        self.peers.append(peer)
        with contextlib.suppress(ConnectionClosed):
            await peer.run()

    def admit(self, websocket: WebSocket, request: Request) -> Response | None:
        """Refuse the handshake while a refusal is set."""
        self.authorizations.append(request.headers.get("Authorization"))
        if self.status is None or self.refusals_left == 0:
            return None
        self.refusals_left -= 1
        return websocket.respond(self.status, "no\n")


@contextlib.asynccontextmanager
async def serving(
    handler: Callable[[WebSocket], Awaitable[None]], admit: Any = None
) -> AsyncIterator[str]:
    """Serve `handler` on a free port of this machine; yield its URL."""
    subprotocols = [Subprotocol(SUBPROTOCOL)]
    async with serve(
        handler, "127.0.0.1", 0, subprotocols=subprotocols, process_request=admit
    ) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        yield f"ws://127.0.0.1:{port}"


@pytest.fixture(autouse=True)
def _hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("voiceagent_tts.client.tts_client.RETRY_WAITS_S", (0.0, 0.0, 0.0))


@pytest.fixture
async def small_server() -> AsyncIterator[SmallServer]:
    """A small real server; all clients must have disconnected when the test ends."""
    small = SmallServer()
    async with serving(small.serve_peer, small.admit) as url:
        small.url = url
        yield small


async def _events(context: AsyncIterator[Event]) -> list[Event]:
    return [event async for event in context]


def _pcm(events: list[Event]) -> bytes:
    return b"".join(event.pcm for event in events if isinstance(event, ClientAudio))


def _words(events: list[Event]) -> list[str]:
    return [event.word.text for event in events if isinstance(event, WordTimestamp)]


async def _speaking(client: TTSClient, text: str) -> ClientContext:
    context = await client.open()
    await context.send_text(text)
    await _until_audio(context)
    return context


async def _spoken(client: TTSClient, text: str, **options: Any) -> ClientContext:
    context = await client.open(**options)
    await context.send_text(text)
    await context.end()
    await _events(context)
    return context


async def _until_audio(context: ClientContext) -> None:
    async for event in context:
        if isinstance(event, ClientAudio):
            return


async def test_a_context_gives_its_events_in_order(small_server: SmallServer) -> None:
    """Text sent in pieces is answered with words before their audio, a flush, and `done` last."""
    async with TTSClient(small_server.url) as client, await client.open(voice="v") as context:
        for delta in ("one two", " three"):
            await context.send_text(delta)
        assert await context.flush() == 1
        await context.end()
        events = await _events(context)
    assert _words(events) == ["one", "two", "three"]
    assert len(_pcm(events)) == 3 * 2 * WORD_SAMPLES
    assert isinstance(events[0], WordTimestamp)
    assert isinstance(events[-2], FlushedMessage)
    assert isinstance(events[-1], DoneMessage)
    assert context.text == "one two three"


async def test_contexts_share_one_socket(small_server: SmallServer) -> None:
    async with TTSClient(small_server.url) as client:
        said = await asyncio.gather(
            *(_events(client.say(f"a{number} b{number}")) for number in range(4))
        )
    assert [_words(events) for events in said] == [[f"a{n}", f"b{n}"] for n in range(4)]
    assert len(small_server.peers) == 1


async def test_cancel_waits_for_what_was_heard(small_server: SmallServer) -> None:
    """`cancel` returns the server's cut, and only `cancelled` and `done` follow."""
    async with TTSClient(small_server.url) as client:
        context = await _speaking(client, "one two three")
        cut = await context.cancel(played_ms=100)
        events = await _events(context)
    assert cut == Cut("one two", " three", is_partial=True)
    assert [type(event) for event in events] == [CancelledMessage, DoneMessage]
    assert await context.cancel() == cut


async def test_cancel_after_the_end_is_a_cut(small_server: SmallServer) -> None:
    """A reply that was sent completely before the barge-in is still cut."""
    async with TTSClient(small_server.url) as client:
        context = await _spoken(client, "one two three")
        assert await context.cancel(played_ms=90) == Cut("one two", " three", is_partial=True)
        assert await context.cut(500) == Cut("one two three", "", is_partial=False)


@pytest.mark.parametrize("played_ms", [0, 79, 80, 81, 160, 239, 240, 10_000])
async def test_the_local_cut_is_the_servers(small_server: SmallServer, played_ms: int) -> None:
    async with TTSClient(small_server.url) as client:
        context = await _spoken(client, "one two three ", audio=AudioFormat(sample_rate=8000))
        assert context.cut_locally(played_ms) == await context.cut(played_ms)


@pytest.mark.parametrize("played_ms", [-1, 1.5, True, "5", None, float("nan"), math.inf, 2**70])
async def test_a_wrong_position_is_refused_by_both_cuts(
    small_server: SmallServer, played_ms: Any
) -> None:
    async with TTSClient(small_server.url) as client, await client.open() as context:
        with pytest.raises(InvalidRequestError, match="played_ms: ") as refused:
            await context.cut(played_ms)
        with pytest.raises(InvalidRequestError, match="played_ms: ") as refused_locally:
            context.cut_locally(played_ms)
        assert refused.value.code == refused_locally.value.code == ErrorCode.INVALID_PARAM


async def test_another_event_loop_is_refused(small_server: SmallServer) -> None:
    """That of another thread; the client and the context go on in theirs."""
    async with TTSClient(small_server.url) as client, await client.open() as context:
        calls: tuple[Callable[[], Awaitable[Any]], ...] = (
            client.open,
            client.prepare,
            lambda: context.send_text("one"),
            context.flush,
            context.end,
            lambda: context.cut(100),
            lambda: context.cancel(100),
            lambda: anext(context),
        )
        for call in calls:
            with pytest.raises(InvalidRequestError, match="event loop") as caught:
                await asyncio.to_thread(_in_another_loop, call)
            assert caught.value.code is ErrorCode.NOT_SUPPORTED
        await context.send_text("one")
        await context.end()
        assert [event async for event in context]


def _in_another_loop(call: Callable[[], Awaitable[Any]]) -> None:
    async def run() -> None:
        await call()

    asyncio.run(run())


async def test_the_local_cut_goes_by_the_final_times(small_server: SmallServer) -> None:
    """The times that came before the end were estimates, where the server has better ones."""
    async with TTSClient(small_server.url) as client:
        context = await _speaking(client, "one two")
        peer = small_server.peers[0]
        one, two = peer.words[context.context_id]
        final = WordList.of([one, two.later(WORD_SAMPLES // 2)])
        done = peer.connection.done(context.context_id, "complete", chars=7, words_final=final)
        await peer.send(done)
        assert context.words == [one, two]
        await _events(context)
        assert context.words == [one, two.later(WORD_SAMPLES // 2)]
        assert context.cut_locally(100).text_spoken == "one"
        assert context.cut_locally(125).text_spoken == "one two"


async def test_leaving_a_context_early_cancels_it(small_server: SmallServer) -> None:
    """Leaving `async with` early, or closing `say`, cancels the context at the server."""
    async with TTSClient(small_server.url) as client:
        async with await client.open(voice="slow") as context:
            await context.send_text("one two")
        speech = client.say("one two", voice="slow")
        await anext(speech)
        await speech.aclose()
        await _events(client.say("three"))  # the server handles messages in order
    messages = small_server.peers[0].received
    opened, cancelled = (
        [message.context_id for message in messages if isinstance(message, kind)]
        for kind in (ContextOpen, ContextCancel)
    )
    assert cancelled == opened[:2]


async def test_a_failed_context_raises_its_error(small_server: SmallServer) -> None:
    """The server's error is raised after earlier events, also on further reads; no read hangs."""
    async with TTSClient(small_server.url) as client:
        context = await client.open(voice="broken")
        event = await anext(context)
        assert isinstance(event, DoneMessage)
        for _ in range(2):
            with pytest.raises(EngineError, match="it broke"):
                await anext(context)
        with pytest.raises(EngineError, match="it broke"):
            await context.send_text("more")
        async with await client.open() as healthy:
            await healthy.send_text("one")
            await healthy.end()
            assert _words(await _events(healthy)) == ["one"]


@pytest.mark.parametrize("is_open", [True, False])
async def test_refused_text_leaves_its_context_and_its_record(
    start_server: StartServer, *, is_open: bool
) -> None:
    """The next calls raise each error once, the context speaks on, and both ends have one text.

    More text is on its way when the server refuses a piece, before or after it opens the context.
    """
    server = await start_server(max_text_chars=40)
    refusals: list[InvalidRequestError] = []

    async def call_again_if_refused(call: Callable[..., Awaitable[None]], *text: str) -> None:
        try:
            await call(*text)
        except InvalidRequestError as error:  # of earlier text
            refusals.append(error)
            await call_again_if_refused(call, *text)

    async with TTSClient(server.websocket_url) as client:
        context = await client.open(language="en", max_lead_s=0.0)
        if is_open:
            await context.cut(0)
        for text in ("Hello. ", "b" * 41, "One, ", "c" * 41, "two. "):
            await call_again_if_refused(context.send_text, text)
        await context.cut(0)  # answered after the errors
        await call_again_if_refused(context.send_text, "Three.")
        await call_again_if_refused(context.end)
        assert {each.code for each in refusals} == {ErrorCode.TEXT_TOO_LONG}
        assert [each.dropped for each in refusals] == [(7, 48), (12, 53)]
        events = await _events(context)
        assert isinstance(events[-1], DoneMessage) and events[-1].reason == "complete"
        assert context.text == "Hello. One, two. Three."
        assert _words(events) == ["Hello.", "One,", "two.", "Three."]
        for played_ms in range(0, 2_500, 250):
            assert context.cut_locally(played_ms) == await context.cut(played_ms)


async def test_text_over_a_rate_leaves_its_context(start_server: StartServer) -> None:
    """As text that is too long does; a program that sends nothing more learns it at the end."""
    server = await start_server(api_keys=("key",), key_limits=Quota(chars_per_minute=60))
    async with TTSClient(server.websocket_url, "key") as client:
        context = await client.open(language="en", max_lead_s=0.0)
        for text in ("These are forty characters and a few more. ", "No room. " * 3, "Yes."):
            await context.send_text(text)
        await context.end()
        with pytest.raises(OverloadedError) as refused:
            await _events(context)
        assert (refused.value.code, refused.value.dropped) == (ErrorCode.RATE_LIMITED, (43, 70))
        assert context.text == "These are forty characters and a few more. Yes."
        assert context.cut_locally(10_000) == Cut(context.text, "", is_partial=False)


async def test_text_behind_the_end_of_an_idle_context_is_no_text_of_it(
    small_server: SmallServer,
) -> None:
    """It crossed the end on its way."""
    async with TTSClient(small_server.url) as client:
        context = await _speaking(client, "one")
        await small_server.peers[0].done(context.context_id, "idle")
        await context.send_text(" two")
        await _events(context)
        assert context.cut_locally(1_000) == Cut("one", "", is_partial=False)


async def test_a_lost_socket_fails_its_contexts_and_the_next_works(
    small_server: SmallServer,
) -> None:
    """Pending calls raise `ConnectionLostError`; the cut is still known; `open` reconnects."""
    async with TTSClient(small_server.url) as client:
        context = await _speaking(client, "one two")
        waiting = asyncio.create_task(_events(context))
        small_server.peers[0].websocket.transport.abort()
        with pytest.raises(ConnectionLostError):
            await waiting
        with pytest.raises(ConnectionLostError):
            await context.send_text("three")
        assert await context.cancel(played_ms=10) == Cut("one", " two", is_partial=True)
        assert _words(await _events(client.say("three"))) == ["three"]
    assert len(small_server.peers) == 2


async def test_a_close_code_is_explained(small_server: SmallServer) -> None:
    async with TTSClient(small_server.url) as client:
        context = await _speaking(client, "one")
        peer = small_server.peers[0]
        error = ConnectionLostError("read faster", code=ErrorCode.SLOW_CONSUMER)
        await peer.websocket.send(peer.connection.error(error))
        await peer.websocket.close(4008)
        with pytest.raises(ConnectionLostError, match=r"4008, slow consumer.*read faster"):
            await _events(context)


async def test_a_cancel_is_answered_when_the_socket_dies(small_server: SmallServer) -> None:
    """A cancel without an answer falls back on the words received so far."""
    async with TTSClient(small_server.url) as client:
        context = await _speaking(client, "one two")
        peer = small_server.peers[0]
        peer.websocket.transport.pause_reading()
        cancelling = asyncio.create_task(context.cancel(played_ms=10))
        await asyncio.sleep(0)
        peer.websocket.transport.abort()
        assert (await cancelling).text_spoken == "one"


async def test_a_server_that_does_not_answer_is_given_up(small_server: SmallServer) -> None:
    """A cancel or cut without an answer raises `ConnectionLostError` after a timeout."""
    async with TTSClient(small_server.url, answer_timeout_s=0.05) as client:
        context = await _speaking(client, "one")
        small_server.peers[0].websocket.transport.pause_reading()
        with pytest.raises(ConnectionLostError, match="no answer to cut"):
            await context.cut(10)
        with pytest.raises(ConnectionLostError, match="no answer to cancel"):
            await context.cancel(10)
        small_server.peers[0].websocket.transport.resume_reading()


async def test_a_draining_socket_finishes_and_a_new_one_opens(small_server: SmallServer) -> None:
    async with TTSClient(small_server.url) as client:
        old = await _speaking(client, "one")
        peer = small_server.peers[0]
        await peer.websocket.send(peer.connection.draining(deadline_ms=30_000))
        await old.flush()
        assert isinstance(await anext(old), FlushedMessage)
        assert _words(await _events(client.say("two"))) == ["two"]
        assert len(small_server.peers) == 2
        await old.end()
        await _events(old)
        await peer.websocket.wait_closed()
        assert peer.websocket.protocol.close_code == 1000


async def test_a_broken_protocol_closes_the_socket() -> None:
    """Audio with an unknown handle closes the socket with 1002 and fails its contexts."""
    codes: asyncio.Queue[int | None] = asyncio.Queue()

    async def babble(websocket: WebSocket) -> None:
        await websocket.send(*ServerConnection(LIMITS).ready(session_id="s", model="m"))
        await websocket.recv()
        await websocket.send(AudioMessage(9, 0, 0, bytes(2)).encode())
        await websocket.wait_closed()
        codes.put_nowait(websocket.protocol.close_code)

    async with serving(babble) as url, TTSClient(url) as client:
        context = await client.open()
        with pytest.raises(ConnectionLostError, match="handle 9"):
            await _events(context)
        assert await codes.get() == 1002


async def test_a_silent_server_is_given_up() -> None:
    """A server that accepts and never sends `ready` is a lost connection."""

    async def silent(websocket: WebSocket) -> None:
        await websocket.wait_closed()

    async with serving(silent) as url:
        client = TTSClient(url, connect_timeout_s=0.05)
        with pytest.raises(ConnectionLostError):
            await client.connect()


@pytest.mark.parametrize(
    ("status", "kind", "attempts"),
    [
        (HTTPStatus.UNAUTHORIZED, UnauthorizedError, 1),
        (HTTPStatus.FORBIDDEN, UnauthorizedError, 1),
        (HTTPStatus.NOT_FOUND, InvalidRequestError, 1),
        (HTTPStatus.SERVICE_UNAVAILABLE, OverloadedError, 4),
    ],
)
async def test_a_refused_handshake_has_its_error(
    small_server: SmallServer, status: HTTPStatus, kind: type[VoiceAgentError], attempts: int
) -> None:
    """Only temporary errors are retried."""
    small_server.status, small_server.refusals_left = status, 100
    with pytest.raises(kind):
        await TTSClient(small_server.url).connect()
    assert len(small_server.authorizations) == attempts


@pytest.mark.parametrize(
    ("status", "path", "advice"),
    [
        (HTTPStatus.UNAUTHORIZED, "", "set VOICEAGENT_TTS_API_KEY, or pass `api_key`"),
        (HTTPStatus.NOT_FOUND, "/v1", "try the address without its path"),
        (
            HTTPStatus.NOT_FOUND,
            "",
            "is another program, or a proxy that does not pass on /v1/tts/ws",
        ),
        (HTTPStatus.NOT_FOUND, "/v1/tts/ws", "is another program, or a proxy"),
    ],
)
async def test_a_refused_handshake_says_what_to_try(
    small_server: SmallServer, status: HTTPStatus, path: str, advice: str
) -> None:
    """What helps depends on the address."""
    small_server.status, small_server.refusals_left = status, 1
    with pytest.raises(VoiceAgentError, match=advice):
        await TTSClient(small_server.url + path).connect()


async def test_an_address_with_an_s_too_many_is_told() -> None:
    """A server without TLS does not become one with TLS: one attempt is enough."""
    attempts = 0

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal attempts
        attempts += 1
        await reader.read(4096)  # all, or the system resets the connection
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(refuse, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(InvalidRequestError, match="without TLS has .* begins with ws://"):
            await TTSClient(f"wss://127.0.0.1:{port}").connect()
    assert attempts == 1


async def test_an_address_without_the_s_of_tls_is_told() -> None:
    """A server with TLS answers `ws://` with bytes that are no HTTP."""

    async def alert(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"\x15\x03\x03\x00\x02\x02\x46")  # fatal alert: protocol version
        writer.close()

    async with await asyncio.start_server(alert, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(InvalidRequestError, match="begins with wss://"):
            await TTSClient(f"ws://127.0.0.1:{port}").connect()


async def test_connecting_is_tried_again(small_server: SmallServer) -> None:
    """A server that is busy at first is reached by the next attempt."""
    small_server.status, small_server.refusals_left = HTTPStatus.SERVICE_UNAVAILABLE, 1
    async with TTSClient(small_server.url) as client:
        assert (await client.connect()).model == "numbers"
    assert len(small_server.authorizations) == 2


async def test_errors_show_no_secrets() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        place = f"127.0.0.1:{unused.getsockname()[1]}"
        with pytest.raises(ConnectionLostError) as caught:
            await TTSClient(f"ws://me:k1@{place}/?api_key=k1").connect()
    assert place in caught.value.message
    assert "k1" not in caught.value.message


def test_a_host_without_a_scheme_is_named_with_one() -> None:
    """What looks like a password is not shown."""
    with pytest.raises(InvalidRequestError, match="got 127.0.0.1:8765; try ws://127.0.0.1:8765"):
        TTSClient("127.0.0.1:8765")
    with pytest.raises(InvalidRequestError) as raised:
        TTSClient("me:secret@host:8765")
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize(
    "url",
    [
        "ftp://host", "host:80", "ws://", "", "ws://:80", "ws://host:port", "ws://host:0",
        "ws://host:65536", "ws://[::1", "ws://a..b", f"ws://{'a' * 64}.example",
    ],
)  # fmt: skip
def test_other_urls_are_refused(url: str) -> None:
    with pytest.raises(InvalidRequestError, match="url: expected ws://host"):
        TTSClient(url)


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("ws://host:1", "ws://host:1/v1/tts/ws"),
        ("ws://host:1/", "ws://host:1/v1/tts/ws"),
        ("http://host:1", "ws://host:1/v1/tts/ws"),
        ("https://host", "wss://host/v1/tts/ws"),
        ("wss://host/voice/v1/tts/ws", "wss://host/voice/v1/tts/ws"),
        ("ws://host?a=1", "ws://host/v1/tts/ws?a=1"),
    ],
)
def test_one_rule_completes_an_address(url: str, address: str) -> None:
    """A host alone is a complete address, and `http` means `ws`."""
    assert websocket_address(url) == address


@pytest.mark.parametrize("key", ["secret\n", "secret\r\nX-Other: 1", "sécret", "s\0cret"])
def test_keys_that_no_header_carries_are_refused(key: str) -> None:
    """A key with a line end is refused at construction, and not shown."""
    with pytest.raises(InvalidRequestError, match="api_key: expected printable ASCII") as caught:
        TTSClient("ws://host", key)
    assert "cret" not in caught.value.message


@pytest.mark.parametrize("options", [{"url": None}, {"url": 5}, {"url": b"ws://a"}, {"api_key": 5}])
def test_addresses_and_keys_are_strings(options: dict[str, Any]) -> None:
    """Anything else has the message of the adapters, without the value."""
    (name,) = options
    with pytest.raises(InvalidRequestError, match=f"{name}: expected a string, got ") as caught:
        TTSClient(**({"url": "ws://a"} | options))
    assert caught.value.code is ErrorCode.INVALID_PARAM


async def test_the_socket_sends_at_once_and_does_not_compress(small_server: SmallServer) -> None:
    """TCP_NODELAY is on, and compression is not negotiated."""
    async with TTSClient(small_server.url) as client:
        assert client._socket is not None
        transport: Any = client._socket._transport
        tcp = transport._websocket.transport.get_extra_info("socket")
        assert tcp.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        websocket = small_server.peers[0].websocket
        assert websocket.subprotocol == SUBPROTOCOL
        assert websocket.protocol.extensions == []


async def test_nothing_is_left_after_aclose(small_server: SmallServer) -> None:
    """Closing fails open contexts, leaves no task, and prevents new contexts."""
    before = asyncio.all_tasks()
    client = TTSClient(small_server.url)
    context = await client.open()
    await context.send_text("one")
    await client.aclose()
    await client.aclose()
    with pytest.raises(ConnectionLostError):
        await _events(context)
    with pytest.raises(ConnectionLostError):
        await client.open()
    await small_server.peers[0].websocket.wait_closed()
    names = {task.get_name() for task in asyncio.all_tasks() - before}
    assert not [name for name in names if name.startswith("tts-client")]


@pytest.mark.parametrize("answers", ["nothing", "the handshake"])
async def test_closing_ends_attempts_to_connect(answers: str) -> None:
    """Neither the open nor the close waits for a server that does not answer."""
    arrived = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        arrived.set()
        await reader.read(-1)
        writer.close()

    async def accept(websocket: WebSocket) -> None:
        arrived.set()
        await websocket.wait_closed()

    async with contextlib.AsyncExitStack() as stack:
        if answers == "nothing":
            listener = await stack.enter_async_context(
                await asyncio.start_server(answer, "127.0.0.1", 0)
            )
            url = f"ws://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
        else:
            url = await stack.enter_async_context(serving(accept))
        client = TTSClient(url)
        opening = [asyncio.create_task(client.open()) for _ in range(3)]
        async with asyncio.timeout(5.0):  # one attempt takes 10 s
            await arrived.wait()
            await asyncio.gather(client.aclose(), client.aclose())
        outcomes = await asyncio.gather(*opening, return_exceptions=True)
        assert [str(outcome) for outcome in outcomes] == ["this client has been closed"] * 3
        assert {type(outcome) for outcome in outcomes} == {ConnectionLostError}


async def test_a_cancelled_open_is_no_closed_client(small_server: SmallServer) -> None:
    """A program that gives one open up may try again."""
    client = TTSClient(small_server.url)
    opening = asyncio.create_task(client.open())
    await asyncio.sleep(0)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    assert _words(await _events(client.say("one"))) == ["one"]
    await client.aclose()


async def test_a_cancelled_open_leaves_no_context_at_the_server(small_server: SmallServer) -> None:
    """Its program has nothing to cancel it with: it would take a row until it is idle."""
    async with TTSClient(small_server.url) as client:
        opening = asyncio.create_task(client.open())
        await asyncio.sleep(0)
        opening.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await (await opening).cancel()
        await _events(client.say("one"))  # the server handles messages in order
    opened, ended = (
        [each.context_id for each in small_server.peers[0].received if isinstance(each, kinds)]
        for kinds in (ContextOpen, ContextCancel | ContextEnd)
    )
    assert ended == opened


async def test_ended_contexts_are_not_kept(small_server: SmallServer) -> None:
    """An ended context without references is freed, although its socket stays open."""
    async with TTSClient(small_server.url) as client:
        context = await _spoken(client, "one")
        of_the_test = weakref.ref(context)
        del context
        gc.collect()
        assert of_the_test() is None
