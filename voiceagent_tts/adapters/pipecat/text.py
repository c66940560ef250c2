"""Keeps the LLM's text verbatim on its way through Pipecat: clauses in, words out.

Pipecat replaces the white space between sentences and words by single spaces. The two classes here
keep the original, so that the conversation's history is the LLM's own text, in scripts with and
without spaces.
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

CONTINUES = "voiceagent-tts: continues"
"""Key in the metadata of a piece that continues the text before it, white space included. It may be
announced when the next reply has begun."""

_WIDE_ENDS = WIDE_SENTENCE_ENDS | WIDE_CLAUSE_ENDS
_ENDS_BEFORE_SPACE = (SENTENCE_ENDS | CLAUSE_ENDS) - _WIDE_ENDS


class ClauseAggregator(BaseTextAggregator):
    """Collects LLM tokens and passes them on clause by clause, white space included.

    Pipecat's own aggregator waits for the first letter of the next sentence. This one passes a
    clause on with the white space after it, and the first clause of a reply after two or three
    words. The server joins the pieces and segments the text itself, so prosody depends on when
    they come and not on where they end. Joined, the pieces are the text.

    Args:
        by_token: whether to pass each token on at once: for an LLM that writes more slowly than one
            speaks.
    """

    def __init__(self, *, language: str | None = None, by_token: bool = False) -> None:
        super().__init__(aggregation_type=TextType.SENTENCE, language=language)
        self._by_token = by_token
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
        if self._by_token and self._can_be_matched():
            yield self._pop_clause()

    def pop(self) -> Aggregation | None:
        """Return the collected text, whose rest may follow; None if it is white space."""
        return self._pop_clause() if self._text.strip() else None

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

    def _can_be_matched(self) -> bool:
        """Whether it is more than a symbol, which Pipecat would not find in any word."""
        return is_spoken(self._text) or last_mark(self._text) in SENTENCE_ENDS

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
        rest: what no frame has added to the history, with what separates it from the text before.
        is_verbatim: whether it is known to have reached the server as it is.
    """

    context_id: str | None
    rest: str
    interruptible: bool
    is_verbatim: bool = False


