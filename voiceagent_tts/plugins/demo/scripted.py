"""Stand-ins for the two services that need a network or a download: the LLM and transcription.

`ScriptedLLM` answers known questions, token by token, at the pace of a language model.
`ScriptedSTT` emits the scripted question at the moment when real voice activity detection, on real
audio, finds that the user has stopped. This module knows no speech synthesis.
"""

import asyncio
import random
import re
from collections.abc import Mapping

from pipecat.frames.frames import (
    Frame,
    LLMContextFrame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    LLMTextFrame,
    TranscriptionFrame,
    TTSUpdateSettingsFrame,
    VADUserStoppedSpeakingFrame,
)
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor
from pipecat.services.settings import TTSSettings
from pipecat.utils.time import time_now_iso8601

_TOKEN = re.compile(r"\s?\S{1,4}|\s")
_TOKENS_PER_S = 50.0
"""Average rate of the tokens after the first."""


class ScriptedLLM(FrameProcessor):
    """Answers the last question of the context with its scripted reply.

    Args:
        replies: maps each question to (language code, reply).
        first_token_s: time to the first token.
    """

    def __init__(
        self, replies: Mapping[str, tuple[str, str]], *, first_token_s: float = 0.15
    ) -> None:
        super().__init__()
        self._replies = replies
        self._first_token_s = first_token_s
        self._random = random.Random(0)
        self._language: str | None = None

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        """Answer a context; an interruption cancels this task while it writes."""
        await super().process_frame(frame, direction)
        if isinstance(frame, LLMContextFrame):
            question = _last_question(frame.context)
            if question is not None:
                await self._answer(*self._replies[question])
        else:
            await self.push_frame(frame, direction)

    async def _answer(self, language: str, reply: str) -> None:
        if language != self._language:
            self._language = language
            await self.push_frame(TTSUpdateSettingsFrame(delta=TTSSettings(language=language)))
        await self.push_frame(LLMFullResponseStartFrame())
        await asyncio.sleep(self._first_token_s)
        for token in _TOKEN.findall(reply):
            await self.push_frame(LLMTextFrame(token))
            await asyncio.sleep(self._random.expovariate(_TOKENS_PER_S))
        await self.push_frame(LLMFullResponseEndFrame())


class ScriptedSTT(FrameProcessor):
    """Emits the expected text when voice activity detection finds that the user has stopped."""

    def __init__(self) -> None:
        super().__init__()
        self._expected: str | None = None

    def expect(self, text: str) -> None:
        """The user starts to say `text`."""
        self._expected = text

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        """Pass every frame on, and push the transcription when the user has stopped."""
        await super().process_frame(frame, direction)
        await self.push_frame(frame, direction)
        if isinstance(frame, VADUserStoppedSpeakingFrame) and self._expected is not None:
            text, self._expected = self._expected, None
            await self.push_frame(
                TranscriptionFrame(text, "user", time_now_iso8601(), finalized=True)
            )


def _last_question(context: LLMContext) -> str | None:
    """The question that the context ends with.

    None where Pipecat tells the language model that it has heard the user, but no text yet: the
    question follows.
    """
    message = context.get_messages()[-1]
    if isinstance(message, dict) and message["role"] == "user":
        return str(message["content"])
    return None
