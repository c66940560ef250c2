"""The intake of a text with a lexicon or markup, whose segments have readings and breaks.

A span with a reading is masked (`text.reader`). A reading may be longer than the text it replaces;
this surplus counts against the limits of text that waits.
"""

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cached_property

from voiceagent_tts.core import Pause, Reading, Segment, WarningCode, Word, earliest
from voiceagent_tts.synthesizer.events import ContextWarned
from voiceagent_tts.synthesizer.options import ContextRequest, Limits
from voiceagent_tts.synthesizer.segments import Intake, TextPart, is_over, too_long
from voiceagent_tts.text.reader import MaskingSegmenter, Reader

_IPA_MESSAGE = (
    "this voice's engine does not support IPA, so a word of the lexicon or markup is spoken as "
    "written; add a respelling as `say`"
)


class MaskedIntake(Intake):
    """Divides a text into segments with readings, and the breaks between them.

    The possible start of a lexicon entry or a tag is buffered, in token feeding too.
    """

    def __init__(self, request: ContextRequest, limits: Limits) -> None:
        super().__init__(request, limits)
        self._request = request
        self._surplus: deque[tuple[int, int]] = deque()
        """End and surplus characters of each reading whose audio is not complete."""
        self._waiting_surplus = 0  # sum of these
        self._give_up_at: float | None = None
        """When held text that may begin an entry or a tag is released as plain text."""

    @cached_property
    def _segmenter(self) -> MaskingSegmenter:
        request = self._request
        reader = Reader(request.lexicons, has_markup=request.options.has_markup)
        return MaskingSegmenter(reader, request.language, is_token_fed=self._is_token_fed)

    @property
    def verbatim(self) -> Callable[[Word], Word]:
        """Returns a word with the client's characters."""
        return lambda word: replace(word, text=self.text_between(word.char_start, word.char_end))

    def check_readings(self) -> None:
        """Check the length of the readings that were found in the text.

        Raises:
            InvalidRequestError: more of them is waiting than `max_text_chars` (`text_too_long`).
        """
        if self._waiting_surplus > self._max_chars:
            raise too_long(
                f"{self._max_chars} characters waiting to be spoken, got more, counting readings "
                "of the lexicon and the markup"
            )

    def mark_generated(self, char_end: int) -> None:
        """Record that the audio of the text before `char_end` is complete."""
        super().mark_generated(char_end)
        while self._surplus and self._surplus[0][0] <= char_end:
            self._waiting_surplus -= self._surplus.popleft()[1]

    def _waiting_chars(self, char_end: int) -> int:
        return super()._waiting_chars(char_end) + self._waiting_surplus

    def _said_chars(self, segment: Segment) -> int:
        return super()._said_chars(segment) + sum(map(_surplus_of, segment.readings))

    def _written(self, segment: Segment) -> str:
        if not segment.readings:
            return segment.text
        return self.text_between(segment.char_start, segment.char_end)  # a mask is in no language

    def _divide_next(self, now: float) -> None:
        super()._divide_next(now)
        self.due_at = earliest(self.due_at, self._give_up_at)

    def _push(self, delta: str, now: float) -> None:
        super()._push(delta, now)
        is_holding = self._segmenter.is_holding
        self._give_up_at = now + self._max_buffer_delay_s if is_holding else None

    def _finish(self) -> None:
        super()._finish()
        self._give_up_at = None

    def _expire(self, now: float) -> None:
        if is_over(self._give_up_at, now):
            self._give_up_at = None
            self._add(self._segmenter.give_up())
            self._wait_for_text(now)
        super()._expire(now)

    def _queued(self, parts: Iterable[Segment | Pause]) -> list[TextPart]:
        parts = list(parts)
        for part in parts:
            if isinstance(part, Segment):
                self._count_surplus(part)
        return super()._queued(parts)

    def _count_surplus(self, segment: Segment) -> None:
        for reading in segment.readings:
            if surplus := _surplus_of(reading):
                self.surplus_chars += surplus
                self._waiting_surplus += surplus
                self._surplus.append((reading.char_end, surplus))


def _surplus_of(reading: Reading) -> int:
    """Characters by which a reading is longer than the text it replaces."""
    return max(0, reading.said_chars - (reading.char_end - reading.char_start))


def ipa_warning(segment: Segment, intake: Intake) -> ContextWarned | None:
    """Return the warning for a segment with IPA that has no respelling; None without."""
    for reading in segment.readings:
        written = intake.text_between(reading.char_start, reading.char_end)
        if reading.ipa and reading.said in written:
            return ContextWarned(WarningCode.IPA_IGNORED, _IPA_MESSAGE)
    return None
