"""The rule that picks and publishes word times, with every source, on a fake clock."""

import heapq
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.heard_words import HeardWords
from voiceagent_tts.core import (
    FRAME_S,
    FRAME_SAMPLES,
    SAMPLE_RATE_HZ,
    AudioChunk,
    Word,
    WordTimestamp,
    ms_to_samples,
)
from voiceagent_tts.synthesizer.events import Source
from voiceagent_tts.text.words import split_words
from voiceagent_tts.word_times.aligned_words import WordPolicy

TEXT = "one two three four five six seven eight nine ten eleven twelve"
WORDS = split_words(TEXT)
ALL = (Source.ONLINE, Source.FORCED)
LEAD_MS = 150
"""Time from publishing a word to the moment when playback can reach it."""
NEVER = 10**9


def at(word: Word, start_ms: float, length_ms: float = 100, *, confidence: float = 1.0):
    start = ms_to_samples(start_ms)
    return WordTimestamp(word, start, start + ms_to_samples(length_ms), confidence)


def policy_of(*sources: Source, made_s: float = 10.0) -> WordPolicy:
    """Build a policy that expects `WORDS` and has received a steady tone."""
    policy = WordPolicy(sources)
    policy.expect(WORDS)
    policy.push_audio(sound(made_s))
    return policy


@cache
def sound(seconds: float, level: int = 8000) -> bytes:
    tone = np.cos(np.arange(round(seconds * SAMPLE_RATE_HZ)) / 20) * level
    return tone.astype("<i2").tobytes()


