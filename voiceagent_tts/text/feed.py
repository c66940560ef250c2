"""Text for a model that speaks while the text is still being written.

Returns words as they are spoken, one word behind the written text, and the sentence ends at which a
long text may continue in a new run of the model. The words of a run are what `readings.said`
returns for its text as a whole, and do not depend on how the text was split into deltas.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from voiceagent_tts.core import Reading
from voiceagent_tts.text.cleaning import Cleaner
from voiceagent_tts.text.readings import GrowingLetters
from voiceagent_tts.text.segmenter import marks_before
from voiceagent_tts.text.sentences import LOOKBACK_CHARS, Ending, ending_of

_MAX_RUN_CHARS = 1_200
"""Length at which a run ends even inside a sentence."""


@dataclass(frozen=True, slots=True)
class Fed:
    """The next part of a run's text.

    Attributes:
        char_end: offset in the client's text up to which it was fed.
        ends_run: whether the run is complete; later text belongs to the next run.
    """

    spoken: str
    char_end: int
    ends_run: bool


class TextFeed:
    """Feeds the text of one context to the model, word by word and run by run.

    Args:
        run_chars: length from which a run ends with its sentence; 1 for a run for each sentence.
    """

    def __init__(self, run_chars: int, language: str | None = None) -> None:
        self._run_chars = run_chars
        self._language = language
        self._letters = GrowingLetters()
        self._cleaner = Cleaner()
        self._run_start = 0
        self._said = ""  # end of the run's text so far

    def push(self, delta: str, readings: Iterable[Reading] = ()) -> list[Fed]:
        """Append written text and the readings of spans in it; return the words that are complete.

        Offsets of readings count in the context's text.
        """
        self._cleaner.push(self._letters.push(delta, readings))
        return [self._fed(word.spoken, is_end=False) for word in self._cleaner.words()]

    def skip_to(self, char_start: int) -> None:
        """Continue at an offset, if all text before was fed: others speak the text in between."""
        is_fed = self._cleaner.char_end == self._letters.written
        if is_fed and char_start > self._letters.char_end:
            self._letters.skip_to(char_start)
            self._run_start = char_start

    def finish(self) -> list[Fed]:
        """Return the rest and end the run; more text may be pushed afterwards."""
        return [self._fed(self._cleaner.finish().spoken, is_end=True)]

    def _fed(self, spoken: str, *, is_end: bool) -> Fed:
        char_end = self._letters.origin(self._cleaner.char_end)
        self._said = (self._said + spoken)[-LOOKBACK_CHARS:]
        ends_run = is_end or self._is_run_complete(char_end - self._run_start)
        if ends_run:
            self._cleaner.restart()
            self._said, self._run_start = "", char_end
        return Fed(spoken, char_end, ends_run)

    def _is_run_complete(self, length: int) -> bool:
        if length < self._run_chars:
            return False
        if length > _MAX_RUN_CHARS:
            return True
        start, stop = marks_before(self._said, len(self._said))
        ending = ending_of(self._said[:stop], self._said[start:stop], self._language)
        return ending is Ending.SENTENCE
