"""Keeps the LLM's text verbatim on its way through Pipecat: clauses in, words out.

Pipecat replaces the white space between sentences and words by single spaces. The two classes here
keep the original, so that the conversation's history is the LLM's own text, in scripts with and
without spaces. This module knows no sockets and no times.
"""

import unicodedata
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from pipecat.frames.frames import AggregatedTextFrame, TTSTextFrame
from pipecat.processors.aggregators.llm_context import LLMContextMessage
from pipecat.utils.text.base_text_aggregator import Aggregation, BaseTextAggregator, TextType

from voiceagent_tts.text.punctuation import (
    CLAUSE_ENDS,
    CLOSING,
    SENTENCE_ENDS,
    WIDE_CLAUSE_ENDS,
    WIDE_SENTENCE_ENDS,
    last_mark,
)
from voiceagent_tts.text.words import is_spoken

_FIRST_CLAUSE_CHARS = 12
"""Length from which the first clause of a reply ends at any white space: two or three words."""
_CLAUSE_CHARS = 48
"""Length from which a later clause ends at any white space."""

_WIDE_ENDS = WIDE_SENTENCE_ENDS | WIDE_CLAUSE_ENDS
_ENDS_BEFORE_SPACE = (SENTENCE_ENDS | CLAUSE_ENDS) - _WIDE_ENDS


class ClauseAggregator(BaseTextAggregator):
    """Collects LLM tokens and passes them on clause by clause, white space included.

    Pipecat's own aggregator waits for the first letter of the next sentence. This one passes a
    clause on with the white space after it, and the first clause of a reply after two or three
    words. The server joins the pieces and segments the text itself, so prosody depends on when
    they come and not on where they end. Joined, the pieces are the text.
    """

    def __init__(self, *, language: str | None = None) -> None:
        super().__init__(aggregation_type=TextType.SENTENCE, language=language)
        self._text = ""
        self._is_first = True

    @property
    def text(self) -> Aggregation:
        """The collected text that was not passed on yet."""
        return Aggregation(self._text, TextType.SENTENCE)

    async def aggregate(self, text: str) -> AsyncIterator[Aggregation]:
        """Append `text`; yields the clauses that it completes."""
        for character in text:
            if character.isspace():
                self._text += character
                if self._ends_before_space():
                    yield self._pop_clause()
            else:
                if self._ends_before(character):
                    yield self._pop_clause()
                self._text += character

    async def flush(self) -> Aggregation | None:
        """Return the remaining text at the end of a reply; None if there is none."""
        rest = self._pop_clause() if self._text else None
        self._is_first = True
        return rest

    async def handle_interruption(self) -> None:
        """Drop the collected text."""
        await self.reset()

    async def reset(self) -> None:
        """Drop the collected text and start a new reply."""
        self._text = ""
        self._is_first = True

    def _ends_before_space(self) -> bool:
        text = self._text.rstrip()
        limit = _FIRST_CLAUSE_CHARS if self._is_first else _CLAUSE_CHARS
        is_long = len(text) >= limit
        return is_spoken(text) and (is_long or last_mark(text) in _ENDS_BEFORE_SPACE)

    def _ends_before(self, character: str) -> bool:
        is_inside = character in _WIDE_ENDS or character in CLOSING
        return not is_inside and last_mark(self._text) in _WIDE_ENDS and is_spoken(self._text)

    def _pop_clause(self) -> Aggregation:
        text, self._text, self._is_first = self._text, "", False
        return Aggregation(text, TextType.SENTENCE)


@dataclass(slots=True)
class _Segment:
    """An announced text.

    Attributes:
        rest: its text after the last word.
        interruptible: whether an interruption drops its words.
    """

    rest: str
    interruptible: bool


class VerbatimSpacing:
    """Adds to Pipecat's word frames the white space before each word in the reply.

    A word frame names its segment, an announced `AggregatedTextFrame`. The white space between two
    words of the announced texts is added in front of the later word, and that frame is marked as
    one that brings its own spacing.
    """

    def __init__(self) -> None:
        self._segments: dict[int, _Segment] = {}  # by id, in order
        self._segment_id: int | None = None  # of the last word
        self._before = ""  # the last word of this reply

    def start_reply(self) -> None:
        """Note that the next word is the first of a message."""
        self._before = ""

    def interrupt(self) -> None:
        """Drop the segments whose words will not arrive."""
        kept = {key: each for key, each in self._segments.items() if not each.interruptible}
        self._segments = kept

    def announce(self, frame: AggregatedTextFrame) -> None:
        """Register a segment that is about to be spoken."""
        self._segments[frame.id] = _Segment(frame.raw_text or frame.text, frame.interruptible)

    def apply(self, frame: TTSTextFrame) -> None:
        """Add white space in front of `frame`, the next word of its segment."""
        word = frame.raw_text or frame.text
        space = self._space_before(frame.segment_id, word)
        if space is None:
            space = joint(self._before, word)
        if not self._before:
            space = ""
        frame.text = space + frame.text
        frame.raw_text = space + word
        frame.includes_inter_frame_spaces = True
        self._before, self._segment_id = word, frame.segment_id

    def _space_before(self, segment_id: int | None, word: str) -> str | None:
        """White space between the last word and `word`; None if the announced texts lack it."""
        if segment_id not in self._segments:
            return None
        between = ""
        while (first := next(iter(self._segments))) != segment_id:
            between += self._segments.pop(first).rest
        segment = self._segments[segment_id]
        before, found, after = segment.rest.partition(word)
        if not found:
            return None
        segment.rest = after
        between += before
        is_known = between.isspace() or (not between and segment_id == self._segment_id)
        return between if is_known else None


def without_end(messages: list[LLMContextMessage], end: str) -> list[LLMContextMessage]:
    """The messages of a history, the assistant's last text without `end`.

    An image of the user, for example, divides the text of a turn into several messages.
    """
    kept: list[Any] = list(messages)
    end = end.strip()
    for index in reversed(range(len(kept))):
        said = _said_in(kept[index])
        if not end or (said and not said.endswith(end) and not end.endswith(said)):
            break
        if said.endswith(end):
            rest = said.removesuffix(end).rstrip()
            kept[index : index + 1] = [{**kept[index], "content": rest}] if rest else []
            break
        if said:
            end = end.removesuffix(said).rstrip()
            del kept[index]
    return kept


def _said_in(message: Any) -> str:
    """The text of a message of the assistant; empty for others."""
    is_said = isinstance(message, dict) and message.get("role") == "assistant"
    content = message.get("content") if is_said else None
    return content if isinstance(content, str) else ""


def joint(before: str, after: str) -> str:
    """The separator between two texts that are spoken one after the other.

    Empty if one text is empty, has white space there, or is in a script without spaces (Chinese,
    Japanese); otherwise a space.
    """
    if not before or not after:
        return ""
    borders = before[-1], after[0]
    is_joined = any(border.isspace() or _needs_no_space(border) for border in borders)
    return "" if is_joined else " "


def _needs_no_space(character: str) -> bool:
    is_wide = unicodedata.east_asian_width(character) in ("W", "F")
    is_hangul = "\uac00" <= character <= "\ud7a3"
    return is_wide and not is_hangul and unicodedata.category(character) != "So"
