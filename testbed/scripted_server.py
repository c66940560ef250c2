"""A server that answers by a script, to measure the measurement: its true times are known.

It speaks `tts.v1` and Cartesia's protocol over WebSockets, and OpenAI's speech API
over HTTP. Every utterance gets the same audio and words, at the same times after its first text.
It knows no engine.
"""

import asyncio
import contextlib
import json
from base64 import b64encode
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
from aiohttp import web
from websockets.asyncio.server import ServerConnection as WebSocket
from websockets.asyncio.server import serve
from websockets.exceptions import ConnectionClosed
from websockets.typing import Subprotocol

from testbed.openai_server import openai_server
from voiceagent_tts.core import (
    BYTES_PER_SAMPLE,
    MAX_MESSAGE_PCM_BYTES,
    SAMPLE_RATE_HZ,
    DoneReason,
    Word,
    WordTimestamp,
    ms_to_samples,
)
from voiceagent_tts.errors import EngineError, ErrorCode, VoiceAgentError
from voiceagent_tts.protocol.messages import (
    SUBPROTOCOL,
    AudioMessage,
    CancelledMessage,
    ContextCancel,
    ContextEnd,
    ContextOpen,
    ContextOpened,
    ContextText,
    DoneMessage,
    DrainingMessage,
    ErrorMessage,
    ReadyMessage,
    SessionLimits,
    WordList,
    WordsMessage,
    WordsMovedMessage,
    parse_client_message,
)
from voiceagent_tts.protocol.refusals import context_refusal
from voiceagent_tts.text.reader import Passage, Reader
from voiceagent_tts.text.words import split_words

_ESTIMATED = 0.3
"""Confidence of words whose true times are known later."""
_TONE_HZ = 200.0
_LEVEL = 8_000
_LIMITS = SessionLimits(max_text_chars=8_192, context_idle_s=120, max_audio_s=600, max_lead_s=8)


@dataclass(frozen=True, slots=True)
class Step:
    """What the server sends, and when.

    Attributes:
        at_s: seconds after the first text of the utterance.
        silent_samples: silence at the start of its audio.
        samples: audible samples after that.
        words_ms: starts of the words that are sent before the audio, in milliseconds.
    """

    at_s: float
    silent_samples: int = 0
    samples: int = 0
    words_ms: tuple[int, ...] = ()

    @property
    def pcm(self) -> bytes:
        """Its audio: silence, then a tone whose first sample is audible."""
        phase = 2 * np.pi * _TONE_HZ / SAMPLE_RATE_HZ * np.arange(self.samples)
        tone = (_LEVEL * np.cos(phase)).astype("<i2")
        return bytes(2 * self.silent_samples) + tone.tobytes()


@dataclass(frozen=True, slots=True)
class Script:
    """An utterance.

    Attributes:
        steps: what is sent, in order.
        end_s: when the end is sent, after the first text; in `tts.v1` not before the text's own
            end, unless it is a failure or a limit.
        idles: whether the end comes without that of the text, as when a client sends none for long
            (`tts.v1` only).
        cancel_s: seconds from a cancel to its confirmation; audio goes on until then.
        failure: the error with which it ends (`tts.v1` only); None for a whole utterance.
        true_ms: starts of the words that are known at the end (`tts.v1` only); none if those that
            were sent are right.
        moved_after_s: seconds from each sending of words until they are known, and sent; None for
            the end alone.
        closed_s: seconds after the first text from which it accepts no more, as at a limit of its
            audio (`tts.v1` only); None for never.
    """

    steps: tuple[Step, ...]
    end_s: float
    cancel_s: float = 0.0
    failure: VoiceAgentError | None = None
    true_ms: tuple[int, ...] = ()
    moved_after_s: float | None = None
    closed_s: float | None = None
    idles: bool = False

    @property
    def needs_end(self) -> bool:
        """Whether a client ends it."""
        return self.failure is None and self.closed_s is None and not self.idles


def whole(words: int, *, word_ms: int = 300, end_s: float = 0.0) -> Script:
    """An utterance of so many words, sent at once."""
    starts_ms = tuple(index * word_ms for index in range(words))
    samples = ms_to_samples(words * word_ms)
    return Script((Step(0.0, samples=samples, words_ms=starts_ms),), end_s=end_s)


