"""`voiceagent-tts say` and `voices`: the client, with a server of its own where none is named."""

import asyncio
import codecs
import contextlib
import json
import os
import sys
import urllib.request
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import soundfile
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from voiceagent_tts.cli.playback import Speaker
from voiceagent_tts.cli.serve import configure_logs
from voiceagent_tts.cli.subtitles import check_words_path, write_words
from voiceagent_tts.client import ClientContext, TTSClient
from voiceagent_tts.config import Settings
from voiceagent_tts.core import SAMPLE_RATE_HZ, WordTimestamp
from voiceagent_tts.errors import ErrorCode, InvalidRequestError
from voiceagent_tts.protocol.connection import ClientAudio
from voiceagent_tts.server.serve import running

_AUDIO_SUFFIXES = (".wav", ".flac", ".ogg")
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
    """What came back: PCM16 at 24 kHz and the words in it."""

    pcm: bytes
    words: tuple[WordTimestamp, ...]


async def say_text(request: SayRequest) -> None:
    """Speak the request's text, or standard input token by token.

    Raises:
        InvalidRequestError: a file name without a known format, no speaker, or nothing to say.
        VoiceAgentError: whatever the server answers.
    """
    _check_output(request.output)
    check_words_path(request.words)
    is_for_ears = request.output is None and request.words is None
    speaker = (
        Speaker.find(is_required=request.play is True)
        if (request.play or (request.play is None and is_for_ears))
        else None
    )
    if is_for_ears and speaker is None:
        raise InvalidRequestError("there is no speaker here: write a file with --output say.wav")
    async with _websocket_url(request.url) as url, TTSClient(url, request.api_key) as client:
        context = await client.open(
            voice=request.voice,
            language=request.language,
            speed=request.speed,
            max_lead_s=None if speaker else 0,
        )
        async with context:
            spoken = await _speak(context, request.text, speaker)
    if not spoken.pcm:
        raise InvalidRequestError(
            "expected text with letters or digits to speak", code=ErrorCode.TEXT_UNSPEAKABLE
        )
    if request.output is not None:
        samples = np.frombuffer(spoken.pcm, "<i2")
        soundfile.write(request.output, samples, SAMPLE_RATE_HZ)
    if request.words is not None:
        write_words(request.words, spoken.words)


async def print_voices(url: str | None, api_key: str | None) -> None:
    """One voice a line, the default first."""
    async with _websocket_url(url) as websocket_url:
        parts = urlsplit(websocket_url)
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


@contextlib.asynccontextmanager
async def _websocket_url(url: str | None) -> AsyncIterator[str]:
    """Address of the server that was named, or of one that lives as long as the block."""
    if url is not None:
        yield url
        return
    configure_logs(is_json=False, is_quiet=True)
    with Console(stderr=True).status("starting a server for this"):
        stack = contextlib.AsyncExitStack()
        server = await stack.enter_async_context(running(Settings(host="127.0.0.1", port=0)))
    async with stack:
        yield server.websocket_url


async def _speak(context: ClientContext, text: str | None, speaker: Speaker | None) -> Spoken:
    """Feed the text, take what comes, and show how far it is."""
    pcm, words = bytearray(), list[WordTimestamp]()
    feeding = asyncio.create_task(_feed(context, text))
    columns = SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()
    try:
        with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
            task = progress.add_task("waiting for the first sound", total=None)
            async for event in context:
                if isinstance(event, ClientAudio):
                    pcm += event.pcm
                    if speaker is not None:
                        await speaker.play(event.pcm)
                elif isinstance(event, WordTimestamp):
                    words.append(event)
                seconds = len(pcm) / 2 / SAMPLE_RATE_HZ
                progress.update(task, description=f"{len(words)} words, {seconds:.1f} s of sound")
        await feeding
        if speaker is not None:
            await speaker.finish()
    finally:
        feeding.cancel()
    return Spoken(bytes(pcm), tuple(words))


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
    is_end = False
    while not is_end:
        data = await asyncio.to_thread(os.read, sys.stdin.fileno(), _READ_BYTES)
        is_end = not data
        try:
            delta = decoder.decode(data, final=is_end)
        except UnicodeDecodeError as error:
            raise InvalidRequestError(f"standard input is not UTF-8: {error.reason}") from None
        if delta:
            yield delta


def _check_output(path: Path | None) -> None:
    if path is not None and path.suffix.lower() not in _AUDIO_SUFFIXES:
        raise InvalidRequestError(
            f"--output: expected a name that ends in {', '.join(_AUDIO_SUFFIXES)}; got {path.name}"
        )
