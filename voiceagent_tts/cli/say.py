"""`voiceagent-tts say`: a client, with a temporary server if --url is not given.

With `--url` the base install suffices; a temporary server needs the extras `server` and `espeak`.
"""

import asyncio
import codecs
import contextlib
import os
import re
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from voiceagent_tts.cli.files import (
    FileFilter,
    check_audio_path,
    check_words_path,
    file_filters,
    write_audio,
    write_words,
)
from voiceagent_tts.cli.own_server import websocket_url
from voiceagent_tts.cli.playback import Loudspeaker
from voiceagent_tts.client import ClientContext, TTSClient
from voiceagent_tts.core import BYTES_PER_SAMPLE, SAMPLE_RATE_HZ, WordTimestamp
from voiceagent_tts.errors import ErrorCode, InvalidRequestError, VoiceAgentError
from voiceagent_tts.protocol.client_connection import ClientAudio, VoiceOptions
from voiceagent_tts.protocol.messages import DoneMessage, ProvenanceFields, WarningMessage

_READ_BYTES = 64  # about one delta of an LLM
_SEND_CHARS = 250
_ROOM_WAIT_S = 5.0
"""Seconds without a word after which more text is sent: some letters yield no words."""
_SILENCE_WAIT_S = 1.0
"""Seconds after which the server has read text without letters and digits, of no words."""
_LAST_SPOKEN = re.compile(r"[^\W_](?=[\W_]*\Z)")
_EARLY_ENDS = {
    "limit": "the longest it speaks in one context; `voiceagent-tts batch` speaks longer texts",
    "idle": "because no more text arrived",
}


@dataclass(frozen=True, slots=True)
class SayRequest:
    """The command line of `say`."""

    text: str | None
    output: Path | None
    words: Path | None
    options: VoiceOptions
    play: bool | None
    url: str | None
    api_key: str | None


@dataclass(frozen=True, slots=True)
class ReceivedSpeech:
    """Received speech: PCM16 at 24 kHz, its words, why it ended, and where it comes from."""

    pcm: bytes
    words: tuple[WordTimestamp, ...]
    reason: str
    provenance: ProvenanceFields | None

    @property
    def seconds(self) -> float:
        """Duration of the audio."""
        return len(self.pcm) / BYTES_PER_SAMPLE / SAMPLE_RATE_HZ


