"""`TTS`: this server as a LiveKit Agents text-to-speech plugin.

One socket serves the plugin for its lifetime, with one server context per reply. A barge-in cancels
the context and leaves the socket open for the next reply. An interrupted or failed reply keeps the
words that were heard by then (`adapters.livekit.playout`). A reply that loses its server in
mid-sentence resumes in a new context at the word that broke off; LiveKit itself retries only
replies without audio.

Set `use_tts_aligned_transcript` in the session for a transcript in step with the voice; otherwise
LiveKit guesses when to show each word.
"""

import asyncio
import contextlib
import logging
import time
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, Unpack

import aiohttp
from livekit.agents import (
    DEFAULT_API_CONNECT_OPTIONS,
    NOT_GIVEN,
    APIConnectionError,
    APIConnectOptions,
    APIError,
    APITimeoutError,
    NotGivenOr,
    tokenize,
    tts,
    utils,
)
from yarl import URL

from voiceagent_tts.adapters.livekit.playout import Listener, is_probe
from voiceagent_tts.adapters.livekit.reply import (
    LiveKitReply,
    ReplyOptions,
    SampleRate,
    api_error,
)
from voiceagent_tts.adapters.options import check_positive, check_strings, checked_connection
from voiceagent_tts.adapters.reply import Choices, Mark
from voiceagent_tts.adapters.turn import WholeCharacters
from voiceagent_tts.client import (
    CLOSE_TIMEOUT_S,
    VOICES_PATH,
    ClientSocket,
    http_address,
    public_address,
)
from voiceagent_tts.client.transport import MAX_SERVER_MESSAGE_BYTES, Transport
from voiceagent_tts.core import SAMPLE_RATE_HZ, WordTimestamp
from voiceagent_tts.errors import ErrorCode, InvalidRequestError, VoiceAgentError
from voiceagent_tts.protocol.client_connection import ClientEvent, VoiceOptions
from voiceagent_tts.protocol.messages import SUBPROTOCOL, ErrorMessage, WarningMessage

