"""Stand-ins for a language model and for transcription, as services of a Pipecat pipeline.

This module knows no speech synthesis and no transport.
"""

import asyncio

from pipecat.frames.frames import (
    Frame,
    LLMContextFrame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    LLMTextFrame,
    TranscriptionFrame,
    VADUserStartedSpeakingFrame,
    VADUserStoppedSpeakingFrame,
)
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor
from pipecat.utils.time import time_now_iso8601

from agents import stand_ins


class ScriptedLLM(FrameProcessor):
    """Answers with the next of its lines; after a false interruption, with the rest of the last."""

    def __init__(self) -> None:
        super().__init__()
        self._line = ""  # the last reply, as it was written

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        """Answer a context; an interruption cancels this task while it writes."""
        await super().process_frame(frame, direction)
        if isinstance(frame, LLMContextFrame):
            self._line = self._next_line(frame.context)
            await self._write(self._line)
        else:
            await self.push_frame(frame, direction)

    def _next_line(self, context: LLMContext) -> str:
        said, is_resuming = [], False
        for message in context.get_messages():
            assert isinstance(message, dict), message
            is_resuming = message["role"] == "developer"
            if message["role"] == "assistant":
                said.append(str(message.get("content")).strip())
        heard = said[-1] if said and self._line.startswith(said[-1]) else ""
        if is_resuming:
            return self._line[len(heard) :].lstrip()
        is_interrupted = bool(heard) and heard != self._line
        return stand_ins.next_line(len(said), heard if is_interrupted else None)

    async def _write(self, line: str) -> None:
        await self.push_frame(LLMFullResponseStartFrame())
        for token in stand_ins.tokens(line):
            await self.push_frame(LLMTextFrame(token))
            await asyncio.sleep(1 / stand_ins.TOKENS_PER_S)
        await self.push_frame(LLMFullResponseEndFrame())


class DurationSTT(FrameProcessor):
    """Reports that the user spoke and for how long, but not what they said.

    A sound that is too short for a word has no transcript.
    """

    def __init__(self) -> None:
        super().__init__()
        self._started_at_s = 0.0

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        """Pass every frame on, and push a transcription when the user has stopped."""
        await super().process_frame(frame, direction)
        await self.push_frame(frame, direction)
        if isinstance(frame, VADUserStartedSpeakingFrame):
            self._started_at_s = frame.timestamp - frame.start_secs
        elif isinstance(frame, VADUserStoppedSpeakingFrame):
            text = stand_ins.transcript_of(frame.timestamp - frame.stop_secs - self._started_at_s)
            if text:
                transcription = TranscriptionFrame(text, "user", time_now_iso8601(), finalized=True)
                await self.push_frame(transcription)
