"""Cleaning: the characters of a text that a voice should speak, and the origin of each.

A text is cleaned word by word, each with the unspoken characters before it, because a text that is
still being written is cleaned in the same way: what is spoken does not depend on how the text was
divided. HTML entities are first replaced by the characters that they name. A word is complete when
the next one begins; the first of a line also has its bullet or heading mark, and a link, a tag or
a path through menus is not divided. The rules are in `text/cleaning_rules.py`. Engines read numbers
and abbreviations themselves, or are given words by `text/normalizer.py`.
"""

import re
import unicodedata
from collections.abc import Iterator

from voiceagent_tts.text.cleaning_rules import (
    BEGUN_PATH,
    COMMA,
    GAP,
    NOTHING,
    STOP,
    UNSAID,
    Speakable,
    apply_rules,
    plain_characters,
)
from voiceagent_tts.text.punctuation import (
    CLAUSE_ENDS,
    CLOSING,
    DASHES,
    SENTENCE_ENDS,
    begun_entity_at,
    name_entities,
)
from voiceagent_tts.text.words import is_spoken, next_word_start

_MAX_LABEL_CHARS = 200
"""A bracket or tag that is not closed within this many characters is plain text."""
_MAX_WORD_CHARS = 1_000
"""A longer word is cleaned in parts of this length, so that no single part takes long. White space
before the word is not counted."""
_WRAPPED_CHARS = 40
"""Minimum length of a wrapped line: a break after it is no pause before a lower-case letter."""
_RULES_LOOK_BACK = 60
"""Characters before a word that a rule may match, such as the name of a menu and what opens it."""

_CLEAN = re.compile(
    r"(?:[A-Za-z0-9À-ÿΆΈ-ΊΌΎ-ΡΣ-ώЀ-ҁҊ-ӿ々〇ぁ-んァ-ヺー一-鿿가-힣.,;!?'\"()%$€£°’‘“”«»…、。，！？；：「」『』·・]"
    r"|&(?![A-Za-z#])|(?<!mailto):|(?<!/)/(?!/)|(?<=\w)-(?=\w)|(?<=[^\s]) (?=[^\s]))*+"
)
"""Texts that stay as they are: no rule matches in them, no character is replaced, and none composes
with the one before. Most words are such texts, and are read fifteen times as fast."""

_SEPARATORS = frozenset((" ", GAP, COMMA, STOP))
_PUNCTUATION = SENTENCE_ENDS | CLAUSE_ENDS | frozenset("､")
_LATE_MARKS = _PUNCTUATION.union(CLOSING) - DASHES
"""Marks that belong to the word before them even after white space, as in French."""

_BLOCK_MARKS = re.compile(r"(?:(?<!\S)(?:\d{1,3}[.)]|\[[xX]\])(?!\S)|[\W_])*+")
"""The beginning of a line before its first word: bullets, numbers, boxes, heading marks."""
_FENCE = re.compile(r" *+(?:`{3,}|~{3,})[^\n`]*")
_HEADING = re.compile(r" *+#{1,6}(?: |$)")
_OPEN_TARGET = re.compile(r"\((?:[^()\s]|\([^()\s]*\))*+(?:\([^()\s]*| +\"[^\"\n]*\"?)?\Z")
_OPEN_TAG = re.compile(r"</?[A-Za-z][A-Za-z0-9-]*(?:[\s/]|\Z)|<!--")
_SPOKEN = re.compile(r"[^\W_]")
_OPENING = re.compile(r"[\[<]")
_SPACE = re.compile(r"\s*+")


def speakable(text: str) -> Speakable:
    """Return the spoken form of one segment; empty if it has no letter and no digit.

    The time is linear in the length of `text`, whatever it contains.
    """
    start = 1 if text.startswith(" ") else 0  # of a segment that follows another one
    if _CLEAN.fullmatch(text, start):
        clean = Speakable(text[start:], tuple(range(start, len(text))))
        return clean if is_spoken(text) else NOTHING
    cleaner = Cleaner()
    cleaner.push(text)
    parts = [*cleaner.words(), cleaner.finish()]
    offsets = tuple(offset for part in parts for offset in part.offsets)
    return Speakable("".join(part.spoken for part in parts), offsets)


