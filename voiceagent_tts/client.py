"""The asyncio client: one socket, many contexts, each an async iterator of audio and words.

    async with TTSClient("ws://127.0.0.1:8765") as client:
        async with await client.open(voice="en") as context:
            await context.send_text("Hello there.")
            await context.end()
            async for event in context:
                match event:
                    case ClientAudio(pcm=pcm): play(pcm)
                    case WordTimestamp(word=word): print(word.text)

A context's events wait in memory until they are taken. Paced audio (the default) comes about as
fast as it is played; at the most, a context that nobody reads holds the server's `max_audio_s` of
audio. This module knows no engine, no server and no agent framework.
"""

import asyncio
import random
import time
from collections import defaultdict, deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from types import TracebackType
from typing import Any, Self, Unpack
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

from websockets.asyncio.client import ClientConnection as WebSocket
from websockets.asyncio.client import connect
from websockets.exceptions import (
    ConnectionClosed,
    InvalidHandshake,
    InvalidStatus,
    InvalidURI,
)
from websockets.typing import Subprotocol

from voiceagent_tts.core import (
    SAMPLE_RATE_HZ,
    Cut,
    PlayoutClock,
    WordTimestamp,
    ms_to_samples,
    samples_to_ms,
)
from voiceagent_tts.errors import (
    ConnectionLostError,
    ErrorCode,
    InvalidRequestError,
    OverloadedError,
    UnauthorizedError,
    VoiceAgentError,
)
from voiceagent_tts.protocol.client_connection import (
    ClientAudio,
    ClientConnection,
    ClientEvent,
    ContextRecord,
)
from voiceagent_tts.protocol.messages import (
    CLOSE_CODES,
    SUBPROTOCOL,
    CancelledMessage,
    CutMessage,
    DoneMessage,
    DrainingMessage,
    ErrorMessage,
    FlushedMessage,
    OpenOptions,
    PongMessage,
    ReadyMessage,
    WordsMessage,
)
from voiceagent_tts.protocol.refusals import ProtocolError
from voiceagent_tts.text.cut import cut_text, keep_inside

DEFAULT_PATH = "/v1/tts/ws"
RETRY_WAITS_S = (0.1, 0.3, 1.0)
"""Between attempts to connect; each is varied by half, so that clients do not return in step."""
CLOSE_TIMEOUT_S = 2.0
MAX_SERVER_MESSAGE_BYTES = 8 * 2**20
"""`done` repeats all words of a context: an hour of speech is about 1 MB."""

Event = ClientAudio | WordTimestamp | FlushedMessage | CancelledMessage | DoneMessage


