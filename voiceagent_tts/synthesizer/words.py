"""Publishes the words of a context: each once, in order, before it can be heard.

Feeds the aligners, sets a timer for the deadline of the next word, which `Timeline` computes, and
reports when no word is missing any more. `word_policy` applies the deadline and chooses the time of
each word.
"""

import time
from bisect import bisect_right
from collections.abc import Callable, Iterable
from dataclasses import replace
from operator import itemgetter

from voiceagent_tts.core import (
    SAMPLE_RATE_HZ,
    AudioChunk,
    PlayoutClock,
    Segment,
    Word,
    WordTimestamp,
)
from voiceagent_tts.seam.aligner_messages import Aligned, AlignEvent
from voiceagent_tts.synthesizer.aligner_handles import Aligners
from voiceagent_tts.synthesizer.timeline import Timeline
from voiceagent_tts.synthesizer.timers import MakeTimer
from voiceagent_tts.synthesizer.voice_levels import VoiceLevels
from voiceagent_tts.synthesizer.word_policy import Source

_ALIGNER_WAIT_S = 5.0
"""Longest wait for the aligners' next answer after all audio has arrived."""
_REFINEMENT_WAIT_S = 0.25
"""Longest wait for better times after all words are published."""
_MIN_LEVEL_SAMPLES = SAMPLE_RATE_HZ
"""Audio from which a context shows how loud its voice speaks."""