class Cleaner:
    """Cleans a text while it is being written.

    Attributes:
        char_end: end of the text that was returned.
    """

    def __init__(self) -> None:
        self.char_end = 0
        self._text = ""
        self._begun = ""  # text after `_text` that may become an entity
        self._at = 0  # start of what is not returned, in `_text`
        self._judged = 0  # no word ends between `_at` and here
        self._visible = 0  # all is white space between `_at` and here
        self._begin()

    def _begin(self) -> None:
        self._before = ""  # last plain characters that were returned
        self._line_chars = 0  # length of the line so far
        self._is_heading = False
        self._has_spoken = False
        self._spoken_end = ""
        self._waiting: dict[str, int] = {}  # separators since then, with their first offset

    def push(self, delta: str) -> None:
        """Append written text."""
        written = self._begun + delta
        end = begun_entity_at(written)
        self._begun = written[end:]
        self._append(name_entities(written[:end]))

    def _append(self, text: str) -> None:
        self._text = self._text[self._at :] + text
        self._judged = max(0, self._judged - self._at)
        self._visible = max(0, self._visible - self._at)
        self._at = 0

    def words(self) -> Iterator[Speakable]:
        """Return what is spoken of every word that later text cannot change, one by one."""
        while (end := self._word_end()) is not None:
            yield self._take(end)

    def finish(self) -> Speakable:
        """Return the rest of the text; more may be pushed, and is cleaned as a new text."""
        self._append(self._begun)
        self._begun = ""
        rest = self._take(len(self._text))
        self._begin()
        return rest

    def restart(self) -> None:
        """Clean what follows as a new text."""
        self._begin()

    # Words

    def _word_end(self) -> int | None:
        text, at = self._text, self._at
        longest = len(text)
        if longest - at > _MAX_WORD_CHARS:
            self._visible = _first_visible(text, max(at, self._visible))
            longest = min(longest, self._visible + _MAX_WORD_CHARS)
        index = next_word_start(text, max(at + 1, self._judged))
        while index is not None and index < longest and (least := self._least_end(index)) > index:
            index = next_word_start(text, least)
        if longest < len(text) and (index is None or index > longest):
            index = longest
        self._judged = len(text) if index is None else index
        return index

    def _least_end(self, index: int) -> int:
        """The first index from `index` on, where a word ends, at which it may be complete.

        It is `index` itself if what is written before it can be cleaned by itself.
        """
        text, at = self._text, self._at
        if _OPENING.search(text, at, index) and _is_open(text, at, index):
            return index + 1
        sign = text.rfind(" > ", at, index)
        if sign >= 0 and BEGUN_PATH.fullmatch(text, sign, index):
            return index + 1
        line_start = text.rfind("\n", at, index) + 1 or at
        if line_start > at or not self._before:
            marks = _BLOCK_MARKS.match(text, line_start)
            if marks is not None and marks.end() >= index:
                return marks.end() + 1
            if _FENCE.fullmatch(text, line_start, index) and text[index] != "\n":
                return index + 1
        written = UNSAID.sub("", text[at:index])
        if is_spoken(written) or (self._spoken_end and _LATE_MARKS.issuperset(written.strip())):
            return index
        word = _SPOKEN.search(text, index)
        return len(text) if word is None else word.end()

    def _take(self, end: int) -> Speakable:
        text, start = self._text, self._at
        first = start + 1 if text[start : start + 1] == " " else start
        is_clean = first < end and _CLEAN.fullmatch(text, first, end) is not None
        spoken = self._as_written(first, end) if is_clean else self._cleaned(text[start:end])
        self._has_spoken = self._has_spoken or is_spoken(spoken.spoken)
        if not self._has_spoken:  # such as "..." before a text, or without one
            spoken, self._spoken_end = NOTHING, ""
        self._at = end
        self.char_end += end - start
        return spoken

    def _as_written(self, first: int, end: int) -> Speakable:
        text, offset = self._text, self.char_end - self._at
        if first > self._at:
            self._waiting.setdefault(" ", self.char_end)
        word, places = text[first:end], range(offset + first, offset + end)
        gap = self._separators(word[:2]) if self._waiting else []
        self._before = (self._before + text[self._at : end])[-_RULES_LOOK_BACK:]
        self._line_chars += end - self._at
        self._spoken_end = (self._spoken_end + word)[-_LOOK_BACK:]
        if gap:
            word = "".join(separator for separator, _ in gap) + word
        return Speakable(word, (*(place for _, place in gap), *places))

    def _cleaned(self, written: str) -> Speakable:
        plain = plain_characters(written, self.char_end)
        breaks = self._line_breaks(plain)
        draft = apply_rules(plain, self._before)
        self._before = (self._before + plain.spoken)[-_RULES_LOOK_BACK:]
        return self._joined(draft, breaks)

    # Pauses and white space

    def _line_breaks(self, plain: Speakable) -> dict[int, str]:
        lines = plain.spoken.split("\n")
        breaks: dict[int, str] = {}
        at = 0
        for number, line in enumerate(lines):
            if number or not self._before:
                self._is_heading = _HEADING.match(line) is not None
                self._line_chars = 0
            self._line_chars += len(line)
            at += len(line)
            if number < len(lines) - 1:
                breaks[plain.offsets[at]] = self._break(line, lines[number + 1])
                at += 1
        return breaks

    def _break(self, line: str, following: str) -> str:
        if self._is_heading:
            return STOP
        is_blank = self._line_chars == len(line) and not line.strip()
        is_wrapped = self._line_chars >= _WRAPPED_CHARS and following.lstrip(" >")[:1].islower()
        return " " if is_blank or is_wrapped else COMMA

    def _joined(self, draft: Speakable, breaks: dict[int, str]) -> Speakable:
        """Turn runs of white space, gaps and pauses into spoken separators."""
        spoken: list[str] = []
        offsets: list[int] = []
        for at, (character, offset) in enumerate(zip(draft.spoken, draft.offsets, strict=True)):
            character = breaks.get(offset, " ") if character == "\n" else character
            if character in _SEPARATORS:
                self._waiting.setdefault(character, offset)
                continue
            if self._waiting:
                for separator, place in self._separators(draft.spoken[at : at + 2]):
                    spoken.append(separator)
                    offsets.append(place)
            spoken.append(character)
            offsets.append(offset)
            self._spoken_end = (self._spoken_end + character)[-_LOOK_BACK:]
        return Speakable("".join(spoken), tuple(offsets))

    def _separators(self, following: str) -> list[tuple[str, int]]:
        """Spoken separators, with offsets, between the last character and the `following` two."""
        waiting, spoken = self._waiting, self._spoken_end
        self._waiting = {}
        if not (waiting and spoken):
            return []
        place = min(waiting.values())
        is_apart = waiting.keys() != {GAP}
        begins_word = is_apart and following[0] == "." and following[1:].isalnum()  # as ".NET"
        is_mark = following[0] in _PUNCTUATION and not begins_word
        is_wide = unicodedata.east_asian_width(spoken[-1]) in "WF"
        if (STOP in waiting or COMMA in waiting) and not _is_punctuated(spoken):
            if is_mark:
                return []
            if is_wide:
                return [("。" if STOP in waiting else "，", place)]
            return [("." if STOP in waiting else ",", place), (" ", place)]
        if GAP in waiting and is_mark:
            return []
        return [(" ", place)]


_LOOK_BACK = 4
"""Spoken characters that show whether a text ends with punctuation and closing quotes."""


def _is_punctuated(spoken: str) -> bool:
    for character in reversed(spoken):
        if character in _PUNCTUATION:
            return True
        if unicodedata.category(character) not in ("Pe", "Pf", "Pi", "Po"):
            return False
    return False


def _first_visible(text: str, start: int) -> int:
    space = _SPACE.match(text, start)
    return start if space is None else space.end()


def _is_open(text: str, start: int, index: int) -> bool:
    return _is_in_label(text, start, index) or _is_in_tag(text, start, index)


def _is_in_label(text: str, start: int, index: int) -> bool:
    opened = text.rfind("[", max(start, index - _MAX_LABEL_CHARS), index)
    if opened < 0:
        return False
    closed = text.find("]", opened, index)
    if closed < 0:
        return True
    return _OPEN_TARGET.match(text, closed + 1, index) is not None


def _is_in_tag(text: str, start: int, index: int) -> bool:
    opened = text.rfind("<", max(start, index - _MAX_LABEL_CHARS), index)
    if opened < 0 or text.find(">", opened, index) >= 0:
        return False
    return _OPEN_TAG.match(text, opened, index) is not None
