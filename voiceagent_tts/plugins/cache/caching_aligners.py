"""The aligners of a context whose phrases the cache plays: they hear only its worker."""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from voiceagent_tts.core import AudioChunk, Segment, Word
from voiceagent_tts.plugins.cache.caching_worker import CachingWorker
from voiceagent_tts.seam.aligner_messages import Aligned, AlignEvent
from voiceagent_tts.synthesizer.events import Source
from voiceagent_tts.synthesizer.synthesizer import WordFinders
from voiceagent_tts.synthesizer.words import MakeWords
from voiceagent_tts.word_times.aligned_words import AlignedWords, WordPolicy
from voiceagent_tts.word_times.aligners import ContextAligners, OnAlignerEvent, ignore_answer
from voiceagent_tts.word_times.processes import Aligners


def make_words(worker: CachingWorker, aligners: WordFinders) -> MakeWords:
    """What makes the words of the context that a worker plays phrases for."""
    assert isinstance(aligners, Aligners), "a server has no other finders"
    return partial(AlignedWords, partial(CachingAligners, worker, aligners))


class CachingAligners(ContextAligners):
    """The aligners of a context, which hear only what the worker speaks.

    Attributes:
        times: the best times of what is recorded, on the worker's clock.
    """

    def __init__(
        self, worker: CachingWorker, aligners: Aligners, on_event: OnAlignerEvent, recording: str
    ) -> None:
        super().__init__(aligners.handles(self._receive), recording, aligners.voice_levels)
        self._worker = worker
        self._on_event = on_event
        self.times = WordPolicy(self.sources)
        worker.on_decided, worker.known_times = self._on_decided, self.times.known_between
        self._undecided: deque[Word] = deque()
        """Words of text that may become a phrase, or that was not passed on yet."""
        self._decided_char_end = 0
        self._phrases: deque[tuple[int, int]] = deque()
        """Start and end in the text of each phrase whose words may still come."""

    def _on_decided(self, segment: Segment, is_live: bool) -> None:
        """Learn who speaks a segment, which follows those before."""
        self._decided_char_end = segment.char_end
        if not is_live:
            self._phrases.append((segment.char_start, segment.char_end))
        self._expect_live()

    def expect(self, words: Sequence[Word]) -> None:
        """Add words of the context, in order."""
        self._undecided += words
        self._expect_live()

    def _expect_live(self) -> None:
        live: list[Word] = []
        while self._undecided and self._undecided[0].char_start < self._decided_char_end:
            word = self._undecided.popleft()
            while self._phrases and self._phrases[0][1] <= word.char_start:
                self._phrases.popleft()
            if not self._phrases or word.char_start < self._phrases[0][0]:
                live.append(word)
        if live:
            self.times.expect(live)
            super().expect(live)

    def push_audio(self, chunk: AudioChunk, language: Callable[[], str]) -> None:
        """Send the worker's next audio; `language` returns that of the speech so far."""
        if not self._worker.is_playing:
            start_sample = chunk.start_sample - self._worker.cached_samples
            super().push_audio(replace(chunk, start_sample=start_sample), language)

    def end_segment(self, char_end: int, end_sample: int) -> None:
        """Report that the text before `char_end` is spoken in the audio so far."""
        super().end_segment(char_end, end_sample - self._worker.cached_samples)

    def close(self) -> None:
        """Disconnect the aligners, and store what has all of its words; idempotent."""
        super().close()
        self._worker.store(is_final=True)
        self._worker.on_decided = lambda segment, is_live: None  # the two hold each other
        self._on_event = ignore_answer

    def _receive(self, source: Source, event: AlignEvent) -> None:
        match event:
            case Aligned(_, words, tentative):
                self.times.add_times(source, words)
                shifted = self._worker.shifted
                event = replace(event, words=shifted(words), tentative=shifted(tentative))
            case _:
                self.times.drop_source(source)
        self._on_event(source, event)
        self._worker.store()
