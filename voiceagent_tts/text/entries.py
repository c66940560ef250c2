"""Where the entries of lexicons match in a text that is still being written.

An entry matches whole words: no letter, digit or combining mark stands before or after it, unless
that or the entry's own first or last character is Han or Kana, which put no space between words. A
border is not asked for where the entry itself begins or ends with a symbol ("C++", ".NET"). The
longest entry wins. An entry without capital letters matches in every letter case, one with capital
letters only as it is written, so that "US" leaves "us" alone. Texts are compared by NFKD, and any
white space character equals a space.
"""

import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from operator import itemgetter

from voiceagent_tts.lexicon import Entries, Pronunciation
from voiceagent_tts.text.words import is_syllabic


@dataclass(frozen=True, slots=True)
class Match:
    """An entry that stands in the text.

    Args:
        char_end: index of the first character after it.
    """

    char_end: int
    pronunciation: Pronunciation


class Undecided:
    """The text so far is the beginning of an entry, or an entry that the next character decides."""


UNDECIDED = Undecided()
_ANY_LETTER = "a"

EntryRow = tuple[str, str, str | None, str | None]
"""An entry as a matcher keeps it: its folded and its decomposed form, the respelling, the IPA."""


def rows_of(entries: Entries) -> list[EntryRow]:
    """The rows of a lexicon, sorted by folded form; of equal forms, the last entry comes last."""
    characters = set[str]().union(*entries)
    folded = str.maketrans({each: _folded(each) for each in characters})
    decomposed = str.maketrans({each: _decomposed(each) for each in characters})
    rows = (
        (written.translate(folded), written.translate(decomposed), said.say, said.ipa)
        for written, said in entries.items()
    )
    return sorted(rows, key=itemgetter(0))


class EntryMatcher:
    """Finds the entries of one lexicon.

    Their forms are kept in a sorted list, which takes a tenth of the memory of a tree: every client
    may bring a lexicon of its own. The longest form that a text begins with is the last one that
    sorts before the text, or one that this form begins with; so a match takes one search, however
    long the forms are.
    """

    def __init__(self, entries: Entries) -> None:
        self._exact: dict[str, Pronunciation] = {}  # by decomposed form
        self._any_case: dict[str, Pronunciation] = {}  # by folded form, without capital letters
        self._forms: list[str] = []
        self._shorter: list[int] = []
        """For each form, the index of the longest other form that it begins with; -1 for none."""
        self._first_characters: set[str] = set()
        self._longest = 0
        self.append(rows_of(entries))

    def append(self, rows: Iterable[EntryRow]) -> None:
        """Add rows; all rows together are in the order of `rows_of`."""
        for folded, form, say, ipa in rows:
            self._exact[form] = pronunciation = Pronunciation(say, ipa)
            if form == form.lower():
                self._any_case[folded] = pronunciation
            if not self._forms or self._forms[-1] != folded:
                self._append_form(folded)

    def _append_form(self, form: str) -> None:
        self._shorter.append(self._longest_in(form, len(self._forms) - 1))
        self._forms.append(form)
        self._first_characters.add(form[:1])
        self._longest = max(self._longest, len(form))

    def _longest_in(self, text: str, index: int) -> int:
        """The first form that `text` begins with, of the form at `index` and its shorter ones."""
        while index >= 0 and not text.startswith(self._forms[index]):
            index = self._shorter[index]
        return index

    def match(
        self, text: str, start: int, before: str, *, is_end: bool
    ) -> Match | Undecided | None:
        """Find the longest entry that begins at `start`, after the character `before`.

        Returns:
            The match, None if there is none, or `UNDECIDED` if more text may change the answer.
        """
        if not is_word_border(before, text[start]):
            return None
        if _folded(text[start])[:1] not in self._first_characters:
            return None
        stop = min(len(text), start + self._longest)  # no character is folded to none
        folded = [_folded(character) for character in text[start:stop]]
        window = "".join(folded)
        place = bisect_right(self._forms, window)
        may_go_on = stop == len(text) and not is_end
        if may_go_on and place < len(self._forms) and self._forms[place].startswith(window):
            return UNDECIDED
        ends = list(accumulate(map(len, folded)))
        decomposed = [_decomposed(character) for character in text[start:stop]]
        index = self._longest_in(window, place - 1)
        while index >= 0:
            form = self._forms[index]
            characters = bisect_left(ends, len(form)) + 1
            if ends[characters - 1] == len(form):
                written = "".join(decomposed[:characters])
                found = self._judged(text, start + characters, written, form, is_end=is_end)
                if found is not None:
                    return found
            index = self._shorter[index]
        return None

    def _judged(
        self, text: str, end: int, written: str, form: str, *, is_end: bool
    ) -> Match | Undecided | None:
        """The match of a form that ends at `end`, where the text has it as `written`."""
        pronunciation = self._exact.get(written, self._any_case.get(form))
        if pronunciation is None:
            return None
        is_last = end == len(text)
        if is_last and not is_end and not is_word_border(text[end - 1], _ANY_LETTER):
            return UNDECIDED
        is_whole = is_word_border(text[end - 1], "" if is_last else text[end])
        return Match(end, pronunciation) if is_whole else None


def match_first(
    matchers: Sequence[EntryMatcher], text: str, start: int, before: str, *, is_end: bool
) -> Match | Undecided | None:
    """The longest match of several lexicons; of equally long ones, that of the first lexicon.

    Arguments and result as for `EntryMatcher.match`.
    """
    found: Match | None = None
    for matcher in matchers:
        match = matcher.match(text, start, before, is_end=is_end)
        if isinstance(match, Undecided):
            return match
        if match is not None and (found is None or match.char_end > found.char_end):
            found = match
    return found


def is_word_border(left: str, right: str) -> bool:
    """Whether a word may end with the character `left` and another begin with `right`.

    Either may be empty: the start or the end of the text.
    """
    if not left or not right or is_syllabic(left) or is_syllabic(right):
        return not (right and unicodedata.category(right)[0] == "M")
    return not (_joins(left) and _joins(right))


@lru_cache(maxsize=8192)
def _joins(character: str) -> bool:
    return character.isalnum() or unicodedata.category(character)[0] == "M"


@lru_cache(maxsize=8192)
def _decomposed(character: str) -> str:
    return " " if character.isspace() else unicodedata.normalize("NFKD", character)


@lru_cache(maxsize=8192)
def _folded(character: str) -> str:
    return unicodedata.normalize("NFKD", _decomposed(character).casefold())