class VerbatimText:
    """Says what each of Pipecat's word frames adds to the history: the announced text, to a letter.

    Pipecat follows the server's words through its text by comparing both. It loses white space,
    closing tags and words beside tags, and repeats marks after symbols that are composed of several
    characters. So where the server speaks the announced text as it is, each of its words adds the
    text up to its end. Of text that filters or transforms have changed, a frame adds what Pipecat
    found, with the white space and the marks before it.
    """

    def __init__(self) -> None:
        self._segments: dict[int, _Segment] = {}  # by id, in order
        self._announced = ""  # the last announced text
        self._context_id: str | None = None  # of that
        self._before = ""  # what was added last to this message

    def start_reply(self) -> None:
        """Note that the next word is the first of a message."""
        self._before = ""

    def start_context(self, context_id: str | None) -> None:
        """Forget the segments of the contexts before, which have ended, but for white space."""
        for key, segment in list(self._segments.items()):
            if segment.context_id == context_id:
                return
            if segment.rest.strip() or not segment.rest:
                del self._segments[key]

    def interrupt(self) -> None:
        """Drop the segments whose words will not arrive."""
        kept = {key: each for key, each in self._segments.items() if not each.interruptible}
        self._segments = kept

    def announce(self, frame: AggregatedTextFrame) -> None:
        """Register a segment that is about to be spoken."""
        text = frame.raw_text or frame.text
        is_continuation = CONTINUES in frame.metadata and frame.context_id == self._context_id
        space = "" if is_continuation else joint(self._announced, text)
        self._segments[frame.id] = _Segment(frame.context_id, space + text, frame.interruptible)
        self._announced, self._context_id = text, frame.context_id

    def segment_of(self, word: str, sent: str) -> int | None:
        """The segment with the server's next `word`; None if the announced text is another.

        The server has got the text `sent`.
        """
        end = self._end_of(word)
        return None if end is None else self._segment_before(end, sent)

    def add_word(self, frame: TTSTextFrame, word: str, sent: str) -> bool:
        """Let `frame` add the server's next `word`; return False if the text is another."""
        end = self._end_of(word)
        if end is None or self._segment_before(end, sent) is None:
            return False
        text = self._pop(end)
        self._add(frame, text, text)
        return True

    def add_found(self, frame: TTSTextFrame) -> None:
        """Let `frame` add what Pipecat has found, or nothing if the history has that."""
        word = frame.raw_text or frame.text
        text = self._found(frame.segment_id, word)
        if text is None:
            text = joint(self._before, word) + word
        said = text.removesuffix(word) + frame.text if text.endswith(word) else text
        self._add(frame, text, said)

    def _add(self, frame: TTSTextFrame, text: str, said: str) -> None:
        if not self._before:
            text, said = text.lstrip(), said.lstrip()
        frame.append_to_context = bool(text.strip())
        if frame.append_to_context:
            frame.text, frame.raw_text, self._before = said, text, text
            frame.includes_inter_frame_spaces = True

    def _segment_before(self, end: int, sent: str) -> int | None:
        """The first segment before `end` with text; None if one of them was not sent as it is."""
        first: int | None = None
        for key, segment in self._segments.items():
            if end > 0 and segment.rest.strip():
                segment.is_verbatim = segment.is_verbatim or segment.rest.strip() in sent
                if not segment.is_verbatim:
                    return None
                first = key if first is None else first
            end -= len(segment.rest)
        return first

    def _end_of(self, word: str) -> int | None:
        """End of `word` if the rest of the announced text begins with it, whatever its spaces."""
        rest, at = "".join(segment.rest for segment in self._segments.values()), 0
        for piece in word.split():
            at = len(rest) - len(rest[at:].lstrip())
            if not rest.startswith(piece, at):
                return None
            at += len(piece)
        return at

    def _found(self, segment_id: int | None, word: str) -> str | None:
        """The text up to the end of `word` in a segment; None if Pipecat's word is all there is."""
        if segment_id not in self._segments:
            return None
        before = 0
        for key, segment in self._segments.items():
            if key == segment_id:
                break
            before += len(segment.rest)
        segment = self._segments[segment_id]
        place = segment.rest.find(word)
        if place < 0 and not segment.is_verbatim:
            return None if is_spoken(word) else ""
        if place < 0:  # its words are in the history
            return "" if is_spoken(segment.rest) else self._pop(before + len(segment.rest))
        text = self._pop(before + place + len(word))
        return None if is_spoken(text.removesuffix(word)) else text

    def _pop(self, count: int) -> str:
        text = ""
        for segment in self._segments.values():
            taken = segment.rest[: count - len(text)]
            segment.rest = segment.rest[len(taken) :]
            text += taken
        return text


def without_end(messages: list[LLMContextMessage], end: str) -> list[LLMContextMessage]:
    """The messages of a history, without `end` in what the assistant has said since the user spoke.

    An image of the user, for example, divides the text of a turn into several messages.
    """
    kept: list[Any] = list(messages)
    end = end.strip()
    for index in reversed(range(len(kept))):
        said = _said_in(kept[index])
        if (
            not end
            or _is_said_by_user(kept[index])
            or (said and not said.endswith(end) and not end.endswith(said))
        ):
            break
        if said.endswith(end):
            rest = said.removesuffix(end).rstrip()
            kept[index : index + 1] = [{**kept[index], "content": rest}] if rest else []
            break
        if said:
            end = end.removesuffix(said).rstrip()
            del kept[index]
    return kept


def _is_said_by_user(message: Any) -> bool:
    """Whether it is the user's text alone: Pipecat adds the user's images within a turn."""
    if not isinstance(message, dict) or message.get("role") != "user":
        return False
    content = message.get("content")
    return isinstance(content, str) or all(part.get("type") == "text" for part in content or ())


def _said_in(message: Any) -> str:
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
