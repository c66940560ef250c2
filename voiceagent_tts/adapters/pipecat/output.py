"""`Output`: decides for each frame when it leaves for the transport, and corrects its text.

Pipecat commits the text frames that pass its output to the conversation's history. So this module
drops text that was not spoken, restores the white space of spoken text, and holds the frames of the
history until the audio chunk that makes their text audible plays. An interruption drops held
frames. Other frames pass unchanged.
"""

from collections import deque
from dataclasses import dataclass

from pipecat.frames.frames import (
    AggregatedTextFrame,
    AggregatedTextProgressFrame,
    ControlFrame,
    Frame,
    FunctionCallInProgressFrame,
    FunctionCallResultFrame,
    InterruptionFrame,
    LLMAssistantPushAggregationFrame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    LLMMessagesTransformFrame,
    TTSAudioRawFrame,
    TTSStartedFrame,
    TTSStoppedFrame,
    TTSTextFrame,
)
from pipecat.utils.text.base_text_aggregator import TextType

from voiceagent_tts.adapters.pipecat.playout import Playout
from voiceagent_tts.adapters.pipecat.text import VerbatimText
from voiceagent_tts.adapters.pipecat.turn import SpokenWord
from voiceagent_tts.core import ms_to_samples

_AT_HAND_S = 0.03
"""A word that is due this soon may be heard by the time at which an interruption reaches the
transport."""
_ROUNDING_S = 1e-6


@dataclass
class AudioEndFrame(TTSAudioRawFrame):
    """Marks the end of a context's audio in its queue; never leaves.

    It is audio without a sample: of a context without any, Pipecat would report an error, but a
    turn that failed has reported its own, and a text without words is none.

    Attributes:
        has_unspoken_text: whether no audio of the context's remaining text comes.
    """

    has_unspoken_text: bool = False


class KeepAliveFrame(ControlFrame):
    """Keeps Pipecat from ending a context that has been silent for long; never leaves."""


class HistoryCorrectionFrame(LLMMessagesTransformFrame):
    """Shortens a message of the history.

    The message is the one that the frame before commits: that frame may end a reply, or interrupt
    it.
    """


_HISTORY = (
    AggregatedTextFrame,
    AggregatedTextProgressFrame,
    LLMFullResponseStartFrame,
    LLMFullResponseEndFrame,
    LLMAssistantPushAggregationFrame,
    HistoryCorrectionFrame,
    FunctionCallInProgressFrame,
    FunctionCallResultFrame,
)
"""Frames that write the history, and those that begin, end or correct a message: they keep their
order. A frame that left without a time would wait behind the audio in the transport; others would
not."""


@dataclass(frozen=True, slots=True)
class _Place:
    """When `chunk` plays, or `after_s` after the end of that last chunk."""

    chunk: int
    after_s: float = 0.0


_AT_ONCE = _Place(-1)


@dataclass(slots=True)
class _Held:
    """A frame that leaves at `place`, after the frames that are held before it."""

    frame: Frame
    place: _Place
    word: SpokenWord | None = None


@dataclass(frozen=True, slots=True)
class _Said:
    """A text that has left for the history, and the word of the server that it is.

    Pipecat completes a segment with text that the server has not reported as a word.
    """

    text: str
    word: SpokenWord | None


