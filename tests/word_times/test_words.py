"""The publisher's waits for aligners, at times that a test passes in."""

from collections.abc import Callable
from typing import Any

from voiceagent_tts.audio.listener_clock import ListenerClock
from voiceagent_tts.core import AudioChunk, PlayoutClock, Segment, WordTimestamp
from voiceagent_tts.synthesizer.events import Source
from voiceagent_tts.synthesizer.lost_text import lose_text
from voiceagent_tts.text.words import split_words
from voiceagent_tts.word_times.aligned_words import AlignedWords
from voiceagent_tts.word_times.aligners import ContextAligners, VoiceLevels

TEXT = "one two three"
WORDS = split_words(TEXT)
NOW = 100.0


class SlowAligner:
    source = Source.ONLINE
    worst_lag_s = 0.0
    is_active, number = True, 1

    def release(self) -> None:
        self.is_active = False

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_: None  # what it is told


def publisher_with(
    aligner: SlowAligner,
    text: str = TEXT,
    clock: PlayoutClock | None = None,
    levels: VoiceLevels | None = None,
) -> AlignedWords:
    """A publisher that expects `text`, and all its words if it is `TEXT`."""
    handles: list[Any] = [aligner]
    aligners = ContextAligners(handles, "v", levels or VoiceLevels())
    clocks = clock or PlayoutClock(), ListenerClock()
    publisher = AlignedWords(lambda *_: aligners, *clocks, "v", lambda *_: None)
    publisher.expect(Segment(text, 0), is_whole=text == TEXT)
    return publisher


def hear(publisher: AlignedWords, chunk: AudioChunk) -> None:
    publisher.push_audio(chunk, lambda: "en")
    publisher.listener.push_audio(chunk)
    publisher.pop_due(NOW)


def finished_publisher() -> tuple[AlignedWords, SlowAligner]:
    """A publisher whose audio has all arrived and whose aligner has found nothing yet."""
    aligner = SlowAligner()
    publisher = publisher_with(aligner)
    hear(publisher, AudioChunk(0, b"\x00\x10" * 24_000))
    publisher.end_segment(len(TEXT), 24_000)
    publisher.end_audio(NOW)
    publisher.pop_due(NOW)
    return publisher, aligner


def answer(publisher: AlignedWords, now: float, *words: WordTimestamp) -> None:
    publisher.add_aligned(Source.ONLINE, words, (), now)
    publisher.pop_due(now)


def timed(place: int) -> WordTimestamp:
    return WordTimestamp(WORDS[place], 6_000 * place, None, 1.0)


def exactness(publisher: AlignedWords) -> list[bool]:
    """Which words were published with exact times; the first leaves ahead of all audio."""
    return [word.is_exact for word in publisher.published]


def test_a_slow_aligner_is_waited_for_while_it_answers() -> None:
    """On a busy machine a long context gets all its times, however long the aligner takes."""
    publisher, _ = finished_publisher()
    for place in range(3):
        now = NOW + 4.0 * (place + 1)
        publisher.pop_due(now)
        answer(publisher, now, timed(place))
    assert exactness(publisher) == [False, True, True]


def test_a_silent_aligner_is_left() -> None:
    publisher, aligner = finished_publisher()
    answer(publisher, NOW, timed(0), timed(1))
    assert publisher.due_at == NOW + 5.0
    publisher.pop_due(NOW + 4.9)
    assert not publisher.is_complete
    publisher.pop_due(NOW + 5.0)
    assert publisher.is_complete and not aligner.is_active
    assert exactness(publisher) == [False, True, False]


def test_noise_before_the_first_word_is_told_from_a_voice_that_is_known() -> None:
    """How loud a voice was in one context decides in the next when its first word may begin."""
    levels = VoiceLevels()
    noise, speech = b"\xa0\x01" * 1_920, b"\x00\x40" * 24_000
    unknown = publisher_with(SlowAligner(), levels=levels)
    hear(unknown, AudioChunk(0, noise))
    assert len(unknown.published) == 1
    hear(unknown, AudioChunk(1_920, speech))
    unknown.stop()
    known = publisher_with(SlowAligner(), levels=levels)
    hear(known, AudioChunk(0, noise))
    assert known.published == []
    hear(known, AudioChunk(1_920, speech))
    assert [word.start_sample for word in known.published] == [1_920]


def test_an_engine_that_fails_leaves_the_words_that_it_has_spoken() -> None:
    """After the last audio of a context no word can follow, however far playback has come."""
    clock = PlayoutClock()
    publisher = publisher_with(SlowAligner(), clock=clock)
    hear(publisher, AudioChunk(0, b"\x00\x40" * 9_600))
    clock.send(9_600, NOW + 10)
    assert [word.word.text for word in publisher.published] == ["one"]
    publisher.break_off()
    publisher.pop_due(NOW)
    assert [word.word.text for word in publisher.published] == ["one", "two"]
    assert publisher.published[-1].start_sample < 9_600


def test_a_lost_text_takes_back_the_words_that_no_aligner_is_sure_of() -> None:
    sent = [
        WordTimestamp(word, index, None, sure)
        for index, (word, sure) in enumerate(zip(WORDS, (0.3, 1.0, 0.3), strict=True))
    ]
    for ended_at, spoken in [(0, "one two"), (len(TEXT), TEXT)]:
        publisher = publisher_with(SlowAligner())
        publisher.published = list(sent)
        assert lose_text(publisher, ended_at, 0)[0] == len(spoken)
        assert [each.word.text for each in publisher.published] == spoken.split()
