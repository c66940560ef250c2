"""The text of a context, divided into the segments that are spoken one after the other.

`Intake` keeps the verbatim text, counts its characters, and divides it in bounded steps. `due_at`
says when more segments will follow without new text. Text with a lexicon or markup has an intake of
its own, in `masked_intake`. `Turns` says when contexts, and connections, may use the event loop.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from voiceagent_tts.core import Pause, Segment, Word, earliest
from voiceagent_tts.errors import ErrorCode, InvalidRequestError
from voiceagent_tts.synthesizer.options import ContextRequest, Limits
from voiceagent_tts.text.language import detect_language
from voiceagent_tts.text.segmenter import MAX_SEGMENT_CHARS, Segmenter

if TYPE_CHECKING:
    from voiceagent_tts.text.reader import MaskingSegmenter

MAX_CONTEXT_CHARS = 300_000
"""Maximum text of one context, said or not: 5 hours of speech. `cut` is answered with all of it."""
_SHORTEST_RETRY_S = 0.05
_READ_CHARS = 32  # characters that are divided at once
_MOST_AHEAD_CHARS = 1_000
"""Maximum text in segments ahead of its audio, with readings at their own length: a minute of
speech. It bounds the work for text that is then cancelled or over a limit."""
_LANGUAGE_CHARS = 1_000  # of a text, for its language, where its segments have none


@dataclass(frozen=True, slots=True)
class QueuedSegment:
    """A segment to speak after the segments before it."""

    segment: Segment
    language: str | None  # its code; None if the engine chooses
    is_last: bool = False  # no text follows
    is_growing: bool = False  # its last word may grow, as the text is fed token by token


@dataclass(frozen=True, slots=True)
class Flush:
    """A flush with the client's number of it, after the text that ends at `char_end`."""

    flush_id: int
    char_end: int


@dataclass(frozen=True, slots=True)
class Finish:
    """The end of the text."""


@dataclass(frozen=True, slots=True)
class _Expiry:
    """The end of a wait for more text."""


TextPart = QueuedSegment | Pause | Flush | Finish


