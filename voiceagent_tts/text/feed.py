"""Text for a model that speaks while the text is still being written.

Returns words as they are spoken (hygiene applied word by word), one word behind the written text,
and the sentence ends at which a long text may continue in a new run of the model. The output does
not depend on how the text was split into deltas. This module knows no tokens and no time.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from voiceagent_tts.core import Reading
from voiceagent_tts.text.borders import marks_before
from voiceagent_tts.text.hygiene import speakable
from voiceagent_tts.text.punctuation import SENTENCE_ENDS
from voiceagent_tts.text.readings import said_word
from voiceagent_tts.text.sentences import LOOKBACK_CHARS, Ending, ending_of
from voiceagent_tts.text.words import is_spoken, next_word_start

_MAX_LABEL_CHARS = 200
"""A bracket that is not closed within this many characters is no link."""
_MAX_WORD_CHARS = 1_000
"""A longer word is fed in parts of this length, so that no single part takes long. White space
before the word is not counted."""
_MAX_OVERRUN = 4
"""Factor on `run_chars` at which a run ends even inside a sentence."""


@dataclass(frozen=True, slots=True)
class Fed:
    """The next part of a run's text.

    Attributes:
        spoken: text to append to the run's text, unchanged.
        char_end: offset in the client's text up to which it was fed.
        ends_run: whether the run is complete; later text belongs to the next run.
    """

    spoken: str
    char_end: int
    ends_run: bool


class TextFeed:
    """Feeds the text of one context to the model, word by word and run by run.

    Args:
        run_chars: length at which a run ends with its sentence.
        language: code of the text's language, if known.
    """

    def __init__(self, run_chars: int, language: str | None = None) -> None:
        self._run_chars = run_chars
        self._language = language
        self._text = ""  # written, not yet fed
        self._readings: deque[Reading] = deque()  # of written text, in order
        self._char_end = 0  # end of what has been fed
        self._scanned = 0  # characters of `_text` without a border
        self._run_start = 0
        self._said = ""  # end of the run's text so far

    def push(self, delta: str, readings: Iterable[Reading] = ()) -> list[Fed]:
        """Append written text and the readings of spans in it; return the words that are complete.

        Offsets of readings count in the context's text.
        """
        self._text += delta
        self._readings += readings
        return list(self._words())

    def skip_to(self, char_start: int) -> None:
        """Continue at an offset, if all text before was fed: others speak the text in between."""
        if not self._text and char_start > self._char_end:
            self._char_end = self._run_start = char_start

    def finish(self) -> list[Fed]:
        """Return the rest and end the run; more text may be pushed afterwards."""
        fed = [*self._words()]
        rest, self._text, self._scanned = self._text, "", 0
        fed.append(self._feed(rest, is_end=True))
        return fed

    def _words(self) -> Iterator[Fed]:
        """Every word after which the next one has begun, and every closed link."""
        while (end := self._word_end()) is not None:
            word, self._text, self._scanned = self._text[:end], self._text[end:], 0
            yield self._feed(word, is_end=False)

    def _word_end(self) -> int | None:
        text = self._text
        index = next_word_start(text, max(1, self._scanned))
        while index is not None and _is_in_label(text, index):
            index = next_word_start(text, index + 1)
        if len(text) > _MAX_WORD_CHARS and (index is None or index > _MAX_WORD_CHARS):
            longest = len(text) - len(text.lstrip()) + _MAX_WORD_CHARS
            if longest < len(text):
                index = longest if index is None else min(index, longest)
        if index is None:
            # A bracket may close later, so the text after one is scanned again.
            opened = text.find("[")
            self._scanned = opened if opened >= 0 else max(0, len(text) - 1)
        return index

    def _feed(self, written: str, *, is_end: bool) -> Fed:
        spoken = self._joined(written, self._said_for(written))
        self._char_end += len(written)
        self._said = (self._said + spoken)[-LOOKBACK_CHARS:]
        ends_run = is_end or self._is_run_complete()
        if ends_run:
            self._said, self._run_start = "", self._char_end
        return Fed(spoken, self._char_end, ends_run)

    def _said_for(self, written: str) -> str:
        readings: list[Reading] = []
        while self._readings and self._readings[0].char_start < self._char_end + len(written):
            readings.append(self._readings.popleft())
        if readings:
            written = said_word(written, self._char_end, readings)
        return speakable(written.lstrip()).spoken

    def _joined(self, written: str, spoken: str) -> str:
        """`spoken`, which is said for `written`, with the white space or pause before it."""
        if not is_spoken(spoken):  # a dash or bullet alone; a late question mark stays
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


def _is_in_label(text: str, index: int) -> bool:
    """Whether `index` is inside an open `[label](target)`."""
    opened = text.rfind("[", max(0, index - _MAX_LABEL_CHARS), index)
    if opened < 0:
        return False
    closed = text.find("]", opened, index)
    if closed < 0:
        return True
    return text[closed + 1 : closed + 2] == "(" and text.find(")", closed, index) < 0