class TTSClient:
    """A client of one server; connects on first use, and again after a lost socket.

    Args:
        url: `ws://` or `wss://`; without a path, `/v1/tts/ws`.
        api_key: sent as a bearer token.
        connect_timeout_s: for one attempt to connect, up to the server's `ready`.
        answer_timeout_s: for the answer to `cancel` and `cut`.

    Raises:
        InvalidRequestError: `url` is no WebSocket URL, or `api_key` cannot be sent in a header.
    """

    def __init__(
        self,
        url: str,
        api_key: str | None = None,
        *,
        connect_timeout_s: float = 10.0,
        answer_timeout_s: float = 5.0,
    ) -> None:
        self._url = checked_url(url)
        self._place = urlsplit(url).netloc.rpartition("@")[2]  # for messages, which show no secrets
        self._headers = authorization(api_key)
        self._connect_timeout_s = connect_timeout_s
        self._answer_timeout_s = answer_timeout_s
        self._socket: _Socket | None = None
        self._sockets: set[_Socket] = set()  # the current one, and those that drain
        self._connecting = asyncio.Lock()
        self._is_closed = False

    async def __aenter__(self) -> Self:
        await self.connect()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def connect(self) -> ReadyMessage:
        """Make sure that there is a socket; four attempts with growing waits.

        Returns:
            What the server said of itself.

        Raises:
            UnauthorizedError: the server refused the key.
            ConnectionLostError: the server cannot be reached.
            OverloadedError: the server takes nobody now.
            VoiceAgentError: it speaks another version (`version_mismatch`), or no `tts.v1` at all.
        """
        return (await self._usable_socket()).ready

    async def open(
        self,
        *,
        context_id: str | None = None,
        metadata: dict[str, Any] | None = None,
        **options: Unpack[OpenOptions],
    ) -> "ClientContext":
        """Open a context; does not wait for the server's answer, which may be an error later.

        Args:
            context_id: a new id, or None to make one up.
            metadata: for the server's logs, at most 1 KiB of JSON.
            options: the fields of `protocol.messages.ContextDefaults`.

        Raises:
            InvalidRequestError: an option is wrong, or the id is in use.
            VoiceAgentError: as for `connect`.
        """
        socket = await self._usable_socket()
        return await socket.open(context_id or uuid4().hex, metadata, options)

    async def say(self, text: str, **options: Unpack[OpenOptions]) -> AsyncGenerator[Event, None]:
        """Speak a whole text; closing the iterator early cancels the context.

        Raises:
            VoiceAgentError: as for `open` and for iterating a context.
        """
        async with await self.open(**options) as context:
            await context.send_text(text)
            await context.end()
            async for event in context:
                yield event

    async def prepare(
        self, *, voice: str | None = None, language: str | None = None, instruct: str | None = None
    ) -> None:
        """Connect, and let the server do ahead what a context with this voice needs.

        Raises:
            VoiceAgentError: as for `connect`.
        """
        socket = await self._usable_socket()
        await socket.send(
            socket.connection.prepare(voice=voice, language=language, instruct=instruct)
        )

    async def aclose(self) -> None:
        """Close the sockets, which cancels their contexts; idempotent."""
        self._is_closed = True
        async with self._connecting:
            await asyncio.gather(*(socket.aclose() for socket in self._sockets))

    async def _usable_socket(self) -> "_Socket":
        async with self._connecting:
            if self._is_closed:
                raise ConnectionLostError("this client has been closed")
            if self._socket is None or not self._socket.is_usable:
                self._socket = await self._connect()
                self._sockets.add(self._socket)
                self._socket.start(on_end=self._sockets.discard)
            return self._socket

    async def _connect(self) -> "_Socket":
        for wait_s in RETRY_WAITS_S:
            try:
                return await self._connect_once()
            except (ConnectionLostError, OverloadedError):
                await asyncio.sleep(wait_s * random.uniform(0.5, 1.5))
        return await self._connect_once()

    async def _connect_once(self) -> "_Socket":
        try:
            async with asyncio.timeout(self._connect_timeout_s):
                websocket = await connect(
                    self._url,
                    subprotocols=[Subprotocol(SUBPROTOCOL)],
                    additional_headers=self._headers,
                    compression=None,  # PCM shrinks by 3 % for 100 times the work
                    open_timeout=None,  # the handshake above it is what has to be in time
                    close_timeout=CLOSE_TIMEOUT_S,
                    max_size=MAX_SERVER_MESSAGE_BYTES,
                )
                return await _shake_hands(websocket, self._answer_timeout_s)
        except InvalidStatus as error:
            raise _rejection(error.response.status_code) from error
        except (InvalidHandshake, InvalidURI) as error:
            sentence = f"{self._place} is no {SUBPROTOCOL} server: {type(error).__name__}"
            raise InvalidRequestError(sentence, code=ErrorCode.NOT_FOUND) from error
        except (OSError, TimeoutError, ConnectionClosed) as error:
            reason = str(error) or type(error).__name__
            raise ConnectionLostError(f"no connection to {self._place}: {reason}") from error