class WordPublisher:
    """Publishes the words of one context, and turns its engine audio into the listener's.

    Args:
        aligners: find the times of words; None if the engine reports them.
        verbatim: returns a word with the client's characters.
        recording: as of `ContextRequest`.
        language: returns the language of the speech so far.
        speed: how much faster than the engine's audio the listener's is.
        clock: the context's playback.
        publish: receives the words that are due.
        on_progress: called after every check for due words.
        make_timer: makes its timers.

    Attributes:
        timeline: maps the engine's clock to the listener's.
        published: words published so far, in order.
        worst_lag_s: longest time that playback was past the start of a word when it was published.
    """

    def __init__(
        self,
        aligners: Aligners | None,
        *,
        verbatim: Callable[[Word], Word],
        recording: str,
        language: Callable[[], str],
        speed: float,
        clock: PlayoutClock,
        publish: Callable[[tuple[WordTimestamp, ...]], None],
        on_progress: Callable[[], None],
        make_timer: MakeTimer,
    ) -> None:
        self._handles = [] if aligners is None else aligners.attach(self._on_aligner_event)
        sources = [handle.source for handle in self._handles]
        self._is_native = aligners is None
        self._levels = VoiceLevels() if aligners is None else aligners.voice_levels
        self.timeline = Timeline(
            speed,
            [Source.NATIVE] if self._is_native else sources,
            self._levels.level_of(recording),
        )
        self.published: list[WordTimestamp] = []
        self.worst_lag_s = 0.0
        self._verbatim = verbatim
        self._recording = recording
        self._language = language
        self._clock = clock
        self._publish = publish
        self._on_progress = on_progress
        self._is_stopped = False
        self._stored_samples = 0
        """Audio of cached phrases so far: the distance between the aligners' clock and this one."""
        self._stored_before: list[tuple[int, int]] = []
        """Ends of segments in the text, and `_stored_samples` at each."""
        self._deadline = make_timer(self._publish_due)
        self._aligner_wait = make_timer(self.stop_aligning)
        self._refinement_wait = make_timer(self.stop_aligning)

    @property
    def is_complete(self) -> bool:
        """Whether all audio has arrived, all words are published and no better times are due."""
        is_published = self.timeline.has_all_audio and self.timeline.next_char is None
        return is_published and not self.timeline.awaits_aligners

    @property
    def aligner_lag_s(self) -> dict[Source, float]:
        """Longest time from audio to the aligner's answer, by aligner."""
        return {handle.source: handle.worst_lag_s for handle in self._handles}

    # Text and audio in.

    def expect(self, segment: Segment, *, is_whole: bool, is_live: bool = True) -> None:
        """Expect the words of `segment`, which continues the text before.

        Args:
            segment: the part of the context's text that is spoken next.
            is_whole: whether its last word is complete.
            is_live: whether the engine speaks it; aligners do not hear cached phrases.
        """
        text, readings = segment.text, segment.readings
        words = self.timeline.expect_text(text, is_whole=is_whole, readings=readings)
        if is_live:
            self._expect(words)
        self.schedule()

    def complete_word(self) -> None:
        """Expect the last word of the text so far; later text begins another word."""
        self._expect(self.timeline.expect_text("", is_whole=True))
        self.schedule()

    def _expect(self, words: list[Word]) -> None:
        for handle in self._handles:
            handle.expect(words)

    def push_audio(self, chunk: AudioChunk) -> AudioChunk | None:
        """Publish the words that must precede the engine's next audio.

        Returns:
            The audio at the listener's speed, as far as the stretcher has it.
        """
        audio = self.timeline.push_audio(chunk)
        self._publish_due()
        live_start = chunk.start_sample - self._stored_samples
        self._align(AudioChunk(live_start, chunk.pcm) if self._stored_samples else chunk)
        return audio

    def add_stored(self, words: tuple[WordTimestamp, ...]) -> None:
        """Publish the words of a cached phrase, whose audio follows."""
        self.timeline.add_stored(words)
        self._publish_due()

    def push_stored_audio(self, chunk: AudioChunk) -> AudioChunk | None:
        """Publish the words that must precede the next audio of a cached phrase.

        Returns:
            As for `push_audio`.
        """
        audio = self.timeline.push_audio(chunk)
        self._stored_samples += chunk.samples
        self._publish_due()
        return audio

    def add_native_words(self, words: tuple[WordTimestamp, ...]) -> None:
        """Publish word times that the engine reported; ignored if the client does not use them."""
        if self._is_native:
            self.timeline.add_times(Source.NATIVE, words)
            self._publish_due()

    def end_segment(self, char_end: int, end_sample: int) -> None:
        """Record that the engine speaks the text before `char_end` in its audio so far."""
        self.timeline.end_segment(char_end, end_sample)
        if self._stored_samples:
            self._stored_before.append((char_end, self._stored_samples))
        for handle in self._handles:
            handle.end_segment(char_end, end_sample - self._stored_samples)
        self.schedule()

    def finish(self) -> None:
        """Ask the aligners for the missing words after the end of the audio."""
        aligning = [handle for handle in self._handles if handle.is_following]
        if not aligning:
            self.stop_aligning()
            return
        for handle in aligning:
            handle.finish()
        self._aligner_wait.start(_ALIGNER_WAIT_S)
        self._publish_due()

    def stop_aligning(self) -> None:
        """Publish the words that the aligners have found, and continue without aligners."""
        for handle in self._handles:
            handle.close()
            self.timeline.drop_source(handle.source)
        self._publish_due()

    def break_off(self) -> None:
        """Publish the words that begin in the audio so far: the engine sends no more of it."""
        self.timeline.break_off()
        self.stop_aligning()

    def lose_text(self, char_end: int) -> int:
        """Take back the words of a sequence that has lost its text, unless they surely sounded.

        An aligner is certain of words that it hears, and of none in noise.

        Args:
            char_end: end of the text before that sequence.

        Returns:
            The end of the text that was spoken.
        """
        self.stop()
        char_end = max([char_end, *(w.word.char_end for w in self.published if w.is_exact)])
        self.published = [word for word in self.published if word.word.char_end <= char_end]
        return char_end

    def refined(self) -> tuple[WordTimestamp, ...] | None:
        """All published words with the best times known now; None where no time is better."""
        refined = self.timeline.refined()
        return None if refined is None else self._with_clients_words(refined)

    # The end.

    def schedule(self) -> None:
        """Set the timer for the next word, which may be due without further events."""
        due = self.timeline.next_due_at(self._clock)
        if due is not None:
            self._deadline.start(max(0.0, due - time.monotonic()))

    def stop(self) -> None:
        """Disconnect the aligners and stop the timers; only `schedule` starts one again.

        The voice's level is remembered, once, for its next context.
        """
        if not self._is_stopped and self.timeline.end_sample >= _MIN_LEVEL_SAMPLES:
            self._levels.add(self._recording, self.timeline.level)
        self._is_stopped = True
        for timer in (self._deadline, self._aligner_wait, self._refinement_wait):
            timer.stop()
        for handle in self._handles:
            handle.close()

    def _align(self, chunk: AudioChunk) -> None:
        for handle in self._handles:
            if chunk.start_sample == 0:
                handle.follow(self._language(), self._recording)
            handle.push_audio(chunk)

    def _on_aligner_event(self, source: Source, event: AlignEvent) -> None:
        if self._aligner_wait.is_running:  # it answers, so it is busy and not hung
            self._aligner_wait.start(_ALIGNER_WAIT_S)
        match event:
            case Aligned(_, words, tentative):
                self.timeline.add_times(source, self._on_engine_clock(words))
                if source is Source.ONLINE:
                    self.timeline.set_tentative(self._on_engine_clock(tentative))
            case _:
                self.timeline.drop_source(source)
        self._publish_due()

    def _on_engine_clock(self, words: tuple[WordTimestamp, ...]) -> tuple[WordTimestamp, ...]:
        """Move an aligner's times behind the cached phrases that it has not heard."""
        if not self._stored_before:
            return words
        return tuple(word.later(self._stored_until(word.word.char_start)) for word in words)

    def _stored_until(self, char_start: int) -> int:
        place = bisect_right(self._stored_before, char_start, key=itemgetter(0))
        return self._stored_before[place - 1][1] if place else 0

    def _publish_due(self) -> None:
        now = time.monotonic()
        words = self._with_clients_words(self.timeline.pop_due(self._clock, now))
        if words:
            past_samples = self._clock.played_samples(now) - words[0].start_sample
            self.worst_lag_s = max(self.worst_lag_s, past_samples / SAMPLE_RATE_HZ)
            self.published += words
            self._publish(words)
        if self.timeline.next_char is not None or not self.timeline.has_all_audio:
            self.schedule()
        elif self.timeline.awaits_aligners and not self._refinement_wait.is_running:
            self._refinement_wait.start(_REFINEMENT_WAIT_S)
        self._on_progress()

    def _with_clients_words(self, words: Iterable[WordTimestamp]) -> tuple[WordTimestamp, ...]:
        return tuple(replace(each, word=self._verbatim(each.word)) for each in words)
