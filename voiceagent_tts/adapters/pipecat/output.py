"""`Output`: what the service does with each frame before the frame leaves for the transport.

Pipecat commits the text frames that pass its output to the conversation's history. So this module
drops text that was not spoken, restores the white space of text that was, moves time stamps to the
times at which the audio plays, and takes back words that an interruption overtakes.
"""

from collections import deque
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
    TTSStoppedFrame,
    TTSTextFrame,
)

from voiceagent_tts.adapters.pipecat.playout import Playout
from voiceagent_tts.adapters.pipecat.text import VerbatimSpacing

_AT_HAND_S = 0.03
"""A word that is due this soon may be heard by the time at which an interruption reaches the
transport: its chunk has begun, perhaps sooner than a transport that ran dry was expected to start,
or begins while a busy program passes the interruption on."""
_ROUNDING_S = 1e-6


@dataclass
class AudioEndFrame(ControlFrame):
    """Marks the end of a context's audio in its queue; never leaves.

    Attributes:
        has_unspoken_text: whether no audio of the context's remaining text comes.
    """

    context_id: str = ""
    has_unspoken_text: bool = False


class Output:
    """Prepares the frames that leave the service, in their order.

    Args:
        playout: follows the audio among them.
    """

    def __init__(self, playout: Playout) -> None:
        self._playout = playout
        self._spacing = VerbatimSpacing()
        self._on_their_way: deque[TTSTextFrame] = deque()  # words, until their time has come
        self._announced: deque[AggregatedTextFrame] = deque()  # segments that wait for their words
        self._unspoken_context_id: str | None = None

    def prepare(self, frame: Frame, now_s: float) -> bool:
        """Account for `frame` and correct it; returns whether the frame may leave."""
        match frame:
            case TTSTextFrame() | AggregatedTextProgressFrame():
                if not self._is_spoken(frame.context_id):
                    return False
                if isinstance(frame, TTSTextFrame) and frame.append_to_context:
                    self._spacing.apply(frame)
            case AggregatedTextFrame() if frame.will_be_spoken:
                self._spacing.announce(frame)
                if self._playout.plays(frame.context_id):
                    self._announced.append(frame)
                    return False
            case LLMFullResponseStartFrame() | LLMAssistantPushAggregationFrame():
                self._spacing.start_reply()
            case InterruptionFrame():
                self._spacing.clear()
                self._announced.clear()
                self._take_back_words(now_s)
                self._playout.interrupt()
            case TTSStartedFrame():
                self._playout.start_context(frame.context_id)
            case TTSAudioRawFrame():
                self._playout.play(frame, now_s)
            case _:
                pass
        if frame.pts:
            self._time(frame, frame.pts, now_s)
        return True

    def drop_text_of(self, context_id: str) -> None:
        """Text of `context_id` that leaves from now on was not spoken."""
        self._unspoken_context_id = context_id

    def announced_before(self, frame: Frame) -> list[AggregatedTextFrame]:
        """The segments that leave ahead of `frame`, their next word or the end, at its time.

        Pipecat announces a segment when its text is there. Then it would leave before the last
        words of the segment before, which wait for their audio.
        """
        is_end = isinstance(frame, TTSStoppedFrame) and self._is_spoken(frame.context_id)
        segment_id = getattr(frame, "segment_id", None)
        if not is_end and all(each.id != segment_id for each in self._announced):
            return []
        leaving: list[AggregatedTextFrame] = []
        while self._announced and (is_end or segment_id not in {each.id for each in leaving}):
            leaving.append(self._announced.popleft())
            leaving[-1].pts = frame.pts
        return leaving

    def _time(self, frame: Frame, pts: int, now_s: float) -> None:
        match frame:
            case TTSTextFrame() | AggregatedTextProgressFrame() | LLMFullResponseEndFrame():
                frame.pts = self._playout.heard_ns(pts)
            case LLMAssistantPushAggregationFrame():
                # Pipecat commits nothing before its output has reached the start of the utterance,
                # so a commit right behind a first and only word might come too early.
                frame.pts = self._playout.in_order_ns(self._playout.end_ns)
            case AggregatedTextFrame():
                frame.pts = self._playout.in_order_ns(pts)
            case _:
                pass
        if isinstance(frame, TTSTextFrame):
            while self._on_their_way and _time_s(self._on_their_way[0]) < now_s:
                self._on_their_way.popleft()
            self._on_their_way.append(frame)

    def word_at_hand_s(self, now_s: float) -> float:
        """Time until the word arrives that is due almost now; 0 without one."""
        waits_s = [_time_s(frame) - now_s for frame in self._on_their_way]
        return next((wait_s for wait_s in waits_s if _ROUNDING_S < wait_s <= _AT_HAND_S), 0.0)

    def _take_back_words(self, now_s: float) -> None:
        """Keep words whose time has not come out of the history, wherever their frames are."""
        for frame in self._on_their_way:
            if frame.interruptible and _time_s(frame) > now_s:
                frame.append_to_context = False
        self._on_their_way.clear()

    def _is_spoken(self, context_id: str | None) -> bool:
        """Whether text that leaves now was spoken; Pipecat assumes it once a context has ended."""
        has_audio = context_id is None or self._playout.has_audio(context_id)
        return has_audio and context_id != self._unspoken_context_id


def _time_s(frame: Frame) -> float:
    return (frame.pts or 0) / 1e9
