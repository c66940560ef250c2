"""Publishes the words of a context: each once, in order, before it can be heard.

Feeds the aligners, waits for them no longer than they are worth, and says when the next word must
leave, which `Timeline` computes. `word_policy` applies the deadline and chooses the time of each
word. Has no clock: the time is passed in.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace

from voiceagent_tts.core import (
    SAMPLE_RATE_HZ,
    AudioChunk,
    PlayoutClock,
    Segment,
    Word,
    WordTimestamp,
    earliest,
)
from voiceagent_tts.synthesizer.aligners import Aligners, OnAlignerEvent, VoiceLevels
from voiceagent_tts.synthesizer.options import ContextRequest
from voiceagent_tts.synthesizer.timeline import Timeline
from voiceagent_tts.synthesizer.word_policy import Source

_ALIGNER_WAIT_S = 5.0
"""Longest wait for the aligners' next answer after all audio has arrived."""
_REFINEMENT_WAIT_S = 0.25
"""Longest wait for better times after all words are published."""
_MIN_LEVEL_SAMPLES = SAMPLE_RATE_HZ
"""Minimum audio before a context updates the loudness of its voice."""


class WordPublisher:
    """Publishes the words of one context, and turns its engine audio into the listener's.

    Args:
        aligners: find the times of words; None if the engine reports them.
        on_aligner_event: receives the aligners' answers, to be passed to `add_aligned` or
            `drop_aligner`.
        request: the recording of the voice, and the playback speed relative to the engine's audio.
        verbatim: returns a word with the client's characters.
        clock: the context's playback.

    Attributes:
        timeline: maps the engine's clock to the listener's.
        policy: chooses the times of the words.
        published: words published so far, in order.
        worst_lag_s: longest time that playback was past the start of a word when it was published.
    """

    def __init__(
        self,
        aligners: Aligners | None,
        on_aligner_event: OnAlignerEvent,
        request: ContextRequest,
        verbatim: Callable[[Word], Word],
        clock: PlayoutClock,
    ) -> None:
        self._handles = [] if aligners is None else aligners.attach(on_aligner_event)
        sources = [handle.source for handle in self._handles]
        self._is_native = aligners is None
        self._levels = VoiceLevels() if aligners is None else aligners.voice_levels
        self._recording = request.recording
        self.timeline = Timeline(
            request.stretch,
            [Source.NATIVE] if self._is_native else sources,
            self._levels.level_of(self._recording),
        )
        self.policy = self.timeline.policy
        self.published: list[WordTimestamp] = []
        self.worst_lag_s = 0.0
        self._verbatim = verbatim
        self._clock = clock
        self._answer_until: float | None = None
        """When aligners that do not answer are left; None before the end of the audio."""
        self._refine_until: float | None = None
        """When better times are waited for no longer; None while a word is missing."""
        self._is_stopped = False

    @property
    def is_complete(self) -> bool:
        """Whether all audio has arrived, all words are published and no better times are due."""
        return self._has_all_words and not self.policy.awaits_aligners

    @property
    def _has_all_words(self) -> bool:
        return self.policy.has_all_audio and self.policy.next_char is None

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

    def complete_word(self) -> None:
        """Expect the last word of the text so far; later text begins another word."""
        self._expect(self.timeline.expect_text("", is_whole=True))

    def _expect(self, words: list[Word]) -> None:
        for handle in self._handles:
            handle.expect(words)

    def align(self, chunk: AudioChunk, language: Callable[[], str]) -> None:
        """Send the engine's next audio, on its own clock, to the aligners.

        Args:
            chunk: the audio.
            language: returns the language of the speech so far.
        """
        for handle in self._handles:
            if chunk.start_sample == 0:
                handle.follow(language(), self._recording)
            handle.push_audio(chunk)

    def add_exact(self, words: tuple[WordTimestamp, ...], *, is_cached: bool) -> None:
        """Add word times of a cached phrase, or those of the engine if the client uses them."""
        if is_cached:
            self.timeline.add_stored(words)
        elif self._is_native:
            self.timeline.add_times(Source.NATIVE, words)

    def end_segment(self, char_end: int, end_sample: int, engine_end_sample: int) -> None:
        """Record that the text before `char_end` is spoken in the audio so far.

        Args:
            char_end: end of the segment in the text.
            end_sample: end of the audio, on the context's clock.
            engine_end_sample: the same, on the engine's clock.
        """
        self.policy.end_segment(char_end, end_sample)
        for handle in self._handles:
            handle.end_segment(char_end, engine_end_sample)

    def finish(self, now: float) -> None:
        """Ask the aligners for the missing words after the end of the audio."""
        aligning = [handle for handle in self._handles if handle.is_following]
        if not aligning:
            self.stop_aligning()
            return
        for handle in aligning:
            handle.finish()
        self._answer_until = now + _ALIGNER_WAIT_S

    # What the aligners answer.

    def add_aligned(
        self,
        source: Source,
        words: tuple[WordTimestamp, ...],
        tentative: tuple[WordTimestamp, ...],
        now: float,
    ) -> None:
        """Add an aligner's final and tentative times, on the context's clock."""
        self._wait_again(now)
        self.timeline.add_times(source, words)
        if source is Source.ONLINE:
            self.policy.set_tentative(tentative)

    def drop_aligner(self, source: Source, now: float) -> None:
        """Record that an aligner has finished or failed."""
        self._wait_again(now)
        self.policy.drop_source(source)

    def _wait_again(self, now: float) -> None:
        """Wait on for the aligners: one that answers is busy and does not hang."""
        if self._answer_until is not None:
            self._answer_until = now + _ALIGNER_WAIT_S

    def stop_aligning(self) -> None:
        """Continue with the times that the aligners have found, and without aligners."""
        self._answer_until = self._refine_until = None
        for handle in self._handles:
            handle.close()
            self.policy.drop_source(handle.source)

    # Words out.

    @property
    def due_at(self) -> float | None:
        """When `pop_due` must be called without further events; None if an event decides."""
        return earliest(
            self.timeline.next_due_at(self._clock), self._answer_until, self._refine_until
        )

    def pop_due(self, now: float) -> tuple[WordTimestamp, ...]:
        """Return the words to publish at `now`, with the client's characters."""
        waits = (self._answer_until, self._refine_until)
        if any(until is not None and until <= now for until in waits):
            self.stop_aligning()
        words = self._with_clients_words(self.timeline.pop_due(self._clock, now))
        if words:
            past_samples = self._clock.played_samples(now) - words[0].start_sample
            self.worst_lag_s = max(self.worst_lag_s, past_samples / SAMPLE_RATE_HZ)
            self.published += words
        if self._refine_until is None and self._has_all_words and not self.is_complete:
            self._refine_until = now + _REFINEMENT_WAIT_S
        return words

    def refined(self) -> tuple[WordTimestamp, ...] | None:
        """All published words with the best times known now; None where no time is better."""
        refined = self.timeline.refined()
        return None if refined is None else self._with_clients_words(refined)

    # The end.

    def break_off(self) -> None:
        """Let the words that begin in the audio so far be due: the engine sends no more of it."""
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
        char_end = max([char_end, *(w.word.char_end for w in self.published if w.is_exact)])
        self.published = [word for word in self.published if word.word.char_end <= char_end]
        return char_end

    def stop(self) -> None:
        """Disconnect the aligners, and remember how loud the voice speaks; idempotent."""
        if not self._is_stopped and self.timeline.end_sample >= _MIN_LEVEL_SAMPLES:
            self._levels.add(self._recording, self.policy.level)
        self._is_stopped = True
        for handle in self._handles:
            handle.close()

    def _with_clients_words(self, words: Iterable[WordTimestamp]) -> tuple[WordTimestamp, ...]:
        return tuple(replace(each, word=self._verbatim(each.word)) for each in words)
