"""A plain Pipecat service for comparison: no words, or those of each complete sentence.

It passes the server's audio on as it arrives, and either no words or the words of each complete
sentence, like a server that aligns words after it has spoken them. It uses the same server and the
same audio as our service.
"""

from collections.abc import AsyncGenerator

from pipecat.frames.frames import CancelFrame, EndFrame, Frame, TTSAudioRawFrame, TTSStoppedFrame
from pipecat.services.settings import TTSSettings
from pipecat.services.tts_service import TTSService

from voiceagent_tts.client import ClientContext, TTSClient
from voiceagent_tts.core import SAMPLE_RATE_HZ, WordTimestamp
from voiceagent_tts.protocol.client_connection import ClientAudio

_SENTENCE_ENDS = (".", "!", "?", "。")


class PlainTTSService(TTSService):
    """Passes audio on as it arrives, and no words or those of each complete sentence."""

    def __init__(self, url: str, voice: str, language: str, has_words: bool) -> None:
        super().__init__(
            push_text_frames=False,
            push_start_frame=True,
            settings=TTSSettings(model=None, voice=voice, language=language),
        )
        self._client = TTSClient(url)
        self._voice, self._language_code = voice, language
        self._has_words = has_words
        self._contexts: dict[str, ClientContext] = {}

    async def run_tts(self, text: str, context_id: str) -> AsyncGenerator[Frame | None, None]:
        """Send a sentence of the turn; the first one opens the server's context."""
        if context_id not in self._contexts:
            context = await self._client.open(voice=self._voice, language=self._language_code)
            self._contexts[context_id] = context
            self.create_task(self._pass_on(context, context_id))
        await self._contexts[context_id].send_text(text + " ")
        yield None

    async def flush_audio(self, context_id: str | None = None) -> None:
        """End the text of this turn."""
        if context_id in self._contexts:
            await self._contexts[context_id].end()

    async def on_audio_context_interrupted(self, context_id: str) -> None:
        """Cancel the context on the server."""
        context = self._contexts.pop(context_id, None)
        if context is not None:
            await context.cancel()
        await super().on_audio_context_interrupted(context_id)

    async def stop(self, frame: EndFrame) -> None:
        """Close the connection."""
        await super().stop(frame)
        await self._client.aclose()

    async def cancel(self, frame: CancelFrame) -> None:
        """Close the connection."""
        await super().cancel(frame)
        await self._client.aclose()

    async def _pass_on(self, context: ClientContext, context_id: str) -> None:
        words: list[WordTimestamp] = []
        samples = 0
        async for event in context:
            if isinstance(event, WordTimestamp):
                words.append(event)
            elif isinstance(event, ClientAudio):
                samples += len(event.pcm) // 2
                frame = TTSAudioRawFrame(event.pcm, SAMPLE_RATE_HZ, 1, context_id=context_id)
                await self.append_to_audio_context(context_id, frame)
                words = await self._pass_words_on(words, context_id, samples)
        await self._pass_words_on(words, context_id, samples, is_over=True)
        if self.audio_context_available(context_id):
            stopped = TTSStoppedFrame(context_id=context_id)
            await self.append_to_audio_context(context_id, stopped)
            await self.remove_audio_context(context_id)
        self._contexts.pop(context_id, None)

    async def _pass_words_on(
        self, words: list[WordTimestamp], context_id: str, samples: int, *, is_over: bool = False
    ) -> list[WordTimestamp]:
        """Push the words of sentences complete in the first `samples`; returns the other words."""
        spoken = [word for word in words if is_over or (word.end_sample or 0) <= samples]
        ends = [n for n, word in enumerate(spoken, 1) if word.word.text.endswith(_SENTENCE_ENDS)]
        count = len(spoken) if is_over else max(ends, default=0)
        if self._has_words and count:
            times = [(w.word.text, w.start_sample / SAMPLE_RATE_HZ) for w in words[:count]]
            await self.add_word_timestamps(times, context_id)
        return words[count:]