LOSES_ITS_TEXT = Script(
    (Step(0.0, samples=SAMPLE_RATE_HZ, words_ms=(0,)),),
    end_s=0.2,
    failure=EngineError("the model lost the text", code=ErrorCode.TEXT_LOST, spoken_chars=0),
)
"""A model makes noise in place of its text; tests/e2e/test_lost_text.py has a real one."""


@dataclass(slots=True)
class Played:
    """What the server did for one utterance, by its own clock, which is `time.monotonic()`.

    Attributes:
        began: when its first text had arrived.
        sent: when each piece of audio was sent.
        ended: when the end was sent.
    """

    began: float
    sent: list[float] = field(default_factory=list[float])
    ended: float = 0.0


class _Voice(Protocol):
    """Writes one utterance in the words of a protocol."""

    async def audio(self, pcm: bytes) -> None: ...

    async def words(self, starts_ms: tuple[int, ...]) -> None: ...

    async def text_ended(self) -> None: ...

    async def cancelled(self) -> None: ...

    async def fail(self, error: VoiceAgentError) -> None: ...

    async def end(self) -> None: ...


class _Player:
    """Plays the script of one utterance."""

    def __init__(self, script: Script, voice: _Voice) -> None:
        self.script, self._voice = script, voice
        self.played = Played(_now())
        self.task = asyncio.create_task(self._play())

    async def _play(self) -> None:
        played = self.played
        for step in self.script.steps:
            pcm = step.pcm  # it takes time to make
            await _until(played.began + step.at_s)
            if step.words_ms:
                await self._voice.words(step.words_ms)
            if pcm:
                played.sent.append(_now())
                await self._voice.audio(pcm)
        await _until(played.began + self.script.end_s)
        if self.script.needs_end:
            await self._voice.text_ended()
        played.ended = _now()
        if self.script.failure is None:
            await self._voice.end()
        else:
            await self._voice.fail(self.script.failure)

    @property
    def accepts_text(self) -> bool:
        """Whether more text is spoken."""
        closed_s = self.script.closed_s
        return closed_s is None or _now() < self.played.began + closed_s

    async def cancel(self) -> None:
        """Go on for as long as the script says, then confirm."""
        await asyncio.sleep(self.script.cancel_s)
        if not self.task.done():
            self.task.cancel()
            await self._voice.cancelled()

    async def finished(self) -> None:
        await self.task


def _now() -> float:
    return asyncio.get_running_loop().time()


async def _until(at: float) -> None:
    await asyncio.sleep(max(0.0, at - _now()))


class _TtsV1Voice:
    def __init__(self, send: Callable[[Any], Awaitable[None]], opened: ContextOpen, handle: int):
        self._send, self.opened, self._handle = send, opened, handle
        self._context_id = opened.context_id
        self._seq = self._sent = self._chars = 0
        self.text = ""
        """What has arrived; its words are reported."""
        self.has_end = asyncio.Event()
        self.player: _Player | None = None
        self._stamps: list[WordTimestamp] = []

    @property
    def script(self) -> Script:
        assert self.player is not None
        return self.player.script

    async def audio(self, pcm: bytes) -> None:
        for start in range(0, len(pcm), MAX_MESSAGE_PCM_BYTES):
            piece = pcm[start : start + MAX_MESSAGE_PCM_BYTES]
            message = AudioMessage(self._handle, self._seq, self._sent, piece)
            self._seq, self._sent = self._seq + 1, self._sent + len(piece) // BYTES_PER_SAMPLE
            await self._send(message.encode())

    async def words(self, starts_ms: tuple[int, ...]) -> None:
        stamps: list[WordTimestamp] = []
        words = words_in(self.text, has_markup=self.opened.markup)
        left = [word for word in words if word.char_start >= self._chars]
        for word, start_ms in zip(left, starts_ms, strict=False):  # a rest has fewer words
            self._chars = word.char_end
            confidence = _ESTIMATED if self.script.true_ms else 1.0
            stamps.append(WordTimestamp(word, ms_to_samples(start_ms), None, confidence))
        self._stamps += stamps
        await self._send(WordsMessage.of(stamps, context_id=self._context_id).encode())
        if (wait_s := self.script.moved_after_s) is not None:
            await asyncio.sleep(wait_s)
            moved = WordsMovedMessage.of(self._final, context_id=self._context_id)
            await self._send(moved.encode())

    @property
    def _final(self) -> list[WordTimestamp]:
        return [
            replace(stamp, start_sample=ms_to_samples(start_ms))
            for stamp, start_ms in zip(self._stamps, self.script.true_ms, strict=False)
        ]

    async def text_ended(self) -> None:
        await self.has_end.wait()

    async def cancelled(self) -> None:
        await self._send(
            CancelledMessage(
                context_id=self._context_id, audio_sent_ms=0, text_spoken="", text_remaining="",
                partial=False, basis="clock",
            ).encode()
        )  # fmt: skip
        await self.end("cancelled")

    async def fail(self, error: VoiceAgentError) -> None:
        await self._send(ErrorMessage.of(error, self._context_id).encode())
        await self.end("error")

    async def end(self, reason: DoneReason | None = None) -> None:
        is_limited = self.script.closed_s is not None
        usual: DoneReason = "limit" if is_limited else "idle" if self.script.idles else "complete"
        await self._send(
            DoneMessage(
                context_id=self._context_id,
                reason=reason or usual,
                audio_ms=0,
                chars=self._chars if is_limited else len(self.text),
                ttfa_ms=None,
                gen_ms=0,
                words_final=WordList.of(self._final) if self.script.true_ms else None,
            ).encode()
        )