class ClientContext:
    """One turn: text goes in; iterate to get its events, `DoneMessage` last.

    Iterating raises what went wrong once all events before it have been taken: the server's error,
    or `ConnectionLostError`. After `cancel` no more audio or words are given. As an async context
    manager it cancels itself where it is left early.
    """

    def __init__(self, socket: "_Socket", record: ContextRecord) -> None:
        self._socket = socket
        self._connection = socket.connection
        self._record = record
        self._events: asyncio.Queue[Event | VoiceAgentError | None] = asyncio.Queue()
        self._words_given = 0
        self._clock = PlayoutClock()
        self._is_stopped = False  # by us: nobody wants the rest
        self._is_over = asyncio.Event()  # nothing but `done` may come
        self._cancelled: Cut | None = None
        self._error: VoiceAgentError | None = None

    @property
    def context_id(self) -> str:
        """The id that the server knows this context by."""
        return self._record.context_id

    @property
    def text(self) -> str:
        """All text sent so far."""
        return self._record.text

    async def send_text(self, text: str) -> None:
        """Append `text`, verbatim.

        Raises:
            InvalidRequestError: the context takes no more text, or `text` is no valid Unicode.
            VoiceAgentError: the context has failed.
        """
        self._raise_if_failed()
        await self._socket.send(self._connection.text(self.context_id, text))

    async def flush(self) -> int:
        """Speak what is there, and go on taking text.

        Returns:
            The `flush_id` of the `FlushedMessage` to come.

        Raises:
            VoiceAgentError: as for `send_text`.
        """
        self._raise_if_failed()
        await self._socket.send(self._connection.flush(self.context_id))
        return self._record.flushes

    async def end(self) -> None:
        """No more text is coming.

        Raises:
            VoiceAgentError: as for `send_text`.
        """
        self._raise_if_failed()
        await self._socket.send(self._connection.end(self.context_id))

    async def cancel(self, played_ms: int | None = None) -> Cut:
        """Stop the context, wait until the server has, and get what was heard.

        Args:
            played_ms: how much of this context left the speaker, gaps excluded; None to go by a
                clock that assumes that audio plays as it comes.

        Raises:
            InvalidRequestError: `played_ms` is wrong, or the context ended too long ago.
            ConnectionLostError: the server does not answer in time.
        """
        if not self._is_over.is_set():
            await self._stop(played_ms)
            async with _answering("cancel", self._socket.answer_timeout_s):
                await self._is_over.wait()
        if self._cancelled is not None:
            return self._cancelled
        return await self.cut(self._played_ms() if played_ms is None else played_ms)

    async def cut(self, played_ms: int) -> Cut:
        """What had been heard when `played_ms` had left the speaker, also after the end.

        The server knows best; where the socket is lost, the words that came decide.

        Raises:
            InvalidRequestError: `played_ms` is wrong, or the context ended too long ago.
            ConnectionLostError: the server does not answer in time.
        """
        async with _answering("cut", self._socket.answer_timeout_s):
            answer = await self._socket.ask_cut(self.context_id, played_ms)
        return self.cut_locally(played_ms) if answer is None else answer

    def cut_locally(self, played_ms: int) -> Cut:
        """What the words that have come say was heard; as good as `cut` once all have."""
        done = self._record.done
        is_final = done is not None and done.reason in ("complete", "idle")
        played_samples = min(ms_to_samples(played_ms), self._clock.sent_samples)
        words = self._record.words
        if is_final:
            words = keep_inside(words, self._clock.sent_samples)
        return cut_text(self.text, words, played_samples, is_final=is_final)

    def __aiter__(self) -> AsyncIterator[Event]:
        return self

    async def __anext__(self) -> Event:
        event = await self._events.get()
        if event is None or isinstance(event, VoiceAgentError):
            self._events.put_nowait(event)  # whoever asks again gets the same answer
            raise event or StopAsyncIteration
        return event

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if not self._is_over.is_set():
            await self._stop(None)

    async def _stop(self, played_ms: int | None) -> None:
        message = self._connection.cancel(self.context_id, played_ms)
        self._is_stopped = True
        while not self._events.empty():
            self._events.get_nowait()
        with suppress(ConnectionLostError):  # then it is over already
            await self._socket.send(message)

    def _raise_if_failed(self) -> None:
        if self._error is not None:
            raise self._error

    def _played_ms(self) -> int:
        return samples_to_ms(self._clock.played_samples(time.monotonic()))

    def take(self, event: ClientEvent) -> None:
        """An event of this context has come."""
        match event:
            case ClientAudio():
                received, rate_hz = self._record.samples_received, self._record.audio.sample_rate
                end_sample = received * SAMPLE_RATE_HZ // rate_hz
                self._clock.send(end_sample - self._clock.sent_samples, time.monotonic())
                self._give(event)
            case WordsMessage():
                for word in self._record.words[self._words_given :]:
                    self._give(word)
                self._words_given = len(self._record.words)
            case FlushedMessage():
                self._give(event)
            case CancelledMessage():
                self._cancelled = event.to_cut()
                self._events.put_nowait(event)
                self._is_over.set()
            case DoneMessage():
                self._events.put_nowait(event)
                self._events.put_nowait(self._error)
                self._is_over.set()
            case ErrorMessage():
                self._error = self._error or event.to_error()
            case _:
                pass

    def _give(self, event: Event) -> None:
        if not self._is_stopped:
            self._events.put_nowait(event)

    def fail(self, error: ConnectionLostError) -> None:
        """The socket is lost before the end."""
        self._error = error
        self._events.put_nowait(error)
        self._is_over.set()


