"""Text as it is written, to a voice that speaks while it is written.

Out come the words as they are spoken (hygiene applied word by word), one word behind what has been
written, and the places where a long text may go over to a new run of the model: sentence ends. The
output does not depend on how the text was cut into deltas. Knows no tokens and no time.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from voiceagent_tts.text.borders import marks_before
from voiceagent_tts.text.hygiene import speakable
from voiceagent_tts.text.punctuation import SENTENCE_ENDS
from voiceagent_tts.text.sentences import Ending, ending_of
from voiceagent_tts.text.words import is_spoken, is_syllabic

_CONTEXT_CHARS = 40
"""What the sentence rules see before a mark."""
_MAX_LABEL_CHARS = 200
"""A bracket that is not closed by then is no link."""
_MAX_OVERRUN = 4
"""A run goes on for this many times its length where no sentence ends."""


@dataclass(frozen=True, slots=True)
class Fed:
    """The next part of a run's text.

    Attributes:
        spoken: to be appended to what the run has been fed, as it is.
        char_end: how far into the client's text this reaches.
        ends_run: the run is complete; what follows belongs to the next.
    """

    spoken: str
    char_end: int
    ends_run: bool


class TextFeed:
    """One context's.

    Args:
        run_chars: a run ends with the first sentence that ends behind so many characters.
        language: code of the text's language, if known.
    """

    def __init__(self, run_chars: int, language: str | None = None) -> None:
        self._run_chars = run_chars
        self._language = language
        self._text = ""  # written and not yet fed
        self._char_end = 0  # of what has been fed
        self._scanned = 0  # of `_text`
        self._run_start = 0
        self._said = ""  # the end of what the run has been fed

    def push(self, delta: str) -> list[Fed]:
        """Take what was written; return what can be spoken of it."""
        self._text += delta
        return list(self._words())

    def finish(self) -> list[Fed]:
        """Return the rest, and end the run; also for a flush, after which more may be pushed."""
        fed = [*self._words()]
        rest, self._text, self._scanned = self._text, "", 0
        fed.append(self._feed(rest, is_end=True))
        return fed

    def _words(self) -> Iterator[Fed]:
        """Every word behind which the next one has begun, and every link that is closed."""
        while (end := self._word_end()) is not None:
            word, self._text, self._scanned = self._text[:end], self._text[end:], 0
            yield self._feed(word, is_end=False)

    def _word_end(self) -> int | None:
        text = self._text
        for index in range(max(1, self._scanned), len(text)):
            if _is_border(text, index) and not _is_in_label(text, index):
                return index
        # Brackets may close later, so a text with one is looked at again.
        self._scanned = 0 if "[" in text else max(0, len(text) - 1)
        return None

    def _feed(self, written: str, *, is_end: bool) -> Fed:
        self._char_end += len(written)
        spoken = self._joined(written)
        self._said = (self._said + spoken)[-_CONTEXT_CHARS:]
        ends_run = is_end or self._is_run_complete()
        if ends_run:
            self._said, self._run_start = "", self._char_end
        return Fed(spoken, self._char_end, ends_run)

    def _joined(self, written: str) -> str:
        """What is spoken of `written`, with the white space or the pause that joins it on."""
        spoken = speakable(written).spoken
        if not is_spoken(spoken):  # a dash or a bullet by itself; a late question mark stays
            return "".join(mark for mark in spoken if mark in SENTENCE_ENDS) if self._said else ""
        if not self._said:
            return spoken
        gap = written[: len(written) - len(written.lstrip())]
        if gap.count("\n") > 1 and self._said[-1].isalnum():
            return f". {spoken}"
        return f" {spoken}" if gap else spoken

    def _is_run_complete(self) -> bool:
        length = self._char_end - self._run_start
        if length < self._run_chars:
            return False
        if length > _MAX_OVERRUN * self._run_chars:
            return True
        start, stop = marks_before(self._said, len(self._said))
        ending = ending_of(self._said[:stop], self._said[start:stop], self._language)
        return ending is Ending.SENTENCE


def _is_border(text: str, index: int) -> bool:
    """Whether a new word begins at `index`: behind a visible character, at white space or Han."""
    character, before = text[index], text[index - 1]
    if before.isspace():
        return False
    if character.isspace():
        return bool(text[:index].strip())
    return is_syllabic(character) and is_syllabic(before)


def _is_in_label(text: str, index: int) -> bool:
    """Whether `[label](target)` is open at `index`."""
    opened = text.rfind("[", max(0, index - _MAX_LABEL_CHARS), index)
    if opened < 0:
        return False
    closed = text.find("]", opened, index)
    if closed < 0:
        return True
    return text[closed + 1 : closed + 2] == "(" and text.find(")", closed, index) < 0