def words_in(text: str, *, has_markup: bool = False) -> list[Word]:
    """The words that a server reports for a text; an element of markup is one."""
    parts = [*(reader := Reader(has_markup=has_markup)).push(text), *reader.flush()]
    masked = "".join(part.text for part in parts if isinstance(part, Passage))
    words = split_words(masked)
    return [replace(each, text=text[each.char_start : each.char_end]) for each in words]


class _CartesiaVoice:
    """Cartesia's protocol."""

    def __init__(self, send: Callable[[Any], Awaitable[None]], context_id: str) -> None:
        self._send, self._context_id = send, context_id

    async def audio(self, pcm: bytes) -> None:
        await self._say("chunk", data=b64encode(pcm).decode())

    async def words(self, starts_ms: tuple[int, ...]) -> None:
        starts_s = [start_ms / 1000 for start_ms in starts_ms]
        times = {"words": ["w"] * len(starts_s), "start": starts_s, "end": starts_s}
        await self._say("timestamps", word_timestamps=times)

    async def text_ended(self) -> None:
        """It ends with its first message."""

    async def cancelled(self) -> None:
        await self.end()

    async def fail(self, error: VoiceAgentError) -> None:
        raise error

    async def end(self) -> None:
        await self._say("done")

    async def _say(self, kind: str, **fields: Any) -> None:
        await self._send(json.dumps({"type": kind, "context_id": self._context_id, **fields}))