def starts_ms(taken: tuple[WordTimestamp, ...]) -> list[int]:
    return [time.start_sample * 1000 // SAMPLE_RATE_HZ for time in taken]


# The rule.


def test_the_best_source_waits_for_nothing() -> None:
    for best, sources in ((Source.FORCED, ALL), (Source.ONLINE, [Source.ONLINE])):
        policy = policy_of(*sources)
        policy.add_times(best, [at(WORDS[0], 400)])
        assert policy.pop_due(0, 0) == (at(WORDS[0], 400),)


def test_a_better_time_is_waited_for_until_the_deadline() -> None:
    policy = policy_of(*ALL)
    policy.add_times(Source.ONLINE, [at(WORDS[0], 400), at(WORDS[1], 700)])
    policy.add_times(Source.FORCED, [])
    assert policy.pop_due(ms_to_samples(399), 0) == ()
    assert policy.pop_due(ms_to_samples(400), 0) == (at(WORDS[0], 400),)
    policy.add_times(Source.FORCED, [at(WORDS[1], 650)])
    assert starts_ms(policy.pop_due(ms_to_samples(400), 0)) == [685]  # a time between the two
    assert dict(policy.counts.sources) == {Source.ONLINE: 1, Source.FORCED: 1}


def test_a_tentative_time_is_published_only_at_its_deadline() -> None:
    """A tentative time may still change, so it waits; it is exact if it is marked so."""
    policy = policy_of(Source.ONLINE)
    policy.set_tentative([at(WORDS[0], 100)])
    assert policy.pop_due(ms_to_samples(99), 0) == ()
    policy.set_tentative([at(WORDS[0], 120, confidence=0.5)])
    assert policy.pop_due(ms_to_samples(119), 0) == ()
    (taken,) = policy.pop_due(ms_to_samples(120), 0)
    assert starts_ms((taken,)) == [120]
    assert not taken.is_exact


def test_without_any_source_words_are_estimated() -> None:
    policy = policy_of(Source.ONLINE)
    policy.add_times(Source.ONLINE, [at(WORDS[0], 0), at(WORDS[1], 1000)])
    taken = policy.pop_due(ms_to_samples(1500), 0)
    assert [time.word.text for time in taken] == ["one", "two", "three"]
    assert [time.is_exact for time in taken] == [True, True, False]
    assert starts_ms(taken)[2] == pytest.approx(1000 + 4000 / 17, abs=20)
    assert policy.counts.sources[Source.ESTIMATE] == 1


@pytest.mark.parametrize(("lead_s", "start_ms"), [(0.0, 0), (0.05, 50), (0.5, 500)])
@pytest.mark.parametrize("sources", [[], [Source.ONLINE]])
def test_the_first_word_is_not_before_its_sound(
    lead_s: float, start_ms: int, sources: list[Source]
) -> None:
    policy = WordPolicy(sources)
    policy.expect(WORDS)
    policy.push_audio(sound(lead_s, 0) + sound(0.5))
    assert policy.pop_due(ms_to_samples(start_ms) - 1, 0) == ()
    assert starts_ms(policy.pop_due(ms_to_samples(start_ms), 0)) == [start_ms]


def test_the_first_word_waits_for_a_sound() -> None:
    """While all audio is silent, no word can be heard; it is published ahead of the first sound."""
    policy = WordPolicy([Source.ONLINE])
    policy.expect(WORDS)
    for _ in range(5):
        policy.push_audio(sound(0.08, 0))
        policy.set_tentative([at(WORDS[0], 0, confidence=0.0)])
        assert policy.pop_due(NEVER, 0) == ()
        assert policy.next_start is None, "an event decides: the next audio"
    policy.push_audio(sound(0.08))
    assert starts_ms(policy.pop_due(ms_to_samples(400), 0)) == [400]


@pytest.mark.parametrize(
    ("sources", "voice_level", "start_ms"),
    [([Source.ONLINE], 5_000, 400), ([Source.ONLINE], 0, 0), ([], 5_000, 0)],
)
def test_the_first_word_waits_for_speech_of_a_voice_that_is_known(
    sources: list[Source], voice_level: float, start_ms: int
) -> None:
    """Noise 30 dB below its loudest sounds is no word: an aligner would notice a whisper."""
    policy = WordPolicy(sources, voice_level)
    policy.expect(WORDS)
    policy.push_audio(sound(0.4, 350))
    taken = policy.pop_due(ms_to_samples(399), 0)
    policy.push_audio(sound(0.4))
    taken += policy.pop_due(ms_to_samples(400), 0)
    assert starts_ms(taken)[0] == start_ms


def test_a_whisper_is_not_taken_for_noise() -> None:
    heard, unheard = (WordPolicy([Source.ONLINE], 5_000) for _ in range(2))
    for policy in (heard, unheard):
        policy.expect(WORDS)
        policy.push_audio(sound(2.0, 350))
        assert policy.pop_due(NEVER, 0) == ()
    heard.set_tentative([at(WORDS[0], 300, confidence=0.4)])
    assert starts_ms(heard.pop_due(NEVER, 0))[0] == 300
    unheard.push_audio(sound(1.1, 350))
    assert unheard.pop_due(NEVER, 0)


def test_a_word_waits_for_the_vowel_of_the_word_before() -> None:
    """What follows a word is a breath or a pause until the voice was loud once."""
    policy = WordPolicy([Source.ONLINE], 5_000)
    policy.expect(WORDS)
    policy.push_audio(sound(0.1, 500) + sound(0.5, 350))
    policy.set_tentative([at(WORDS[0], 20, confidence=0.4), at(WORDS[1], 200, confidence=0.4)])
    assert starts_ms(policy.pop_due(NEVER, 0)) == [20]
    assert policy.next_start is None, "an event decides: the next audio"
    policy.push_audio(sound(0.1))
    assert starts_ms(policy.pop_due(ms_to_samples(200), 0)) == [200]


def test_a_spoken_word_is_not_guessed_behind_its_segment() -> None:
    """Words of a spoken segment lie inside its audio, however slow the estimate."""
    policy = policy_of(made_s=2.0)
    end = ms_to_samples(1000)
    policy.end_segment(WORDS[5].char_end, end)
    taken = policy.pop_due(end, 0)
    assert [time.word for time in taken] == WORDS[:6]
    assert taken[-1].start_sample == end
    assert policy.next_start is not None
    assert policy.next_start > end


# Published words


@pytest.mark.parametrize("sources", [ALL, ALL[::-1]])
def test_sources_that_disagree_are_doubted(sources: tuple[Source, ...]) -> None:
    """If two aligners differ by more than 300 ms the better one wins, but is not exact."""
    times = {Source.ONLINE: [at(WORDS[0], 0), at(WORDS[1], 290)],
             Source.FORCED: [at(WORDS[0], 301), at(WORDS[1], 580)]}  # fmt: skip
    policy = policy_of(*ALL)
    for source in sources:
        policy.add_times(source, times[source])
    first, second = policy.pop_due(0, 0)
    assert starts_ms((first, second)) == [301, 580]
    assert (first.is_exact, second.is_exact) == (False, True)
    assert policy.counts.doubtful == 1


def test_confidence_grows_where_aligners_agree_and_falls_where_they_do_not() -> None:
    """Two sources for one place are as sure as the surer one; for two places, at most one half."""
    times = {Source.ONLINE: [at(WORDS[0], 0, confidence=0.98), at(WORDS[1], 900, confidence=0.98)],
             Source.FORCED: [at(WORDS[0], 80, confidence=0.9), at(WORDS[1], 500)]}  # fmt: skip
    policy = policy_of(*ALL)
    for source in ALL:
        policy.add_times(source, times[source])
    first, second = policy.pop_due(0, 0)
    assert (first.confidence, second.confidence) == (0.98, 0.5)


@pytest.mark.parametrize(
    ("forced_ms", "start_ms"),
    [(580, 524), (500, 500), (440, 482), (700, 560), (300, 440), (701, 701), (299, 299)],
)
def test_aligners_that_agree_share_a_word(forced_ms: int, start_ms: int) -> None:
    """Up to 200 ms apart, the word is 0.7 of the way from the forced time to the online one.

    Further apart they mean different places, and the forced aligner's time is used. Here 500 ms.
    """
    times = {Source.ONLINE: at(WORDS[0], 500), Source.FORCED: at(WORDS[0], forced_ms)}
    for order in (ALL, ALL[::-1]):
        policy = policy_of(*ALL)
        for source in order:
            policy.add_times(source, [times[source]])
        (taken,) = policy.pop_due(0, 0)
        assert (starts_ms((taken,)), taken.is_exact) == ([start_ms], True)


def test_words_that_left_with_their_final_times_are_not_compared() -> None:
    """The end of a context of 240,000 characters stopped the event loop for 180 ms."""
    for source in (Source.NATIVE, Source.ONLINE):
        policy = policy_of(source)
        policy.add_times(source, [at(word, 100 * place) for place, word in enumerate(WORDS)])
        assert len(policy.pop_due(0, 0)) == len(WORDS) and policy.pop_moved() == []
        assert not policy.may_be_better
    late = policy_of(Source.NATIVE)
    late.add_times(Source.NATIVE, [at(word, 100 * place) for place, word in enumerate(WORDS)])
    late.pop_due(0, ms_to_samples(150))
    assert late.may_be_better and starts_ms(tuple(late.best))[:2] == [0, 100]


_changes = st.one_of(
    st.tuples(st.just("due"), st.integers(0, 3_000), st.integers(0, 1_000)),
    st.tuples(
        st.sampled_from((Source.ONLINE, Source.FORCED, Source.CACHE)),
        st.integers(0, len(WORDS) - 1),
        st.integers(0, 3_000),
    ),
    st.tuples(
        st.just("tentative"),
        st.integers(0, len(WORDS) - 1),
        st.lists(st.integers(0, 3_000), max_size=3),
    ),
)


def plainly_best(
    left: list[WordTimestamp],
    known: dict[Source, dict[Word, int]],
    tentative: dict[Word, int],
) -> list[tuple[Word, int]]:
    """The published words with the starts of the best source, each not before the one before it."""
    best: list[tuple[Word, int]] = []
    start = 0
    for timestamp in left:
        word = timestamp.word
        sources = [source for source in sorted(known, reverse=True) if word in known[source]]
        found = known[sources[0]][word] if sources else tentative.get(word, timestamp.start_sample)
        start = max(start, found)
        best.append((word, start))
    return best


@given(st.lists(_changes, max_size=30))
def test_the_best_times_are_those_of_a_search_through_all_words(changes: list[Any]) -> None:
    """They are kept up to date word by word, so that neither a cut nor the end compares all."""
    policy = policy_of(Source.ONLINE, Source.FORCED)
    left: list[WordTimestamp] = []
    known: dict[Source, dict[Word, int]] = {}
    tentative: dict[Word, int] = {}
    for kind, place, given_ms in changes:
        if kind == "due":
            left += policy.pop_due(ms_to_samples(place), ms_to_samples(given_ms))
        elif kind == "tentative":
            words = WORDS[place : place + len(given_ms)]
            times = [at(word, ms) for word, ms in zip(words, given_ms, strict=False)]
            policy.set_tentative(times)
            tentative = {time.word: time.start_sample for time in times}
        elif WORDS[place] not in known.setdefault(kind, {}):  # each source is final, so says once
            # More than 200 ms from other sources: nearer ones share a word.
            time = at(WORDS[place], 4_000 * kind + given_ms)
            policy.add_times(kind, [time])
            known[kind][WORDS[place]] = time.start_sample
        moved = [timestamp.start_sample for timestamp in policy.pop_moved()]
        assert moved == sorted(moved)
        best = [(timestamp.word, timestamp.start_sample) for timestamp in policy.best]
        assert best == plainly_best(left, known, tentative)
        if best != [(timestamp.word, timestamp.start_sample) for timestamp in left]:
            assert policy.may_be_better


def test_words_that_left_by_an_estimate_are_sent_again_when_they_have_moved() -> None:
    """By more than 20 ms, each time once, in order, until a time is final."""
    policy = policy_of(Source.ONLINE)
    policy.set_tentative([at(word, 100 * place) for place, word in enumerate(WORDS[:3])])
    assert len(policy.pop_due(ms_to_samples(200), 0)) == 3 and policy.pop_moved() == []
    policy.set_tentative([at(WORDS[0], 10), at(WORDS[1], 115), at(WORDS[2], 400)])
    moved = [at(WORDS[0], 10), at(WORDS[1], 115), at(WORDS[2], 400)]
    assert policy.pop_moved() == moved and policy.pop_moved() == []
    policy.add_times(Source.ONLINE, [at(WORDS[0], 20)])
    policy.set_tentative([at(WORDS[1], 115), at(WORDS[2], 300)])
    assert policy.pop_moved() == [at(WORDS[0], 20), at(WORDS[1], 115), at(WORDS[2], 300)]
    policy.set_tentative([at(WORDS[1], 5), at(WORDS[2], 300)])
    first, second = policy.pop_moved()
    assert (first.word, starts_ms((first,))) == (WORDS[1], [20]), "behind the final word"
    assert second == at(WORDS[2], 300)


def test_a_word_is_not_sent_before_one_that_has_moved_behind_it() -> None:
    """Clients search the words by their times; it moves back with that one."""
    policy = policy_of(Source.ONLINE)
    policy.set_tentative([at(WORDS[0], 0), at(WORDS[1], 200)])
    assert len(policy.pop_due(ms_to_samples(200), 0)) == 2
    policy.set_tentative([at(WORDS[1], 900)])
    policy.add_times(Source.ONLINE, [at(WORDS[0], 0)])
    assert starts_ms(tuple(policy.pop_moved())) == [0, 900]
    policy.add_times(Source.CACHE, [at(WORDS[2], 710)])
    (third,) = policy.pop_due(ms_to_samples(800), 0)
    assert starts_ms((third,)) == [900] and not third.is_exact
    policy.set_tentative([at(WORDS[1], 300)])
    assert starts_ms(tuple(policy.pop_moved())) == [300, 710]


# A whole context, with good and bad sources


@dataclass(frozen=True)
class Voice:
    """The speech, and the rate at which it is generated.

    Attributes:
        starts: starts of the words, in samples of the engine.
        rtf: seconds of generation per second of audio.
        stall: frame before which the engine stops for `stall_s`.
    """

    starts: list[int]
    rtf: float
    stall: int
    stall_s: float
    speed: float


@dataclass(frozen=True)
class Aligner:
    """The answers of a simulated aligner.

    Attributes:
        delay_s: time from the audio to the answer.
        look_samples: audio after a word's start that is needed to commit its time.
        errors: errors added to the true starts.
        dies_at_s: time at which it is lost; it reports nothing about later audio.
    """

    source: Source
    delay_s: float
    look_samples: int
    errors: list[int]
    dies_at_s: float


@dataclass
class Run:
    voice: Voice
    aligners: list[Aligner]
    now: float = 100.0
    left: list[tuple[float, WordTimestamp]] = field(default_factory=list)
    _later: list[tuple[float, int, Callable[[], None]]] = field(default_factory=list)
    _order: Iterator[int] = field(default_factory=itertools.count)

    def __post_init__(self) -> None:
        self.heard = HeardWords([a.source for a in self.aligners], self.voice.speed)
        self.heard.expect(TEXT)
        self.clock = self.heard.playout
        self.audio_at: list[float] = []
        self._spans: list[tuple[int, float]] = []  # (first sample, when it is played) of each chunk

    def played_at(self, sample: int) -> float:
        """Return when playback reaches a sample, also one beyond the audio sent so far."""
        start, played_at = next(span for span in reversed(self._spans) if span[0] <= sample)
        return played_at + (sample - start) / SAMPLE_RATE_HZ

    def play(self) -> None:
        """Run the engine's frames and the aligners' answers in order of time."""
        frames = self.voice.starts[-1] // FRAME_SAMPLES + 3
        due = self.now
        for frame in range(frames):
            due += FRAME_S * self.voice.rtf + (frame == self.voice.stall) * self.voice.stall_s
            self._at(due, lambda frame=frame: self._make(frame))
        self._at(due, self._end)
        for aligner in self.aligners:
            end = min(due, self.now + aligner.dies_at_s) + aligner.delay_s
            self._at(end, lambda source=aligner.source: self.heard.policy.drop_source(source))
        while self._later:
            self._pass_until(self._later[0][0])
            self.now, _, act = heapq.heappop(self._later)
            act()
            self._take()

    def _at(self, when: float, act: Callable[[], None]) -> None:
        heapq.heappush(self._later, (when, next(self._order), act))

    def _pass_until(self, when: float) -> None:
        while (due := self.heard.words.due_at) is not None and due < when:
            self.now = max(self.now, due)
            assert self._take(), "a timer that fires lets a word go"

    def _take(self) -> bool:
        taken = self.heard.pop_due(self.now)
        played = self.clock.played_samples(self.now)
        assert all(timestamp.start_sample >= played - 1 for timestamp in taken)
        self.left += [(self.now, timestamp) for timestamp in taken]
        if self.clock.sent_samples and (due := self.heard.words.due_at) is not None:
            assert due > self.now, "a word waits past its deadline"
        return bool(taken)

    def _make(self, frame: int) -> None:
        chunk = AudioChunk(frame * FRAME_SAMPLES, sound(FRAME_S))
        heard = self.heard.push_audio(chunk)
        self._take()
        self._send(heard)
        for aligner in self.aligners:
            if self.now + aligner.delay_s < 100.0 + aligner.dies_at_s:
                self._at(
                    self.now + aligner.delay_s,
                    lambda aligner=aligner: self._answer(aligner, chunk.end_sample),
                )

    def _answer(self, aligner: Aligner, end_sample: int) -> None:
        certain = [
            WordTimestamp(word, max(0, start + error), None, 1.0)
            for word, start, error in zip(WORDS, self.voice.starts, aligner.errors, strict=True)
            if start + aligner.look_samples <= end_sample
        ]
        self.heard.add_times(aligner.source, *certain)

    def _end(self) -> None:
        self._send(self.heard.end_audio())

    def _send(self, heard: AudioChunk | None) -> None:
        if heard is not None:
            self.audio_at.append(self.now)
            self._spans.append((heard.start_sample, max(self.now, self.clock.playout_end)))
            self.clock.send(heard.samples, self.now)


_lengths = st.lists(st.integers(1_500, 24_000), min_size=len(WORDS), max_size=len(WORDS))
_voices = st.builds(
    Voice,
    starts=_lengths.map(lambda lengths: list(np.cumsum(lengths) - lengths[0])),
    rtf=st.floats(0.05, 1.3),
    stall=st.integers(0, 40),
    stall_s=st.floats(0, 2),
    speed=st.sampled_from((1.0, 1.0, 0.5, 1.3, 2.0)),
)


def _aligners(source: Source) -> st.SearchStrategy[Aligner]:
    return st.builds(
        Aligner,
        source=st.just(source),
        delay_s=st.floats(0, 1.5),
        look_samples=st.integers(0, 3 * SAMPLE_RATE_HZ),
        errors=st.lists(st.integers(-12_000, 12_000), min_size=len(WORDS), max_size=len(WORDS)).map(
            lambda errors: [error if abs(error) > 6_000 else error // 100 for error in errors]
        ),
        dies_at_s=st.sampled_from((0.3, 1.0, 1e9, 1e9)),
    )


_crews = st.lists(st.sampled_from(ALL), unique=True).flatmap(
    lambda sources: st.tuples(*map(_aligners, sources)).map(list)
)


@given(_voices, _crews)
def test_every_word_once_in_order_before_it_is_played(voice: Voice, crew: list[Aligner]) -> None:
    """Whatever the sources do: all words, once, in order, none in audio already played.

    At every moment, the words that playback can reach within 150 ms are published.
    """
    run = Run(voice, crew)
    run.play()
    assert [timestamp.word for _, timestamp in run.left] == WORDS
    starts = [timestamp.start_sample for _, timestamp in run.left]
    assert starts == sorted(starts)
    assert run.left[0][0] <= run.audio_at[0], "word 0 comes ahead of the first audio"
    assert run.heard.policy.next_char is None
    best = run.heard.words.best
    refined = [best[place] for place in range(len(best))]
    assert [timestamp.word for timestamp in refined] == WORDS
    refined_starts = [timestamp.start_sample for timestamp in refined]
    assert refined_starts == sorted(refined_starts)


@given(_voices)
def test_what_is_known_leaves_before_playback_can_reach_it(voice: Voice) -> None:
    """Times known from the start are published 150 ms before playback, or ahead of all audio.

    They wait for the forced aligner, which never answers, until their deadline.
    """
    run = Run(voice, [Aligner(Source.FORCED, 1e6, 0, [0] * len(WORDS), 1e9)])
    known = zip(WORDS, voice.starts, strict=True)
    times = tuple(WordTimestamp(word, int(start), None, 1.0) for word, start in known)
    run.heard.add_times(Source.ONLINE, *times)
    run.play()
    assert run.heard.policy.counts.late == 0
    for (left_at, timestamp), start in zip(run.left, voice.starts, strict=True):
        assert timestamp.is_exact
        assert timestamp.start_sample == round(start / voice.speed)
        played_at = run.played_at(timestamp.start_sample)
        assert left_at <= max(played_at - LEAD_MS / 1000, run.audio_at[0])