class Output:
    """Corrects and holds the frames that leave the service, in order.

    Attributes:
        word: the word whose frames Pipecat makes now.
    """

    def __init__(self, playout: Playout) -> None:
        self.word: SpokenWord | None = None
        self._committed: SpokenWord | None = None
        """The last word of which a frame has added the text to the history."""
        self._appends = True  # whether the context's words belong to the history
        self._said_context_id: str | None = None
        """The context of the last word that has left for the history."""
        self._said: list[_Said] = []
        """The words of this context that have left."""
        self._playout = playout
        self._text = VerbatimText()
        self._word_start_s = 0.0  # of the context's last word, by its best time when it was held
        self._held: deque[_Held] = deque()
        self._announced: deque[AggregatedTextFrame] = deque()  # segments that wait for their words
        self._unspoken_context_id: str | None = None
        self._last_ns = 0

    def receive(self, frame: Frame, now_s: float) -> bool:
        """Account for `frame` and correct it; return whether it leaves at once."""
        match frame:
            case TTSTextFrame() | AggregatedTextProgressFrame():
                if not self._is_spoken(frame.context_id):
                    return False
                if isinstance(frame, TTSTextFrame) and self._appends:
                    self._correct_text(frame)
            case AggregatedTextFrame() if frame.will_be_spoken:
                self._text.announce(frame)
                self._announced.append(frame)
                return False
            case LLMFullResponseEndFrame() | LLMAssistantPushAggregationFrame():
                self._text.start_reply()
            case InterruptionFrame():
                self._interrupt()
            case TTSStartedFrame():
                self._appends = frame.append_to_context
                self._text.start_context(frame.context_id)
                self._playout.start_context(frame.context_id)
                self._word_start_s = 0.0
            case TTSAudioRawFrame():
                self._playout.play(frame, now_s)
            case _:
                pass
        for segment in self._announced_before(frame):
            self._hold(segment, frame)
        if not isinstance(frame, _HISTORY):
            return True
        self._hold(frame, frame)
        return False

    def _correct_text(self, frame: TTSTextFrame) -> None:
        """Let `frame` add to the history what belongs to it, once for all frames of a word."""
        word = self.word
        if word is not None and word is self._committed:
            frame.append_to_context = False
        elif word is not None and self._text.add_word(frame, word.text, word.sent):
            self._committed = word
        elif frame.append_to_context:
            self._text.add_found(frame)

    def lost(self, word: SpokenWord, context_id: str | None) -> TTSTextFrame | None:
        """A frame for a word for which Pipecat has made none; None if there is one."""
        if word is self._committed or not self._appends:
            return None
        segment_id = self._text.segment_of(word.text, word.sent)
        if segment_id is None:
            return None
        frame = TTSTextFrame(word.text, TextType.WORD, segment_id=segment_id)
        frame.context_id = context_id
        return frame

    def drop_text_of(self, context_id: str | None) -> None:
        """Text of `context_id` that leaves from now on was not spoken."""
        self._unspoken_context_id = context_id

    # Frames that are held.

    @property
    def is_holding(self) -> bool:
        """Whether any frame waits for its audio."""
        return bool(self._held)

    def pop_due(self, now_s: float) -> Frame | None:
        """Return the next held frame if its audio plays now."""
        if not self._held or self.wait_s(now_s) != 0.0:
            return None
        held = self._held.popleft()
        frame = held.frame
        if isinstance(frame, TTSTextFrame) and frame.append_to_context:
            self._note_said(frame, held.word)
        self._last_ns = max(self._last_ns, round(now_s * 1e9))
        frame.pts = self._last_ns  # or it would wait in the transport behind the audio there
        return frame

    def _note_said(self, frame: TTSTextFrame, word: SpokenWord | None) -> None:
        if frame.context_id != self._said_context_id:
            self._said_context_id, self._said = frame.context_id, []
        self._said.append(_Said(frame.raw_text or frame.text, word))

    def unheard(self, now_s: float) -> str:
        """The end of what has left for the history that was not heard."""
        words = [each.word for each in self._said if each.word]
        if not (words and self._said_context_id) or self._playout.is_past(self._said_context_id):
            return ""
        if words[-1].is_whole and self._playout.is_heard(self._said_context_id, now_s):
            return ""
        heard = ms_to_samples(self._playout.heard_ms(self._said_context_id, now_s))
        first = len(self._said)
        for index in reversed(range(first)):
            word = self._said[index].word
            if word is not None and not word.is_unheard(heard):
                break
            first = first if word is None else index
        return "".join(each.text for each in self._said[first:])

    def wait_s(self, now_s: float) -> float | None:
        """Time until the next frame leaves; None while it depends on a report of the transport."""
        if not self._held:
            return None
        place = self._next_place
        if place == _AT_ONCE:
            return 0.0
        if place.after_s:
            return self._playout.wait_after_s(place.chunk, place.after_s, now_s)
        return self._playout.wait_s(place.chunk, now_s)

    @property
    def _next_place(self) -> _Place:
        """Where the next frame leaves: a word by its best time, while its context's audio leaves.

        It may have got here with an estimate.
        """
        held = self._held[0]
        if held.word is None or not self._playout.plays(getattr(held.frame, "context_id", None)):
            return held.place
        return self._place_of(held.word.start_s)

    def _place_of(self, position_s: float) -> _Place:
        """Where a word at this position of the current context leaves.

        What the listener hears of the end of an utterance when the transport has played it all
        leaves by the clock. A word that is too short to be heard leaves with the last chunk.
        """
        playout = self._playout
        chunk = min(playout.chunk_at(position_s), playout.last_chunk)
        return _Place(chunk, playout.after_end_s(position_s))

    def report_overdue_s(self, now_s: float) -> float | None:
        """Time until the transport has been silent about the next frame for too long."""
        return self._playout.report_overdue_s(self._next_place.chunk, now_s) if self._held else None

    def word_at_hand_s(self, now_s: float) -> float:
        """Time until the word leaves that is due almost now; 0 without one."""
        if not self._held:
            return 0.0
        wait_s = self._playout.at_hand_s(self._next_place.chunk, now_s)
        return wait_s if _ROUNDING_S < wait_s <= _AT_HAND_S else 0.0

    def _hold(self, frame: Frame, reason: Frame) -> None:
        """Hold `frame` until the audio of `reason` plays, after all frames held before it."""
        word = None
        match reason:
            case TTSTextFrame() | AggregatedTextProgressFrame():
                word = self.word
                self._word_start_s = word.start_s if word else self._word_start_s
                place = self._place_of(self._word_start_s)
            case LLMAssistantPushAggregationFrame():
                place = _Place(self._playout.last_chunk)
            case _:
                place = _AT_ONCE
        self._held.append(_Held(frame, place, word))

    def _announced_before(self, frame: Frame) -> list[AggregatedTextFrame]:
        """The segments that leave ahead of `frame`, their next word or the end.

        Pipecat announces a segment when its text is there, and a context's first one when the audio
        before it has left, with the time of the last word. The transport would hold back all words
        before that time, which wait for their audio, and lose them at an interruption.
        """
        is_end = isinstance(frame, TTSStoppedFrame)
        segment_id = getattr(frame, "segment_id", None)
        if not is_end and all(each.id != segment_id for each in self._announced):
            return []
        leaving: list[AggregatedTextFrame] = []
        while self._announced and (is_end or segment_id not in {each.id for each in leaving}):
            leaving.append(self._announced.popleft())
        return leaving if not is_end or self._is_spoken(frame.context_id) else []

    def _interrupt(self) -> None:
        """Drop the held frames, so that words that will not be heard do not enter the history."""
        self._text.interrupt()
        self._announced = deque(each for each in self._announced if not each.interruptible)
        goes_on = not self._playout.interrupt()
        if not goes_on:
            self._said_context_id, self._said = None, []
        kept = [each for each in self._held if not each.frame.interruptible]
        if not any(isinstance(each.frame, TTSTextFrame) for each in kept):
            self._text.start_reply()
        self._held = deque(each if goes_on else _Held(each.frame, _AT_ONCE) for each in kept)

    def _is_spoken(self, context_id: str | None) -> bool:
        """Whether text that leaves now was spoken; Pipecat assumes it once a context has ended."""
        has_audio = context_id is None or self._playout.has_audio(context_id)
        return has_audio and context_id != self._unspoken_context_id