class ScriptedServer:
    """The server, and its addresses while it runs.

    Args:
        script: the script of all utterances but the first ones.
        first: the scripts of the first utterances.

    Attributes:
        script: the script of the utterances that begin from now on.
        addresses: `ws`, `cartesia` and `http` -> address for a benchmark's target.
        played: what it did, by the first text of the utterance; the last one of equal texts.
        opened: how each context of `tts.v1` was opened.
        texts: its text, in the same order.
    """

    def __init__(self, script: Script, first: Iterable[Script] = ()) -> None:
        self.script = script
        self._first = deque(first)
        self.played: dict[str, Played] = {}
        self.addresses: dict[str, str] = {}
        self._voices: list[_TtsV1Voice] = []
        self._playing: set[asyncio.Task[None]] = set()
        self._websockets: set[WebSocket] = set()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator["ScriptedServer"]:
        sockets = serve(
            self._converse, "127.0.0.1", 0, compression=None, close_timeout=1,
            subprotocols=[Subprotocol(SUBPROTOCOL)], select_subprotocol=_any_subprotocol,
        )  # fmt: skip
        async with openai_server(audio_speech=self._answer) as http, sockets as websockets:
            host = f"127.0.0.1:{websockets.sockets[0].getsockname()[1]}"
            self.addresses = {
                "ws": f"ws://{host}/v1/tts/ws",
                "cartesia": f"cartesia+ws://{host}/tts/websocket",
                "http": http.removesuffix("/v1"),
            }
            try:
                yield self
            finally:
                for task in self._playing:
                    task.cancel()
                await asyncio.gather(*self._playing, return_exceptions=True)

    @property
    def opened(self) -> list[ContextOpen]:
        return [voice.opened for voice in self._voices]

    @property
    def texts(self) -> list[str]:
        return [voice.text for voice in self._voices]

    async def drop_connections(self) -> None:
        websockets, self._websockets = self._websockets, set()
        for websocket in websockets:
            await websocket.close()

    async def drain(self) -> None:
        for websocket in self._websockets:
            await websocket.send(DrainingMessage(deadline_ms=30_000).encode())

    async def _converse(self, websocket: WebSocket) -> None:
        assert websocket.request is not None
        path = websocket.request.path
        self._websockets.add(websocket)
        with contextlib.suppress(ConnectionClosed):
            if path == "/v1/tts/ws":
                await self._speak_tts_v1(websocket)
            else:
                await self._speak_cartesia(websocket)

    async def _speak_tts_v1(self, websocket: WebSocket) -> None:
        await websocket.send(
            ReadyMessage(session_id="s", model="scripted", limits=_LIMITS).encode()
        )
        voices: dict[str, _TtsV1Voice] = {}
        async with asyncio.TaskGroup() as cancelling:
            async for data in websocket:
                assert isinstance(data, str)
                match message := parse_client_message(data):
                    case ContextOpen(context_id=context_id):
                        voice = _TtsV1Voice(websocket.send, message, len(voices))
                        voices[context_id] = voice
                        self._voices.append(voice)
                        await websocket.send(_opened(context_id, len(voices) - 1))
                    case ContextText(context_id=context_id, text=text):
                        voice = voices[context_id]
                        if voice.player is None:
                            voice.text = text
                            voice.player = self._play(text, voice)
                        elif voice.player.accepts_text:
                            voice.text += text
                        else:
                            error = context_refusal(ErrorCode.CONTEXT_CLOSED, context_id)
                            await websocket.send(ErrorMessage.of(error, context_id).encode())
                    case ContextEnd(context_id=context_id):
                        voices[context_id].has_end.set()
                    case ContextCancel(context_id=context_id):
                        if (player := voices[context_id].player) is not None:
                            cancelling.create_task(player.cancel())
                    case _:
                        pass

    async def _speak_cartesia(self, websocket: WebSocket) -> None:
        players: dict[str, _Player] = {}
        async with asyncio.TaskGroup() as cancelling:
            async for data in websocket:
                request = json.loads(data)
                context_id = request["context_id"]
                if request.get("cancel"):
                    cancelling.create_task(players[context_id].cancel())
                elif context_id not in players:
                    voice = _CartesiaVoice(websocket.send, context_id)
                    players[context_id] = self._play(request["transcript"], voice)

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "audio/pcm"})
        await response.prepare(request)
        text = (await request.json())["input"]
        await self._play(text, _HttpVoice(response)).finished()
        return response

    def _play(self, text: str, voice: _Voice) -> _Player:
        player = _Player(self._first.popleft() if self._first else self.script, voice)
        self.played[text] = player.played
        self._playing.add(player.task)
        return player


class _HttpVoice:
    def __init__(self, response: web.StreamResponse) -> None:
        self._response = response

    async def audio(self, pcm: bytes) -> None:
        await self._response.write(pcm)

    async def words(self, starts_ms: tuple[int, ...]) -> None:
        """OpenAI's API has no word times."""

    async def text_ended(self) -> None:
        """A request has all of it."""

    async def cancelled(self) -> None:
        """A client cancels by closing the connection."""

    async def fail(self, error: VoiceAgentError) -> None:
        raise error

    async def end(self) -> None:
        await self._response.write_eof()


def _opened(context_id: str, handle: int) -> str:
    return ContextOpened(
        context_id=context_id, handle=handle, voice="scripted", language=None, seed=None, queue_ms=0
    ).encode()


def _any_subprotocol(_: WebSocket, offered: Any) -> Subprotocol | None:
    return Subprotocol(SUBPROTOCOL) if SUBPROTOCOL in offered else None
