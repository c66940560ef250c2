"""One spoken reply of an agent: text in from a language model, audio out to the loudspeaker.

This module knows no devices, no microphone and no history.
"""

import asyncio
import time
from collections.abc import AsyncIterator

from openai import OpenAIError

from agents.playback import Playback
from agents.stage_clock import Stage, StageClock
from voiceagent_tts.client import ClientAudio, ClientContext, Cut, WordTimestamp
from voiceagent_tts.core import samples_to_ms

_POLL_S = 0.01
"""Interval at which the end of playback is looked for: the loudspeaker runs in another thread."""


class Reply:
    """Speaks the tokens of a language model through one context of the voice server.

    Args:
        context: a new context.
        playback: what the loudspeaker plays.
        clock: measures the first token.

    Attributes:
        words: word times received so far.
    """

    def __init__(self, context: ClientContext, playback: Playback, clock: StageClock) -> None:
        self.words: list[WordTimestamp] = []
        self._context = context
        self._playback = playback
        self._clock = clock
        self._failure: OpenAIError | None = None

    @property
    def text(self) -> str:
        """The text that was sent to the voice server."""
        return self._context.text

    @property
    def heard_chars(self) -> int:
        """Length of the text that has left the loudspeaker."""
        heard = self._playback.heard_samples
        ends = [word.word.char_end for word in self.words if word.start_sample < heard]
        return max(ends, default=0)

    async def speak(self, tokens: AsyncIterator[str]) -> None:
        """Send `tokens`, queue their audio, and wait until it was played.

        Text that was written before the language model failed is spoken.

        Raises:
            ExceptionGroup: of a `VoiceAgentError` of the voice server, or of an
                `openai.OpenAIError` of the language model's server, after what was sent was played.
        """
        try:
            async with asyncio.TaskGroup() as group:
                sending = group.create_task(self._send(tokens))
                async for event in self._context:
                    if isinstance(event, ClientAudio):
                        self._playback.push(event.pcm)
                    elif isinstance(event, WordTimestamp):
                        self.words.append(event)
                sending.cancel()  # the server may end a context before all text is sent
            if (failure := self._failure) is not None:
                raise ExceptionGroup("the language model failed", [failure])
        finally:
            await self._played_out()

    async def cut(self, played_samples: int) -> Cut:
        """Stop the context; returns which part of the text was heard.

        Args:
            played_samples: played audio of this reply, at 24 kHz.

        Raises:
            VoiceAgentError: the voice server does not answer.
        """
        return await self._context.cancel(samples_to_ms(played_samples))

    def heard_locally(self) -> str:
        """The text that was heard, by the words received so far; for a lost server."""
        return self._context.cut_locally(samples_to_ms(self._playback.played_samples)).text_spoken

    async def _send(self, tokens: AsyncIterator[str]) -> None:
        try:
            async for token in tokens:
                self._clock.end_stage(Stage.LLM, time.monotonic())
                await self._context.send_text(token)
        except OpenAIError as error:
            self._failure = error
        await self._context.end()

    async def _played_out(self) -> None:
        while not self._playback.is_empty:
            await asyncio.sleep(_POLL_S)
