"""Flushes of one context that are not answered yet."""

from collections import deque
from dataclasses import dataclass

from voiceagent_tts.synthesizer.events import ContextFlushed


@dataclass(slots=True)
class _Flush:
    flush_id: int
    char_end: int
    end_sample: int | None = None  # set when the text before it is spoken


class FlushQueue:
    """Answers flushes in order: each when its text is spoken and its words are published."""

    def __init__(self) -> None:
        self._waiting: deque[_Flush] = deque()

    def add(self, flush_id: int, char_end: int) -> None:
        """Queue a flush of the text before `char_end`."""
        self._waiting.append(_Flush(flush_id, char_end))

    def pop_answers(
        self, spoken_char_end: int, end_sample: int, next_char: int | None
    ) -> list[ContextFlushed]:
        """Return the answers that are due now.

        Args:
            spoken_char_end: end of the text whose audio is complete.
            end_sample: end of the audio so far.
            next_char: start of the next unpublished word; None if there is none.
        """
        for flush in self._waiting:
            if flush.end_sample is None and flush.char_end <= spoken_char_end:
                flush.end_sample = end_sample
        answers: list[ContextFlushed] = []
        while self._waiting:
            flush = self._waiting[0]
            if flush.end_sample is None or (next_char is not None and next_char < flush.char_end):
                break
            answers.append(ContextFlushed(flush.flush_id, flush.end_sample))
            self._waiting.popleft()
        return answers