async def say_text(request: SayRequest) -> None:
    """Speak the request's text, or standard input token by token."""
    check_audio_path(request.output)
    check_words_path(request.words)
    filters = [] if request.output is None else file_filters()
    loudspeaker = Loudspeaker.open() if _plays(request) else None
    async with (
        websocket_url(request.url, request.options.get("voice")) as url,
        TTSClient(url, request.api_key) as client,
    ):
        lead = VoiceOptions(max_lead_s=None if loudspeaker else 0)
        context = await client.open(**{**request.options, **lead})
        window = _TextWindow((await client.connect()).limits.max_text_chars // 2)
        async with context:
            spoken = await _speak(context, request.text, loudspeaker, window)
    _write_files(request, spoken, filters)


def _plays(request: SayRequest) -> bool:
    if request.play is not None:
        return request.play
    return request.output is None and request.words is None


class _TextWindow:
    """Limits text at the server whose audio is not generated: further text waits here."""

    def __init__(self, chars: int) -> None:
        self._chars = chars
        self._sent = self._said_end = self._generated = 0
        self._has_more = asyncio.Event()

    async def reserve(self, text: str) -> None:
        """Wait until `text` fits, and count it as sent."""
        with contextlib.suppress(TimeoutError):
            while self._sent - self._generated > self._chars:
                await self._wait_for_words()
        if (last := _LAST_SPOKEN.search(text)) is not None:
            self._said_end = self._sent + last.end()
        self._sent += len(text)

    async def _wait_for_words(self) -> None:
        self._has_more.clear()
        has_words = self._said_end > self._generated
        try:
            # Python 3.11's `wait_for` may swallow a cancellation.
            async with asyncio.timeout(_ROOM_WAIT_S if has_words else _SILENCE_WAIT_S):
                await self._has_more.wait()
        except TimeoutError:
            if has_words:
                raise
            self._generated = self._sent

    def mark_generated(self, char_end: int) -> None:
        """Record that all words up to `char_end` were received."""
        self._generated = max(self._generated, char_end)
        self._has_more.set()


async def _speak(
    context: ClientContext, text: str | None, loudspeaker: Loudspeaker | None, window: _TextWindow
) -> ReceivedSpeech:
    """Send the text while audio arrives; the first failure ends both."""
    try:
        async with asyncio.TaskGroup() as group:
            feeding = group.create_task(_feed(context, text, window))
            spoken = await _receive(context, loudspeaker, window)
            feeding.cancel()  # the server may end a context before all text is sent
    except* VoiceAgentError as errors:
        raise errors.exceptions[0] from None
    return spoken


async def _receive(
    context: ClientContext, loudspeaker: Loudspeaker | None, window: _TextWindow
) -> ReceivedSpeech:
    pcm, reason, provenance = bytearray(), "", None
    console = Console(stderr=True)
    columns = SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as bar:
        task = bar.add_task("waiting for the first sound", total=None)
        async for event in context:
            match event:
                case ClientAudio():
                    pcm += event.pcm
                    if loudspeaker is not None:
                        await loudspeaker.play(event.pcm)
                case WordTimestamp():
                    window.mark_generated(event.word.char_end)
                case WarningMessage():
                    console.print(
                        f"warning: {event.message}", markup=False, highlight=False, soft_wrap=True
                    )
                case DoneMessage():
                    reason, provenance = event.reason, event.provenance
                case _:
                    pass
            seconds = len(pcm) / BYTES_PER_SAMPLE / SAMPLE_RATE_HZ
            bar.update(task, description=f"{len(context.words)} words, {seconds:.1f} s of sound")
        if loudspeaker is not None:
            await loudspeaker.finish()
    return ReceivedSpeech(bytes(pcm), tuple(context.words), reason, provenance)


def _write_files(request: SayRequest, spoken: ReceivedSpeech, filters: list[FileFilter]) -> None:
    names = " and ".join(str(path) for path in (request.output, request.words) if path)
    if spoken.pcm and request.output is not None:
        write_audio(request.output, spoken.pcm, filters, spoken.provenance)
    if spoken.pcm and request.words is not None:
        write_words(request.words, spoken.words)
    count = len(spoken.words)
    report = f"{spoken.seconds:.1f} s of sound, {count} word{'s' * (count != 1)}"
    if spoken.reason != "complete":
        why = _EARLY_ENDS.get(spoken.reason, f"reason {spoken.reason}")
        raise InvalidRequestError(f"the server stopped early, after {report}: {why}")
    if not spoken.pcm:
        unwritten = f"; not written: {names}" if names else ""
        sys.stderr.write(f"nothing in the text is said{unwritten}\n")
    elif names:
        sys.stderr.write(f"{names}: {report}\n")


async def _feed(context: ClientContext, text: str | None, window: _TextWindow) -> None:
    try:
        async for delta in _standard_input() if text is None else _parts(text):
            await window.reserve(delta)
            await context.send_text(delta)
        await context.end()
    except InvalidRequestError as error:
        # If the server has closed it, its `done` gives the reason.
        if error.code is not ErrorCode.CONTEXT_CLOSED:
            raise


async def _parts(text: str) -> AsyncIterator[str]:
    for start in range(0, len(text), _SEND_CHARS):
        yield text[start : start + _SEND_CHARS]


async def _standard_input() -> AsyncIterator[str]:
    if sys.stdin is None:
        raise InvalidRequestError("expected a text: there is no standard input to read it from")
    decoder = codecs.getincrementaldecoder("utf-8")()
    descriptor = sys.stdin.fileno()
    is_end = False
    while not is_end:
        await _wait_until_readable(descriptor)
        data = os.read(descriptor, _READ_BYTES)
        is_end = not data
        try:
            delta = decoder.decode(data, final=is_end)
        except UnicodeDecodeError as error:
            raise InvalidRequestError(f"standard input is not UTF-8: {error.reason}") from None
        if delta:
            yield delta


async def _wait_until_readable(descriptor: int) -> None:
    loop = asyncio.get_running_loop()
    is_readable = asyncio.Event()
    try:
        loop.add_reader(descriptor, is_readable.set)
    except PermissionError:  # a regular file: reads never block
        return
    try:
        await is_readable.wait()
    finally:
        loop.remove_reader(descriptor)
