"""The words of a context on their way out: each published once, in order, before it is heard.

Feeds the aligners, sets a timer for the deadline of the next word, which `Timeline` computes, and
says when no word is missing any more. `word_policy` applies the deadline and decides which time a
word gets.
"""

import time
from collections.abc import Callable

from voiceagent_tts.core import AudioChunk, PlayoutClock, WordTimestamp
from voiceagent_tts.seam.aligner_messages import Aligned, AlignEvent
from voiceagent_tts.synthesizer.aligner_handles import Aligners
from voiceagent_tts.synthesizer.timeline import Timeline
from voiceagent_tts.synthesizer.timers import Timer
from voiceagent_tts.synthesizer.word_policy import Source

_ALIGNER_WAIT_S = 5.0
"""Longest wait for the aligners when all audio is there."""
_REFINEMENT_WAIT_S = 0.25
"""Longest wait for better times when all words are published."""


class WordPublisher:
    """Publishes the words of one context, and turns its engine audio into the listener's.

    Args:
        aligners: find the times of words; None where the engine itself sends them.
        voice: name under which aligners keep what they learn of the voice.
        language: returns the language of the speech so far.
        speed: how much faster than the engine's audio the listener's is.
        clock: the context's playback.
        publish: receives the words that are due.
        on_progress: called after every check for due words.

    Attributes:
        timeline: maps the engine's clock to the listener's.
        published: words published so far, in order.
    """

    def __init__(
        self,
        aligners: Aligners | None,
        *,
        voice: str,
        language: Callable[[], str],
        speed: float,
        clock: PlayoutClock,
        publish: Callable[[tuple[WordTimestamp, ...]], None],
        on_progress: Callable[[], None],
    ) -> None:
        self._handles = [] if aligners is None else aligners.attach(self._on_aligner_event)
        sources = [handle.source for handle in self._handles]
        self._is_native = aligners is None
        self.timeline = Timeline(speed, [Source.NATIVE] if self._is_native else sources)
        self.published: list[WordTimestamp] = []
        self._voice = voice
        self._language = language
        self._clock = clock
        self._publish = publish
        self._on_progress = on_progress
        self._deadline = Timer(self._publish_due)
        self._aligner_wait = Timer(self.stop_aligning)
        self._refinement_wait = Timer(self.stop_aligning)

    @property
    def is_complete(self) -> bool:
        """Whether all audio is there, all words are published and no better times will come."""
        is_published = self.timeline.has_all_audio and self.timeline.next_char is None
        return is_published and not self.timeline.awaits_aligners

    @property
    def aligner_lag_s(self) -> dict[Source, float]:
        """Longest time from audio to the aligner's answer, by aligner."""
        return {handle.source: handle.worst_lag_s for handle in self._handles}

    # Text and audio in.

    def expect(self, text: str, *, is_whole: bool) -> None:
        """Await the words of `text`, which continues the text before.

        Args:
            text: the part of the context's text that goes to the engine now.
            is_whole: whether the last word of it is complete.
        """
        words = self.timeline.expect_text(text, is_whole=is_whole)
        for handle in self._handles:
            handle.expect(words)

    def push_audio(self, chunk: AudioChunk) -> AudioChunk | None:
        """Publish the words that must leave ahead of the engine's next audio.

        Returns:
            The audio at the listener's speed, as far as it is known by now.
        """
        audio = self.timeline.push_audio(chunk)
        self._publish_due()
        self._align(chunk)
        return audio

    def add_native_words(self, words: tuple[WordTimestamp, ...]) -> None:
        """Publish word times that the engine itself sent; they are ignored where not asked for."""
        if self._is_native:
            self.timeline.add_times(Source.NATIVE, words)
            self._publish_due()

    def end_segment(self, char_end: int, end_sample: int) -> None:
        """Note that the text before `char_end` is spoken in the engine's audio so far."""
        self.timeline.end_segment(char_end, end_sample)
        for handle in self._handles:
            handle.end_segment(char_end, end_sample)
        self.schedule()

    def finish(self) -> None:
        """Ask for the words that are missing, as all audio is there."""
        aligning = [handle for handle in self._handles if handle.is_following]
        if not aligning:
            self.stop_aligning()
            return
        for handle in aligning:
            handle.finish()
        self._aligner_wait.start(_ALIGNER_WAIT_S)
        self._publish_due()

    def stop_aligning(self) -> None:
        """Publish what the aligners have found, and go on without them."""
        for handle in self._handles:
            handle.close()
            self.timeline.drop_source(handle.source)
        self._publish_due()

    # The end.

    def schedule(self) -> None:
        """Wake up when the next word is due, even if nothing else happens until then."""
        due = self.timeline.next_due_at(self._clock)
        if due is not None:
            self._deadline.start(max(0.0, due - time.monotonic()))

    def stop(self) -> None:
        """Leave the aligners and stop the timers; words are due again only after `schedule`."""
        for timer in (self._deadline, self._aligner_wait, self._refinement_wait):
            timer.stop()
        for handle in self._handles:
            handle.close()

    def _align(self, chunk: AudioChunk) -> None:
        for handle in self._handles:
            if chunk.start_sample == 0:
                handle.follow(self._language(), self._voice)
            handle.push_audio(chunk)

    def _on_aligner_event(self, source: Source, event: AlignEvent) -> None:
        match event:
            case Aligned(_, words, tentative):
                self.timeline.add_times(source, words)
                if source is Source.ONLINE:
                    self.timeline.set_tentative(tentative)
            case _:
                self.timeline.drop_source(source)
        self._publish_due()

    def _publish_due(self) -> None:
        words = self.timeline.pop_due(self._clock, time.monotonic())
        if words:
            self.published += words
            self._publish(words)
        if self.timeline.next_char is not None or not self.timeline.has_all_audio:
            self.schedule()
        elif self.timeline.awaits_aligners and not self._refinement_wait.is_running:
            self._refinement_wait.start(_REFINEMENT_WAIT_S)
        self._on_progress()