class _Socket:
    """One open socket: the task that reads it, and the contexts that live on it."""

    def __init__(
        self,
        websocket: WebSocket,
        connection: ClientConnection,
        ready: ReadyMessage,
        answer_timeout_s: float,
    ) -> None:
        self.connection = connection
        self.ready = ready
        self.answer_timeout_s = answer_timeout_s
        self._websocket = websocket
        self._contexts: dict[str, ClientContext] = {}
        self._cuts: defaultdict[str, deque[asyncio.Future[Cut]]] = defaultdict(deque)
        self._refusal: VoiceAgentError | None = None  # the last error that names no context
        self._lost: ConnectionLostError | None = None
        self._reader: asyncio.Task[None] | None = None

    @property
    def is_usable(self) -> bool:
        """Whether contexts can be opened here."""
        return self._lost is None and not self.connection.is_draining

    def start(self, on_end: Callable[["_Socket"], None]) -> None:
        """Read until the socket closes; then `on_end` is called."""
        self._reader = asyncio.create_task(self._read(), name="tts-client-reader")
        self._reader.add_done_callback(lambda _: on_end(self))

    async def open(
        self, context_id: str, metadata: dict[str, Any] | None, options: OpenOptions
    ) -> ClientContext:
        """Open a context here."""
        message = self.connection.open(context_id, metadata=metadata, **options)
        context = ClientContext(self, self.connection.record(context_id))
        self._contexts[context_id] = context
        await self.send(message)
        return context

    async def send(self, message: str) -> None:
        """Send a message.

        Raises:
            ConnectionLostError: the socket is closed.
        """
        try:
            await self._websocket.send(message)
        except ConnectionClosed as error:
            raise self._lost or self._loss() from error

    async def ask_cut(self, context_id: str, played_ms: int) -> Cut | None:
        """The server's cut; None where the socket is lost."""
        message = self.connection.cut(context_id, played_ms)
        answer: asyncio.Future[Cut] = asyncio.get_running_loop().create_future()
        self._cuts[context_id].append(answer)
        try:
            await self.send(message)
            return await answer
        except ConnectionLostError:
            return None
        finally:
            answer.cancel()

    async def aclose(self) -> None:
        """Close, and wait until the reader has ended."""
        await self._websocket.close()
        if self._reader is not None:
            await self._reader

    async def _read(self) -> None:
        try:
            code = await self._read_to_the_end()
            await self._websocket.close(code)
        finally:
            self._lose(self._loss())

    async def _read_to_the_end(self) -> int:
        """Returns the code to close with."""
        try:
            async for data in self._websocket:
                self._take(self.connection.receive(data))
                if self.connection.is_draining and not self._contexts:
                    break
        except VoiceAgentError as error:
            self._refusal = error
            return 1002
        except ConnectionClosed:
            pass
        return 1000

    def _take(self, event: ClientEvent | None) -> None:
        match event:
            case ErrorMessage(context_id=None):
                self._refusal = event.to_error()
            case ErrorMessage(code=ErrorCode.CONTEXT_NOT_FOUND, context_id=str(context_id)):
                self._answer_cut(context_id, event.to_error())
            case CutMessage():
                self._answer_cut(event.context_id, event.to_cut())
            case ReadyMessage() | DrainingMessage() | PongMessage() | None:
                pass
            case _:
                context = self._contexts.get(event.context_id or "")
                if context is not None:
                    context.take(event)
                if isinstance(event, DoneMessage):
                    del self._contexts[event.context_id]

    def _answer_cut(self, context_id: str, answer: Cut | VoiceAgentError) -> None:
        waiting = self._cuts[context_id]
        future = waiting.popleft() if waiting else None
        if not waiting:
            del self._cuts[context_id]
        if future is None or future.done():
            return
        if isinstance(answer, Cut):
            future.set_result(answer)
        else:
            future.set_exception(answer)

    def _loss(self) -> ConnectionLostError:
        code = self._websocket.protocol.close_code
        meaning = CLOSE_CODES.get(code or 0, "the connection broke")
        cause = f": {self._refusal.message}" if self._refusal else ""
        return ConnectionLostError(f"the socket closed ({code}, {meaning}){cause}")

    def _lose(self, error: ConnectionLostError) -> None:
        self._lost = error
        for context in self._contexts.values():
            context.fail(error)
        self._contexts.clear()
        for answer in (future for waiting in self._cuts.values() for future in waiting):
            if not answer.done():
                answer.set_exception(error)
        self._cuts.clear()