class Intake:
    """Divides the text of one context into segments, also when no more text arrives.

    A sentence end at the end of the buffer is final after a pause of `settle_s`. Other text waits
    for `max_buffer_delay_ms`; then its complete words are released. In token feeding every delta is
    a segment.
    """

    surplus_chars = 0  # that the readings so far say more than they replace

    def __init__(self, request: ContextRequest, limits: Limits) -> None:
        self.chars = 0  # received
        self.received: deque[str | Flush | Finish | _Expiry] = deque()  # waits to be divided
        self.divided: deque[TextPart] = deque()  # waits to be sent to the engine
        self.divided_char_end = 0
        self.generated_char_end = 0  # of the text whose audio is complete
        self.due_at: float | None = None  # for `expire`; None if only more text decides
        self._is_token_fed = request.feeding == "token"
        self._detects_language = request.language is None and not self._is_token_fed
        self._max_buffer_delay_s = request.options.max_buffer_delay_ms / 1000
        self._settle_s = limits.settle_s
        self._max_chars = limits.max_text_chars
        self._text: list[str] = []
        """The text in parts, each longer than the next one, so that there are few."""
        self._silent: list[QueuedSegment] = []
        """Segments without a word, held until the first one with words decides the language."""
        self._language = request.language
        self._segment_language = request.language  # of the last segment; None if unknown
        self._settle_at: float | None = None
        self._release_at: float | None = None

    @cached_property
    def _segmenter(self) -> "Segmenter | MaskingSegmenter":
        return Segmenter(language=self._language, is_token_fed=self._is_token_fed)

    @property
    def text(self) -> str:
        """All text received; a new string at each call."""
        return "".join(self._text)

    def text_between(self, start: int, end: int) -> str:
        """The characters from `start` to `end` of the text received."""
        found: list[str] = []
        for part in self._text:
            found.append(part[max(0, start) : max(0, end)])
            start, end = start - len(part), end - len(part)
        return "".join(found)

    @property
    def verbatim(self) -> Callable[[Word], Word] | None:
        """Returns a word with the client's characters, where words may be masked; else None."""
        return None

    def speech_language(self) -> str:
        """Language of the speech so far, detected if it was not given."""
        start = self.text_between(0, _LANGUAGE_CHARS)
        return self._segment_language or detect_language(start, None)

    def receive(self, delta: str) -> None:
        """Append `delta` to the text; raises as `Context.push_text`."""
        if self.chars + len(delta) > MAX_CONTEXT_CHARS:
            raise too_long(f"{MAX_CONTEXT_CHARS} characters in one context; open another one")
        waiting = self._waiting_chars(self.chars) + len(delta)
        if waiting > self._max_chars:
            most = f"{self._max_chars} characters waiting to be spoken, got {waiting}"
            raise too_long(f"{most}; send the rest once audio has arrived")
        self.chars += len(delta)
        self.received.append(delta)
        while self._text and len(self._text[-1]) <= len(delta):
            delta = self._text.pop() + delta
        self._text.append(delta)

    def check_readings(self) -> None:
        """Raise an error if readings are too long; a plain text has none."""

    def mark_generated(self, char_end: int) -> None:
        """Record that the audio of the text before `char_end` is complete."""
        self.generated_char_end = max(self.generated_char_end, char_end)

    def _waiting_chars(self, char_end: int) -> int:
        """Length, as it is said, of the text before `char_end` whose audio is not complete."""
        return char_end - self.generated_char_end

    def _said_chars(self, segment: Segment) -> int:
        return len(segment.text)

    # Waiting text is divided a few characters at a time.

    @property
    def is_far_ahead(self) -> bool:
        """Whether the segments sent to the engine are far ahead of their audio.

        Those in `divided` do not count: an engine that has spoken all that it got needs the next.
        """
        ahead_chars = self._waiting_chars(self.divided_char_end)
        if self._is_token_fed or ahead_chars <= _MOST_AHEAD_CHARS:
            return False
        waiting = [part.segment for part in self.divided if isinstance(part, QueuedSegment)]
        return ahead_chars - sum(map(self._said_chars, waiting)) > _MOST_AHEAD_CHARS

    def pop_parts(self, now: float) -> list[TextPart]:
        """Return the next segment, if a few more characters complete it, and the breaks after it.

        A break must be known before the audio of the text before it ends.
        """
        if not self.divided:
            self._divide_next(now)
        parts = [self.divided.popleft()] if self.divided else []
        while self.divided and not isinstance(self.divided[0], QueuedSegment):
            parts.append(self.divided.popleft())
        return parts

    def expire(self, now: float) -> None:
        """Divide the text whose wait is over, unless more text has arrived."""
        if not self.received and is_over(self.due_at, now):
            self.received.append(_Expiry())

    def clear(self) -> None:
        """Drop what waits."""
        self.received.clear()
        self.divided.clear()

    def _divide_next(self, now: float) -> None:
        match received := self.received.popleft():
            case str():
                if rest := received[_READ_CHARS:]:
                    self.received.appendleft(rest)
                self._push(received[:_READ_CHARS], now)
            case Flush():
                self.divided += (*self._queued(self._segmenter.flush()), *self._take_silent())
                self._wait_for_text(now)
                self.divided.append(received)
            case Finish():
                self._finish()
                self.divided.append(received)
            case _Expiry():
                if not self.received:  # no more text has arrived
                    self._expire(now)
        self.due_at = earliest(self._settle_at, self._release_at)

    def _push(self, delta: str, now: float) -> None:
        self._add(self._segmenter.push(delta))
        self._wait_for_text(now)

    def _add(self, parts: Sequence[Segment | Pause]) -> None:
        if parts:
            self._release_at = None  # the oldest character in the buffer is a new one
            self.divided += self._queued(parts)

    def _finish(self) -> None:
        """Divide all buffered text; its last segment is the last of the context."""
        queued = [*self._queued(self._segmenter.flush()), *self._take_silent()]
        if queued and isinstance(queued[-1], QueuedSegment):
            queued[-1] = replace(queued[-1], is_last=True)
        self.divided += queued
        self._settle_at = self._release_at = None

    def _expire(self, now: float) -> None:
        if is_over(self._settle_at, now):
            self._settle_at = None
            self.divided += self._queued(self._segmenter.settle())
            if not self._segmenter.pending:
                self._release_at = None
        if is_over(self._release_at, now):
            self.divided += self._queued(self._segmenter.release())
            retry_at = now + max(_SHORTEST_RETRY_S, self._max_buffer_delay_s)
            self._release_at = retry_at if self._segmenter.pending else None

    def _queued(self, parts: Iterable[Segment | Pause]) -> list[TextPart]:
        queued: list[TextPart] = []
        for part in parts:
            if isinstance(part, Pause):
                queued.append(part)
            else:
                self.divided_char_end += len(part.text)
                queued += self._with_language(part)
        return queued

    def _with_language(self, segment: Segment) -> list[QueuedSegment]:
        """Queue a segment and the silent ones before it; nothing while all are silent."""
        if not self._detects_language:
            language, is_growing = self._segment_language, self._is_token_fed
            return [QueuedSegment(segment, language, is_growing=is_growing)]
        text = self._written(segment)
        rest = self._arrived_rest() if self._segment_language is None else ""
        language = detect_language(text, self._segment_language, rest)
        if any(map(str.isalpha, text)):
            self._segment_language = language
        elif self._segment_language is None and not any(map(str.isalnum, text)):
            self._silent.append(QueuedSegment(segment, language))
            return self._take_silent() if self.divided_char_end > MAX_SEGMENT_CHARS else []
        return [*self._take_silent(language), QueuedSegment(segment, language)]

    def _arrived_rest(self) -> str:
        """The beginning of the text that has arrived and is not divided."""
        return self.text_between(self.divided_char_end, self.divided_char_end + _LANGUAGE_CHARS)

    def _written(self, segment: Segment) -> str:
        return segment.text

    def _take_silent(self, language: str | None = None) -> list[QueuedSegment]:
        """Queue the silent segments that wait, in `language` if it is known."""
        silent, self._silent = self._silent, []
        return [replace(each, language=language or each.language) for each in silent]

    def _wait_for_text(self, now: float) -> None:
        if not self._segmenter.pending:
            self._settle_at = self._release_at = None
            return
        self._settle_at = now + self._settle_s if self._segmenter.ends_sentence else None
        if self._release_at is None:
            self._release_at = now + self._max_buffer_delay_s