_ANSWER_TIMEOUT_S = 5.0
_WARM_WAITS_S = (0.0, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
"""Wait before each attempt to connect ahead of a reply; after these, the next reply connects."""

_log = logging.getLogger("livekit.plugins.voiceagent")


@dataclass(frozen=True, slots=True)
class Voice:
    """A voice of the server, and the languages of that voice."""

    id: str
    name: str
    languages: tuple[str, ...]


class TTS(tts.TTS[Literal["words"]]):
    """Speaks through a voiceagent-tts server.

    Events besides those of `livekit.agents.tts.TTS`:
        words: called with `(context_id, words)` when word times of a stream have arrived, ahead of
            playback; `words` are `WordTimestamp`s, positions in samples at 24 kHz of the reply's
            audio and characters of its text. After a reply broke off, words are sent again from
            that point on: they replace the earlier ones.

    Args:
        url: the server, such as `ws://127.0.0.1:8765`; without a path, `/v1/tts/ws`; `http://`
            and `https://` mean `ws://` and `wss://`. None for `VOICEAGENT_TTS_URL`, or else a
            server on this machine.
        api_key: sent as a bearer token; None for `VOICEAGENT_TTS_API_KEY`, if it is set.
        extra_headers: further HTTP headers, such as those that a proxy requires.
        model: name of the model in metrics and traces; None for the server's own. The voice decides
            which model speaks.
        sample_rate: sample rate of the audio in Hz; engines and LiveKit use 24 kHz.
        leading_silence_ms: silence before each reply, for outputs that drop the first audio.
        output_latency_s: delay between LiveKit's output and the listener (the room, the player's
            buffer); words count as heard that much later.
        heartbeat_s: interval of the pings on an idle socket; a socket without an answer within
            half of this is replaced before the next reply needs one.
        http_session: HTTP session to use outside of a LiveKit job.
        **options: how replies are spoken: `voice` (an id of `list_voices`), `language` (a name or
            code; detected without), `instruct`, `speed`, `seed`, `lexicon` (such
            as `{"nginx": "engine x"}`), `markup`, and the other options of `context.open` in
            docs/protocol.md. The server chooses options that are missing or None.

    Raises:
        InvalidRequestError: `url` is not the address of a server, or an option is wrong.
        TypeError: there is no such option.
    """

    def __init__(
        self,
        *,
        url: str | None = None,
        api_key: str | None = None,
        extra_headers: Mapping[str, str] | None = None,
        model: str | None = None,
        sample_rate: SampleRate = SAMPLE_RATE_HZ,
        leading_silence_ms: int = 0,
        output_latency_s: float = 0.0,
        heartbeat_s: float = 15.0,
        http_session: aiohttp.ClientSession | None = None,
        **options: Unpack[VoiceOptions],
    ) -> None:
        super().__init__(
            capabilities=tts.TTSCapabilities(streaming=True, aligned_transcript=True),
            sample_rate=sample_rate,
            num_channels=1,
        )
        chosen = ReplyOptions(_given(options), sample_rate, leading_silence_ms, output_latency_s)
        chosen.check()
        self.choices = Choices(chosen)
        address, self._headers = checked_connection(url, api_key, extra_headers)
        if not isinstance(http_session, aiohttp.ClientSession | None):
            raise InvalidRequestError(
                "http_session: expected an aiohttp.ClientSession, got "
                f"{type(http_session).__name__}",
                code=ErrorCode.INVALID_PARAM,
            )
        check_strings(model=model)
        check_positive(heartbeat_s=heartbeat_s)
        self._label = "livekit.plugins.voiceagent.TTS"  # as users import it, in logs and metrics
        self._url = URL(address)
        self._place = public_address(address)
        self._heartbeat_s = heartbeat_s
        self._http_session = http_session
        self._model = model
        self._server_model = "unknown"
        self._socket: ClientSocket | None = None
        self._sockets: weakref.WeakSet[ClientSocket] = weakref.WeakSet()  # also those that drain
        self._connecting: asyncio.Task[ClientSocket] | None = None
        self._warming: asyncio.Task[None] | None = None
        self._streams: weakref.WeakSet[SynthesizeStream | ChunkedStream] = weakref.WeakSet()
        self._warned: set[str] = set()  # codes of the warnings that were logged
        self._is_closed = False
        weakref.finalize(self, _leave, self._sockets)  # LiveKit closes no TTS that an agent drops

    @property
    def options(self) -> ReplyOptions:
        """The options of future replies."""
        return self.choices.current.settings

    @property
    def model(self) -> str:
        """Name of the model; the server's is "unknown" before the first connection."""
        return self._model or self._server_model

    @property
    def provider(self) -> str:
        """Label of metrics and traces."""
        return "voiceagent-tts"

    @property
    def is_connected(self) -> bool:
        """Whether a reply would find an open socket."""
        return self._socket is not None and self._socket.is_usable

    def update_options(
        self, *, model: NotGivenOr[str | None] = NOT_GIVEN, **options: Unpack[VoiceOptions]
    ) -> None:
        """Change options of future replies; arguments as for the constructor.

        Raises:
            InvalidRequestError: an option is wrong.
            TypeError: there is no such option.
        """
        changed = self.options.changed(**_given(options))
        changed.check()
        if utils.is_given(model):
            check_strings(model=model)
            self._model = model
        self.choices.change(changed)
        if self._socket is not None and self._socket.is_usable:
            self._prepare(self._socket)

    async def list_voices(self) -> list[Voice]:
        """The server's voices, the default first.

        Raises:
            APIError: the server cannot be reached, refuses the request, or is another one.
        """
        url = http_address(str(self._url), VOICES_PATH)
        try:
            timeout = aiohttp.ClientTimeout(total=_ANSWER_TIMEOUT_S)
            request = self._session().get(url, headers=self._headers, timeout=timeout)
            async with request as response:
                response.raise_for_status()
                voices = (await response.json())["voices"]
            return [Voice(v["id"], v["name"], tuple(v["languages"])) for v in voices]
        except (VoiceAgentError, aiohttp.ClientError, TimeoutError) as error:
            raise api_error(error) from error
        except (ValueError, KeyError, TypeError) as error:
            reason = f"{self._place} has no list of voices: {type(error).__name__}"
            raise APIError(reason, retryable=False) from error

    def synthesize(
        self, text: str, *, conn_options: APIConnectOptions = DEFAULT_API_CONNECT_OPTIONS
    ) -> "ChunkedStream":
        """Speak a whole text as fast as the server generates it."""
        stream = ChunkedStream(tts=self, input_text=text, conn_options=conn_options)
        self._streams.add(stream)
        return stream

    def stream(
        self, *, conn_options: APIConnectOptions = DEFAULT_API_CONNECT_OPTIONS
    ) -> "SynthesizeStream":
        """Speak one reply while its text is being written."""
        stream = SynthesizeStream(tts=self, conn_options=conn_options)
        self._streams.add(stream)
        return stream

    def prewarm(self) -> None:
        """Connect in the background, and have the server prepare the voice."""
        if not self._is_closed and (self._warming is None or self._warming.done()):
            self._warming = asyncio.create_task(self._warm(), name="voiceagent-prewarm")

    async def aclose(self) -> None:
        """End all streams, audible ones with an error, and close the socket; idempotent."""
        self._is_closed = True
        await asyncio.gather(*(stream.stop() for stream in list(self._streams)))
        tasks = [task for task in (self._warming, self._connecting) if task is not None]
        await utils.aio.cancel_and_wait(*tasks)
        await asyncio.gather(*(socket.aclose() for socket in list(self._sockets)))

    # The socket that replies share.

    async def acquire(self, timeout_s: float) -> ClientSocket:
        """The open socket, or a new one.

        Waiting replies share one attempt to open it, with the timeout of the first.

        Raises:
            APIError: no socket could be opened within `timeout_s`.
        """
        if self._socket is not None and self._socket.is_usable:
            return self._socket
        deadline = time.monotonic() + timeout_s
        while (left_s := deadline - time.monotonic()) > 0:
            connecting = self._attempt(left_s)
            # Not awaited itself: a reply that is cancelled leaves the socket to the next one.
            await asyncio.wait({connecting}, timeout=left_s)
            if not connecting.done() or connecting.cancelled():
                continue
            try:
                return connecting.result()
            except TimeoutError:
                continue  # the timeout of the reply that started it
            except Exception as error:
                raise api_error(error) from error
        raise APITimeoutError(f"no answer from {self._place} within {timeout_s:g} s")

    def _attempt(self, timeout_s: float) -> asyncio.Task[ClientSocket]:
        if self._is_closed:
            raise _closed()
        connecting = self._connecting
        if connecting is None or connecting.done():
            connecting = asyncio.create_task(self._connect(timeout_s), name="voiceagent-connect")
            connecting.add_done_callback(_retrieve_exception)
            self._connecting = connecting
        return connecting

    async def _connect(self, timeout_s: float) -> ClientSocket:
        session = self._session()
        replace_socket = _Weakly(self._replace, session)
        async with asyncio.timeout(timeout_s):
            transport = await connect_websocket(
                session, str(self._url), self._headers, self._heartbeat_s
            )
            socket = await ClientSocket.over(transport, replace_socket, _Weakly(self._log_event))
        self._warned.clear()
        self._server_model = socket.ready.model
        self._capabilities = replace(
            self._capabilities, aligned_transcript=socket.ready.has_word_times
        )
        self._socket = socket
        self._sockets.add(socket)
        self._prepare(socket)
        return socket

    def _session(self) -> aiohttp.ClientSession:
        try:
            return self._http_session or utils.http_context.http_session()
        except RuntimeError as error:  # LiveKit's own text says what to do
            raise APIConnectionError(str(error), retryable=False) from error

    def _prepare(self, socket: ClientSocket) -> None:
        options = self.options.open_options()
        with contextlib.suppress(VoiceAgentError):  # the next reply reports the error
            socket.send(
                socket.connection.prepare(
                    voice=options.get("voice"),
                    language=options.get("language"),
                    instruct=options.get("instruct"),
                )
            )

    def _replace(self, socket: ClientSocket, session: aiohttp.ClientSession) -> None:
        if socket is self._socket and not session.closed:  # it is once the job has ended
            self.prewarm()

    def _log_event(self, event: ClientEvent) -> None:
        match event:
            case ErrorMessage(context_id=None, code=code, message=message):
                _log.warning("the server refused a message: %s: %s", code, message)
            case WarningMessage(code=code, message=message) if code not in self._warned:
                self._warned.add(code)  # it repeats in every context
                _log.warning("%s: %s", code, message)
            case _:
                pass

    def report_refusal(self, error: APIError) -> None:
        """Report that a server refuses what `update_options` has chosen; what was before stays."""
        _log.warning("the options before stay: %s", error)
        self._emit_safely(
            "error",
            tts.TTSError(timestamp=time.time(), label=self._label, error=error, recoverable=True),
        )

    def emit_words(self, context_id: str, words: list[WordTimestamp]) -> None:
        """Emit the event `words`."""
        self._emit_safely("words", context_id, words)

    def _emit_safely(self, event: Literal["words", "error"], *arguments: object) -> None:
        """Emit an event; a handler that fails ends no reply."""
        try:
            self.emit(event, *arguments)
        except TypeError:  # LiveKit logs the others
            _log.exception("failed to emit event %s", event)

    async def _warm(self) -> None:
        # LiveKit loads its hyphenator with the first word, which would stop that reply for 0.6 s.
        load = asyncio.to_thread(tokenize.basic.hyphenate_word, "word")
        await asyncio.gather(self._connect_ahead(), load)

    async def _connect_ahead(self) -> None:
        for wait_s in _WARM_WAITS_S:
            await asyncio.sleep(wait_s)
            try:
                await self.acquire(_ANSWER_TIMEOUT_S)
            except APIError as error:
                _log.warning("not connected to %s: %s", self._place, error)
                if not error.retryable:
                    return
            else:
                return


class _ReplyStream:
    """Shared by both kinds of stream: they end their reply alike."""

    _plugin: TTS
    _conn_options: APIConnectOptions
    _acquire_time: float
    _connection_reused: bool
    _reply: LiveKitReply | None = None

    async def _connect(self) -> ClientSocket:
        started, self._connection_reused = time.perf_counter(), self._plugin.is_connected
        socket = await self._plugin.acquire(self._conn_options.timeout)
        self._acquire_time = 0.0 if self._connection_reused else time.perf_counter() - started
        return socket

    async def _stop(self, speaking: "asyncio.Task[None]") -> None:
        """End a reply that is audible with an error: LiveKit commits the words that were heard."""
        if self._reply is not None and self._reply.is_audible and not speaking.done():
            self._reply.send(_closed())
            await asyncio.wait({speaking}, timeout=CLOSE_TIMEOUT_S)


class SynthesizeStream(_ReplyStream, tts.SynthesizeStream):
    """Speaks one reply while its text is being written."""

    def __init__(self, *, tts: TTS, conn_options: APIConnectOptions) -> None:
        super().__init__(tts=tts, conn_options=conn_options)
        self._plugin = tts
        self._choice = tts.choices.current
        self._listener = Listener.of_this_task()
        self._is_probe = is_probe(asyncio.current_task())

    async def stop(self) -> None:
        """Close the stream; an audible reply ends with an error."""
        await self._stop(self._task)
        await self.aclose()

    async def _run(self, output_emitter: tts.AudioEmitter) -> None:
        self._reply = reply = LiveKitReply(
            self._plugin.choices,
            self._choice,
            self._conn_options,
            output_emitter,
            self._connect,
            in_segment=True,
            listener=self._listener,
            on_sent=self._mark_started,
            on_refusal=self._plugin.report_refusal,
            on_words=self._emit_words,
        )
        feeding = asyncio.create_task(self._send_input(reply), name="voiceagent-input")
        try:
            await reply.speak()
        except asyncio.CancelledError:
            # LiveKit counts the usage of an interrupted reply, too, if it gets a final frame.
            self.flush()
            await reply.end_audio()
            raise
        finally:
            await utils.aio.cancel_and_wait(feeding)

    def _emit_words(self, context_id: str, words: list[WordTimestamp]) -> None:
        if not self._is_probe:
            self._plugin.emit_words(context_id, words)

    async def _send_input(self, reply: LiveKitReply) -> None:
        characters = WholeCharacters()
        async for item in self._input_ch:
            if isinstance(item, str):
                reply.send(characters.add(item))
            elif not self._input_ch.closed:  # the end of the input comes with a flush, too
                reply.send(Mark.FLUSH)
        reply.send(characters.end())
        reply.send(Mark.END)


class ChunkedStream(_ReplyStream, tts.ChunkedStream):
    """Speaks a whole text as fast as the server generates it."""

    def __init__(self, *, tts: TTS, input_text: str, conn_options: APIConnectOptions) -> None:
        super().__init__(tts=tts, input_text=input_text, conn_options=conn_options)
        self._plugin = tts
        self._choice = tts.choices.current

    async def stop(self) -> None:
        """Close the stream; an audible reply ends with an error."""
        await self._stop(self._synthesize_task)
        await self.aclose()

    async def _run(self, output_emitter: tts.AudioEmitter) -> None:
        self._reply = reply = LiveKitReply(
            self._plugin.choices,
            self._choice,
            self._conn_options,
            output_emitter,
            self._connect,
            own_options=VoiceOptions(max_lead_s=0.0),
            on_refusal=self._plugin.report_refusal,
        )
        reply.send(self._input_text)
        reply.send(Mark.END)
        await reply.speak()


class _AiohttpTransport:
    """A `Transport` by LiveKit's HTTP session, with its proxies and certificates."""

    def __init__(self, websocket: aiohttp.ClientWebSocketResponse) -> None:
        self._websocket = websocket

    @property
    def close_code(self) -> int | None:
        return self._websocket.close_code

    async def receive(self) -> str | bytes:
        message = await self._websocket.receive()
        if message.type not in (aiohttp.WSMsgType.TEXT, aiohttp.WSMsgType.BINARY):
            raise ConnectionError(message.type.name)
        return message.data

    async def send(self, message: str) -> None:
        await self._websocket.send_str(message)

    async def close(self, code: int = 1000) -> None:
        with contextlib.suppress(TimeoutError):  # `aiohttp` drops the connection then
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await self._websocket.close(code=code)


async def connect_websocket(
    session: aiohttp.ClientSession, url: str, headers: Mapping[str, str], heartbeat_s: float
) -> Transport:
    """Connect by `session`; the caller sets the timeout. A pong may take half of `heartbeat_s`.

    Raises:
        aiohttp.ClientError: no connection, or the server refused the handshake.
    """
    websocket = await session.ws_connect(
        url,
        protocols=[SUBPROTOCOL],
        headers=headers,
        heartbeat=heartbeat_s,
        compress=0,  # PCM shrinks by 3 % for 100 times the work
        max_msg_size=MAX_SERVER_MESSAGE_BYTES,
    )
    return _AiohttpTransport(websocket)


class _Weakly:
    """Calls a method, with more arguments, as long as something else holds its object."""

    def __init__(self, method: Callable[..., None], *more: object) -> None:
        self._method, self._more = weakref.WeakMethod(method), more

    def __call__(self, argument: object) -> None:
        if (method := self._method()) is not None:
            method(argument, *self._more)


def _leave(sockets: "weakref.WeakSet[ClientSocket]") -> None:
    for socket in list(sockets):
        socket.leave()


def _given(options: Mapping[str, Any]) -> VoiceOptions:
    return VoiceOptions(**{k: value for k, value in options.items() if utils.is_given(value)})


def _closed() -> APIConnectionError:
    return APIConnectionError("this TTS has been closed", retryable=False)


def _retrieve_exception(task: "asyncio.Task[ClientSocket]") -> None:
    """Retrieve the exception, so that asyncio does not report a failure that no reply awaits."""
    if not task.cancelled():
        task.exception()