async def _shake_hands(websocket: WebSocket, answer_timeout_s: float) -> _Socket:
    """Wait for the server's `ready`."""
    connection = ClientConnection()
    try:
        match connection.receive(await websocket.recv()):
            case ReadyMessage() as ready:
                return _Socket(websocket, connection, ready, answer_timeout_s)
            case ErrorMessage() as message:
                raise message.to_error()
            case _:
                raise ProtocolError("expected ready as the first message")
    except BaseException:
        await websocket.close()
        raise


@asynccontextmanager
async def _answering(what: str, timeout_s: float) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(timeout_s):
            yield
    except TimeoutError:
        raise ConnectionLostError(f"no answer to {what} within {timeout_s} s") from None


def checked_url(url: str) -> str:
    """`url` with a path: `/v1/tts/ws` where it has none.

    Raises:
        InvalidRequestError: it is no address of a WebSocket.
    """
    expected = "url: expected ws://host or wss://host"
    try:
        parts = urlsplit(url)
        host = (parts.hostname or "").encode("idna")
        port = parts.port
    except ValueError as error:  # of a host or a port; its text may show a password
        raise InvalidRequestError(
            f"{expected}; got a host or a port that there cannot be", code=ErrorCode.INVALID_PARAM
        ) from error
    if parts.scheme not in ("ws", "wss") or not host or port == 0:
        raise InvalidRequestError(
            f"{expected}; got {parts.scheme or 'no'} scheme, host {parts.hostname}, port {port}",
            code=ErrorCode.INVALID_PARAM,
        )
    return urlunsplit(parts._replace(path=parts.path.rstrip("/") or DEFAULT_PATH))


def authorization(api_key: str | None) -> dict[str, str]:
    """The header that carries an API key; none where there is no key.

    Raises:
        InvalidRequestError: the key has characters that no header can carry, such as the end of
            the line that it was read from.
    """
    if api_key is None:
        return {}
    if not (api_key.isascii() and api_key.isprintable()):
        raise InvalidRequestError(
            "api_key: expected printable ASCII characters on one line; got others",
            code=ErrorCode.INVALID_PARAM,
        )
    return {"Authorization": f"Bearer {api_key}"}


def _rejection(status: int) -> VoiceAgentError:
    sentence = f"the server answered the handshake with HTTP {status}"
    match status:
        case 401:
            return UnauthorizedError(f"{sentence}: there was no API key, or a wrong one")
        case 403:
            return UnauthorizedError(sentence, code=ErrorCode.FORBIDDEN)
        case 429:
            return OverloadedError(sentence, code=ErrorCode.RATE_LIMITED)
        case _ if status >= 500:
            return OverloadedError(sentence)
        case _:
            return InvalidRequestError(sentence, code=ErrorCode.NOT_FOUND)