def too_long(limit: str) -> InvalidRequestError:
    """The error of text, or of flushes, above a limit."""
    return InvalidRequestError(f"expected at most {limit}", code=ErrorCode.TEXT_TOO_LONG)


@dataclass(slots=True)
class _Piece:
    work: Callable[[], object]
    cost: int  # 0 if its owner no longer waits


class Turns:
    """Does work of one kind: so much in each iteration of the event loop, the rest in later ones.

    Owners take turns: the next piece of one waits for at most one piece of each other owner.

    Args:
        most: cost of the work that is begun in one iteration. The last piece may exceed it.
    """

    def __init__(self, most: int = 1) -> None:
        self._most = self._left = most
        self._waiting: dict[str, deque[_Piece]] = {}
        """Work by its owner, the one whose turn is next first."""
        self._has_begun = False

    def take_now(self, cost: int = 1) -> bool:
        """Count the caller's work and return True, if none waits and this iteration has room."""
        is_free = not self._waiting and self._left > 0
        if is_free:
            self._count(cost)
        return is_free

    def add(self, owner: str, work: Callable[[], object], cost: int = 1) -> _Piece:
        """Do `work` when it is the owner's turn, which is never before this call has returned."""
        piece = _Piece(work, cost)
        self._waiting.setdefault(owner, deque()).append(piece)
        self._begin_again()
        return piece

    def take(self, owner: str, work: Callable[[], object], cost: int = 1) -> None:
        """Do `work` now if there is room in this iteration, else when it is the owner's turn."""
        if self.take_now(cost):
            work()
        else:
            self.add(owner, work, cost)

    async def wait(self, owner: str, cost: int = 1) -> None:
        """Return now if there is room in this iteration, else when it is the owner's turn."""
        if self.take_now(cost):
            return
        turn = asyncio.Event()
        piece = self.add(owner, turn.set, cost)
        try:
            await turn.wait()
        except asyncio.CancelledError:
            piece.cost = 0
            raise

    def _count(self, cost: int) -> None:
        self._left -= cost
        self._begin_again()

    def _begin_again(self) -> None:
        if not self._has_begun:
            asyncio.get_running_loop().call_soon(self._begin)
            self._has_begun = True

    def _begin(self) -> None:
        self._left, self._has_begun = self._most, False
        while self._waiting and self._left > 0:
            owner, works = next(iter(self._waiting.items()))
            del self._waiting[owner]
            piece = works.popleft()
            if works:
                self._waiting[owner] = works  # after the others
            self._count(piece.cost)
            piece.work()


def is_over(time_s: float | None, now: float) -> bool:
    """Whether a time has passed; it never does where it is None."""
    return time_s is not None and time_s <= now
