"""`Output`: what the service does with each frame before the frame leaves for the transport.

Pipecat commits the text frames that pass its output to the conversation's history. So this module
drops text that was not spoken, restores the white space of text that was, and moves time stamps to
the times at which the audio plays.
"""

from dataclasses import dataclass

from pipecat.frames.frames import (
    AggregatedTextFrame,
    AggregatedTextProgressFrame,
    ControlFrame,
    Frame,
    InterruptionFrame,
    LLMAssistantPushAggregationFrame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    TTSAudioRawFrame,
    TTSStartedFrame,
    TTSTextFrame,
)

from voiceagent_tts.adapters.pipecat.playout import Playout
from voiceagent_tts.adapters.pipecat.text import VerbatimSpacing

_TIMED_FRAMES = (
    AggregatedTextFrame,
    AggregatedTextProgressFrame,
    LLMFullResponseEndFrame,
    LLMAssistantPushAggregationFrame,
)
"""Frames whose time stamp Pipecat derives from word times."""


@dataclass
class UnspokenTextFrame(ControlFrame):
    """Marks the point in a context's queue after which no text was spoken; never leaves."""

    context_id: str = ""


class Output:
    """Prepares the frames that leave the service, in their order.

    Args:
        playout: follows the audio among them.
    """

    def __init__(self, playout: Playout) -> None:
        self._playout = playout
        self._spacing = VerbatimSpacing()
        self._unspoken_context_id: str | None = None

    def prepare(self, frame: Frame, now_s: float) -> bool:
        """Account for `frame` and correct it; returns whether the frame may leave."""
        match frame:
            case UnspokenTextFrame():
                self._unspoken_context_id = frame.context_id
                return False
            case TTSTextFrame() | AggregatedTextProgressFrame():
                if not self._is_spoken(frame.context_id):
                    return False
                if isinstance(frame, TTSTextFrame) and frame.append_to_context:
                    self._spacing.apply(frame)
            case AggregatedTextFrame() if frame.will_be_spoken:
                self._spacing.announce(frame)
            case LLMFullResponseStartFrame() | LLMAssistantPushAggregationFrame():
                self._spacing.start_reply()
            case InterruptionFrame():
                self._spacing.clear()
                self._playout.interrupt()
            case TTSStartedFrame():
                self._playout.start_context(frame.context_id)
            case TTSAudioRawFrame():
                self._playout.play(frame, now_s)
            case _:
                pass
        if isinstance(frame, _TIMED_FRAMES) and frame.pts:
            frame.pts = self._playout.corrected_ns(frame.pts)
        return True

    def _is_spoken(self, context_id: str | None) -> bool:
        """Whether text that leaves now was spoken; Pipecat assumes it once a context has ended."""
        has_audio = context_id is None or self._playout.has_audio(context_id)
        return has_audio and context_id != self._unspoken_context_id
