"""`voiceagent-tts say` and `voices`: the client, with a server of its own where none is named.

With `--url` the base install is enough; a server of its own needs the extras `server` and `espeak`.
"""

import asyncio
import codecs
import json
import os
import sys
import urllib.request
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from voiceagent_tts.cli.files import check_audio_path, check_words_path, write_audio, write_words
from voiceagent_tts.cli.own_server import websocket_url
from voiceagent_tts.cli.playback import Speaker
from voiceagent_tts.client import ClientContext, TTSClient
from voiceagent_tts.core import BYTES_PER_SAMPLE, SAMPLE_RATE_HZ, WordTimestamp
from voiceagent_tts.errors import ErrorCode, InvalidRequestError, VoiceAgentError
from voiceagent_tts.protocol.connection import ClientAudio
from voiceagent_tts.protocol.messages import DoneMessage

_READ_BYTES = 64  # about what an LLM writes at a time


@dataclass(frozen=True, slots=True)
class SayRequest:
    """The command line of `say`."""

    text: str | None
    output: Path | None
    words: Path | None
    voice: str | None
    language: str | None
    speed: float
    play: bool | None
    url: str | None
    api_key: str | None


@dataclass(frozen=True, slots=True)
class Spoken:
    """What came back: PCM16 at 24 kHz, the words in it, and why it ended."""

    pcm: bytes
    words: tuple[WordTimestamp, ...]
    reason: str

    @property
    def seconds(self) -> float:
        """Length of the sound."""
        return len(self.pcm) / BYTES_PER_SAMPLE / SAMPLE_RATE_HZ


async def say_text(request: SayRequest) -> None:
    """Speak the request's text, or standard input token by token.

    Raises:
        InvalidRequestError: a file that cannot be written, no speaker, or nothing to say.
        VoiceAgentError: whatever the server answers.
    """
    check_audio_path(request.output)
    check_words_path(request.words)
    speaker = _find_speaker(request)
    async with websocket_url(request.url) as url, TTSClient(url, request.api_key) as client:
        context = await client.open(
            voice=request.voice,
            language=request.language,
            speed=request.speed,
            max_lead_s=None if speaker else 0,
        )
        async with context:
            spoken = await _speak(context, request.text, speaker)
    if not spoken.pcm and spoken.reason == "complete":
        raise InvalidRequestError(
            "expected text with letters or digits to speak", code=ErrorCode.TEXT_UNSPEAKABLE
        )
    _keep(request, spoken)


async def print_voices(url: str | None, api_key: str | None) -> None:
    """One voice a line, the default first.

    Raises:
        InvalidRequestError: the server does not tell.
    """
    async with websocket_url(url) as address:
        parts = urlsplit(address)
        scheme = "https" if parts.scheme == "wss" else "http"
        http_request = urllib.request.Request(f"{scheme}://{parts.netloc}/v1/audio/voices")
        if api_key is not None:
            http_request.add_header("Authorization", f"Bearer {api_key}")
        body = await asyncio.to_thread(_fetch, http_request)
    for voice in json.loads(body)["voices"]:
        sys.stdout.write(f"{voice['id']}\n")


def _fetch(http_request: urllib.request.Request) -> bytes:
    try:
        with urllib.request.urlopen(http_request, timeout=10) as response:
            return response.read()
    except OSError as error:
        raise InvalidRequestError(f"no voices from {http_request.full_url}: {error}") from error


def _find_speaker(request: SayRequest) -> Speaker | None:
    is_for_ears = request.output is None and request.words is None
    if request.play is False or (request.play is None and not is_for_ears):
        return None
    speaker = Speaker.find(is_required=request.play is True)
    if speaker is None:
        raise InvalidRequestError("there is no loudspeaker here: write a file, --output say.wav")
    return speaker


async def _speak(context: ClientContext, text: str | None, speaker: Speaker | None) -> Spoken:
    """Feed the text while its sound comes; what fails first ends both.

    Raises:
        VoiceAgentError: the server's error, or that of the text's source.
    """
    try:
        async with asyncio.TaskGroup() as group:
            feeding = group.create_task(_feed(context, text))
            spoken = await _take(context, speaker)
            feeding.cancel()  # nobody listens any more: the server may end a context first
    except* VoiceAgentError as errors:
        raise errors.exceptions[0] from None
    return spoken


async def _take(context: ClientContext, speaker: Speaker | None) -> Spoken:
    """Take what comes, play it, and show how far it is."""
    pcm, words, reason = bytearray(), list[WordTimestamp](), ""
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
                    if speaker is not None:
                        await speaker.play(event.pcm)
                case WordTimestamp():
                    words.append(event)
                case DoneMessage():
                    reason = event.reason
                case _:
                    pass
            seconds = len(pcm) / BYTES_PER_SAMPLE / SAMPLE_RATE_HZ
            bar.update(task, description=f"{len(words)} words, {seconds:.1f} s of sound")
        if speaker is not None:
            await speaker.finish()
    return Spoken(bytes(pcm), tuple(words), reason)


def _keep(request: SayRequest, spoken: Spoken) -> None:
    """Write the files that were asked for, and say what is in them.

    Raises:
        InvalidRequestError: a file cannot be written, or the server ended the context early.
    """
    if request.output is not None:
        write_audio(request.output, spoken.pcm)
    if request.words is not None:
        write_words(request.words, spoken.words)
    names = " and ".join(str(path) for path in (request.output, request.words) if path)
    count = len(spoken.words)
    report = f"{spoken.seconds:.1f} s of sound, {count} word{'s' * (count != 1)}"
    if spoken.reason != "complete":
        raise InvalidRequestError(f"the server ended this early ({spoken.reason}), after {report}")
    if names:
        sys.stderr.write(f"{names}: {report}\n")


async def _feed(context: ClientContext, text: str | None) -> None:
    if text is not None:
        await context.send_text(text)
    else:
        async for delta in _standard_input():
            await context.send_text(delta)
    await context.end()


async def _standard_input() -> AsyncIterator[str]:
    """Standard input as it comes, without splitting a character.

    Raises:
        InvalidRequestError: it is not UTF-8.
    """
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
    """Wait for a pipe or a terminal, without a thread that nobody could interrupt."""
    loop = asyncio.get_running_loop()
    is_readable = asyncio.Event()
    try:
        loop.add_reader(descriptor, is_readable.set)
    except PermissionError:  # a regular file, whose reads never wait
        return
    try:
        await is_readable.wait()
    finally:
        loop.remove_reader(descriptor)
