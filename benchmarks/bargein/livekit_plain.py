"""A plain LiveKit plugin for comparison: no words, or those of each complete sentence.

It passes the server's audio on as it arrives, and either no words or the words of each complete
sentence, like a server that aligns words after it has spoken them. It uses the same server and the
same audio as our plugin.
"""

import asyncio
from typing import Any

from livekit.agents import DEFAULT_API_CONNECT_OPTIONS, APIConnectOptions, tts, utils
from livekit.agents.types import TimedString

from voiceagent_tts.client import ClientContext, TTSClient
from voiceagent_tts.core import BYTES_PER_SAMPLE, SAMPLE_RATE_HZ, WordTimestamp
from voiceagent_tts.protocol.client_connection import ClientAudio

_SENTENCE_ENDS = (".", "!", "?", "。")


class PlainTTS(tts.TTS):
    """Passes audio on as it arrives, and no words or those of each complete sentence."""

    def __init__(self, url: str, voice: str, language: str, has_words: bool) -> None:
        super().__init__(
            capabilities=tts.TTSCapabilities(streaming=True, aligned_transcript=True),
            sample_rate=SAMPLE_RATE_HZ,
            num_channels=1,
        )
        self.client = TTSClient(url)
        self.options: dict[str, Any] = {"voice": voice, "language": language}
        self.has_words = has_words

    def synthesize(
        self, text: str, *, conn_options: APIConnectOptions = DEFAULT_API_CONNECT_OPTIONS
    ) -> tts.ChunkedStream:
        """Speak a whole text."""
        return self._synthesize_with_stream(text, conn_options=conn_options)

    def stream(
        self, *, conn_options: APIConnectOptions = DEFAULT_API_CONNECT_OPTIONS
    ) -> tts.SynthesizeStream:
        """Speak one reply while its text is being written."""
        return _PlainStream(self, conn_options)

    async def aclose(self) -> None:
        """Close the connection."""
        await self.client.aclose()


class _PlainStream(tts.SynthesizeStream):
    def __init__(self, plugin: PlainTTS, conn_options: APIConnectOptions) -> None:
        super().__init__(tts=plugin, conn_options=conn_options)
        self._plugin = plugin
        self._words: list[WordTimestamp] = []

    async def _run(self, output_emitter: tts.AudioEmitter) -> None:
        async with await self._plugin.client.open(**self._plugin.options) as context:
            output_emitter.initialize(
                request_id=context.context_id,
                sample_rate=SAMPLE_RATE_HZ,
                num_channels=1,
                mime_type="audio/pcm",
                stream=True,
            )
            output_emitter.start_segment(segment_id=context.context_id)
            sending = asyncio.create_task(self._send_text(context))
            try:
                await self._pass_on(context, output_emitter)
            finally:
                await utils.aio.cancel_and_wait(sending)

    async def _send_text(self, context: ClientContext) -> None:
        async for item in self._input_ch:
            if isinstance(item, str):
                self._mark_started()
                await context.send_text(item)
        await context.end()

    async def _pass_on(self, context: ClientContext, emitter: tts.AudioEmitter) -> None:
        samples = 0
        async for event in context:
            if isinstance(event, WordTimestamp):
                self._words.append(event)
            elif isinstance(event, ClientAudio):
                samples += len(event.pcm) // BYTES_PER_SAMPLE
                emitter.push(event.pcm)
                self._pass_words_on(context.text, emitter, samples)
        self._pass_words_on(context.text, emitter, samples, is_over=True)

    def _pass_words_on(
        self, text: str, emitter: tts.AudioEmitter, samples: int, *, is_over: bool = False
    ) -> None:
        """Push the words of the sentences that are complete in the first `samples` of audio."""
        spoken = [word for word in self._words if is_over or (word.end_sample or 0) <= samples]
        ends = [n for n, word in enumerate(spoken, 1) if word.word.text.endswith(_SENTENCE_ENDS)]
        count = len(spoken) if is_over else max(ends, default=0)
        if self._plugin.has_words:
            emitter.push_timed_transcript(
                [_timed(text, timestamp) for timestamp in self._words[:count]]
            )
        del self._words[:count]


def _timed(text: str, timestamp: WordTimestamp) -> TimedString:
    """A word with the white space after it, and its true times."""
    word = timestamp.word
    behind = text[word.char_end :]
    space = behind[: len(behind) - len(behind.lstrip())]
    return TimedString(
        word.text + space,
        start_time=timestamp.start_sample / SAMPLE_RATE_HZ,
        end_time=(timestamp.end_sample or timestamp.start_sample) / SAMPLE_RATE_HZ,
    )
