"""A LiveKit TTS by its streams, as an `AgentSession` uses it: the adapter included.

A TTS without streaming is wrapped in LiveKit's own `StreamAdapter`, as a session does.
"""

import asyncio

import aiohttp
from livekit.agents import APIError, tts
from livekit.agents.types import USERDATA_TIMED_TRANSCRIPT
from livekit.agents.utils import is_given

from voiceagent_tts.plugins.bench.recorder import Recorder
from voiceagent_tts.plugins.bench.targets.classes import ServiceClass
from voiceagent_tts.plugins.bench.targets.target import Connection
from voiceagent_tts.plugins.bench.utterance import Request


class LiveKitTarget:
    """A class of TTS plugins.

    Raises:
        InvalidRequestError: there is no such class.
        ModuleNotFoundError: a package that its module needs is missing.
    """

    def __init__(self, service: ServiceClass) -> None:
        service.load()
        self._service = service

    async def connect(self, *, is_measured: bool = False) -> Connection:
        """Construct a TTS, with an HTTP session of its own where it takes one."""
        http = aiohttp.ClientSession()
        try:
            voice: tts.TTS = self._service.make(http_session=http)
        except BaseException:
            await http.close()
            raise
        voice.prewarm()
        return _LiveKitConnection(voice, http)


class _LiveKitConnection:
    """A TTS, one stream at a time."""

    is_usable = True

    def __init__(self, voice: tts.TTS, http: aiohttp.ClientSession) -> None:
        self._plugin, self._http = voice, http
        self._voice = voice if voice.capabilities.streaming else tts.StreamAdapter(tts=voice)
        self._stream: tts.SynthesizeStream | None = None
        self._reading: asyncio.Task[None] | None = None
        self._recorder: Recorder | None = None

    async def start(self, request: Request, recorder: Recorder) -> None:
        await self._end_stream()
        self._recorder = recorder
        self._stream = self._voice.stream()
        self._reading = asyncio.create_task(_read(self._stream, recorder))

    async def send(self, text: str) -> None:
        if self._stream is not None:
            self._stream.push_text(text)

    async def end(self) -> None:
        if self._stream is not None:
            self._stream.end_input()

    async def cancel(self) -> None:
        # Closes the stream, as an interrupted session does.
        recorder = self._recorder
        await self._end_stream()
        if recorder is not None:
            recorder.confirm()
            recorder.finish()

    async def aclose(self) -> None:
        await self._end_stream()
        await self._plugin.aclose()
        await self._http.close()

    async def _end_stream(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            await stream.aclose()
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait({self._reading})
            self._reading = None


async def _read(stream: tts.SynthesizeStream, recorder: Recorder) -> None:
    try:
        async for audio in stream:
            for word in audio.frame.userdata.get(USERDATA_TIMED_TRANSCRIPT, ()):
                if is_given(word.start_time):
                    recorder.word(word.start_time)
            recorder.audio(bytes(audio.frame.data), audio.frame.sample_rate)
    except APIError:
        recorder.fail("service_error")
    else:
        recorder.finish()
