"""Buffers the text of a context, cuts it into segments, and counts its characters.

Segments have the readings of the context's lexicons and markup; what is masked in them is here
verbatim. Knows no engine, no audio and no listener: segments and breaks are passed to callbacks.
"""

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace

from voiceagent_tts.core import Reading, Segment, Word
from voiceagent_tts.synthesizer.options import ContextRequest
from voiceagent_tts.synthesizer.timers import MakeTimer
from voiceagent_tts.text.language import detect_language
from voiceagent_tts.text.reader import Passage, Pause, Reader
from voiceagent_tts.text.segmenter import Segmenter

_SHORTEST_RETRY_S = 0.05


class Intake:
    """Cuts the text of one context into segments, also when no more text arrives.

    A sentence end at the end of the buffer is final after a pause of `settle_s`. Other text waits
    for `max_buffer_delay_ms`; then its complete words are released. In token feeding every delta is
    a segment, and only the beginning of a lexicon's entry or of a tag is buffered.

    Args:
        request: the language, the text feeding, and the longest wait of buffered text.
        settle_s: pause after which a sentence end is final.
        on_segment: receives each segment, and whether it is the last one.
        on_pause: receives each break, after the segments with all text before it.
        make_timer: makes its timers.

    Attributes:
        chars: characters received.
        submitted_char_end: end of the text that was submitted.
        spoken_char_end: end of the text whose audio is complete.
        first_text_at: `time.monotonic()` of the first text; None before it.
        segment_language: language of the last submitted segment; None if unknown.
    """

    def __init__(
        self,
        request: ContextRequest,
        settle_s: float,
        on_segment: Callable[[Segment, bool], None],
        on_pause: Callable[[Pause], None],
        make_timer: MakeTimer,
    ) -> None:
        self.chars = 0
        self.submitted_char_end = 0
        self.spoken_char_end = 0
        self.first_text_at: float | None = None
        self.segment_language = request.language
        self._is_buffered = request.feeding == "segment"
        self._detects_language = request.language is None and self._is_buffered
        self._max_buffer_delay_s = request.options.max_buffer_delay_ms / 1000
        self._settle_s = settle_s
        self._on_segment = on_segment
        self._on_pause = on_pause
        self._deltas: list[str] = []
        self._reader = Reader(request.lexicons, has_markup=request.options.has_markup)
        self._readings: deque[Reading] = deque()
        """Readings of text that is not submitted, in order."""
        self._segmenter = Segmenter(language=request.language)
        self._settle = make_timer(self._on_settle)
        self._release = make_timer(self._on_release)
        self._hold = make_timer(self._on_hold)

    @property
    def text(self) -> str:
        """All text received; joined once, as the words of a masked text are read one by one."""
        if len(self._deltas) > 1:
            self._deltas = ["".join(self._deltas)]
        return self._deltas[0] if self._deltas else ""

    def verbatim(self, word: Word) -> Word:
        """The word with the client's characters, which may be masked in it."""
        if not self._reader.masks_text:
            return word
        return replace(word, text=self.text[word.char_start : word.char_end])

    @property
    def unspoken_chars(self) -> int:
        """Characters received whose audio is not complete."""
        return self.chars - self.spoken_char_end

    def speech_language(self) -> str:
        """Language of the speech so far, detected if it was not given."""
        return self.segment_language or detect_language(self.text, None)

    def push(self, delta: str) -> None:
        """Append `delta`, which is not empty, to the text."""
        if self.first_text_at is None:
            self.first_text_at = time.monotonic()
        self._deltas.append(delta)
        self.chars += len(delta)
        self._take(self._reader.push(delta))
        self._start_timers()
        if self._reader.is_holding:
            self._hold.start(self._max_buffer_delay_s)
        else:
            self._hold.stop()

    def flush(self) -> None:
        """Submit all buffered text."""
        self._take(self._reader.flush())
        self._submit(*self._segmenter.flush())
        self._start_timers()

    def finish(self) -> bool:
        """Submit all buffered text as the last segment.

        Returns:
            Whether there was any.
        """
        self._take(self._reader.flush())
        self.stop()
        segments = self._segmenter.finish()
        self._submit(*segments, is_last=True)
        return bool(segments)

    def mark_spoken(self, char_end: int) -> None:
        """Record that the audio of the text before `char_end` is complete."""
        self.spoken_char_end = max(self.spoken_char_end, char_end)

    def stop(self) -> None:
        """Stop the timers; buffered text remains."""
        for timer in (self._settle, self._release, self._hold):
            timer.stop()

    def _take(self, parts: Sequence[Passage | Pause]) -> None:
        """Cut what the reader has decided into segments."""
        for part in parts:
            if isinstance(part, Pause):
                self._submit(*self._segmenter.flush())
                self._on_pause(part)
                continue
            self._readings += part.readings
            if not self._is_buffered:
                self._submit(Segment(part.text, self.submitted_char_end))
                continue
            segments = self._segmenter.push(part.text)
            self._submit(*segments)
            if segments:
                self._release.stop()  # the oldest character in the buffer is a new one

    def _submit(self, *segments: Segment, is_last: bool = False) -> None:
        for index, segment in enumerate(segments):
            readings = self._pop_readings(segment.char_end)
            if readings:
                segment = replace(segment, readings=readings)
            if self._detects_language:
                text = segment.text
                if readings:  # a mask is in no language
                    text = self.text[segment.char_start : segment.char_end]
                self.segment_language = detect_language(text, self.segment_language)
            self.submitted_char_end = segment.char_end
            self._on_segment(segment, is_last and index == len(segments) - 1)

    def _pop_readings(self, char_end: int) -> tuple[Reading, ...]:
        """Remove and return the readings that begin before `char_end`."""
        popped: list[Reading] = []
        while self._readings and self._readings[0].char_start < char_end:
            popped.append(self._readings.popleft())
        return tuple(popped)

    def _start_timers(self) -> None:
        if not self._segmenter.pending:
            self._settle.stop()
            self._release.stop()
            return
        if self._segmenter.ends_sentence:
            self._settle.start(self._settle_s)
        else:
            self._settle.stop()
        if not self._release.is_running:
            self._release.start(self._max_buffer_delay_s)

    def _on_settle(self) -> None:
        self._submit(*self._segmenter.settle())
        if not self._segmenter.pending:
            self._release.stop()

    def _on_hold(self) -> None:
        """Give up an entry whose end the client has not written."""
        self._take(self._reader.release())
        self._start_timers()

    def _on_release(self) -> None:
        self._submit(*self._segmenter.release())
        if self._segmenter.pending:
            self._release.start(max(_SHORTEST_RETRY_S, self._max_buffer_delay_s))
