"""Which clips the forced aligner gets, and when: with a fake and with a tiny network."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from testbed.align_driving import AlignDriver
from testbed.tiny_aligner import write_tiny_aligner
from voiceagent_tts.core import SAMPLE_RATE_HZ, AudioChunk, WordTimestamp
from voiceagent_tts.errors import ErrorCode
from voiceagent_tts.plugins.forced.load import load_forced
from voiceagent_tts.plugins.forced.prompt import Clip
from voiceagent_tts.plugins.forced.sessions import ForcedSessions, Pacing
from voiceagent_tts.seam.aligner_messages import Aligned, Expect, Finish, Follow
from voiceagent_tts.seam.events import AudioStep, ContextAudio, Done, Failed, SegmentEnd
from voiceagent_tts.text.words import split_words

TEXT = "one two three four five six seven eight nine ten"
WORDS = tuple(split_words(TEXT))
SECOND = SAMPLE_RATE_HZ
PACING = Pacing(pass_samples=SECOND, step_samples=60 * SECOND)


class FakeAligner:
    """Finds the exact times: the value of each sample is the number of its word."""

    def __init__(self) -> None:
        self.calls: list[Sequence[Clip]] = []
        self.error: Exception | None = None

    def align(self, clips: Sequence[Clip]) -> list[tuple[WordTimestamp, ...]]:
        """The true times; words after the end of the clip are at its end."""
        self.calls.append(clips)
        if self.error is not None:
            raise self.error
        return [tuple(self._align(clip)) for clip in clips]

    def _align(self, clip: Clip):
        samples = np.frombuffer(clip.pcm, "<i2")
        for word in clip.words:
            places = np.flatnonzero(samples == word.char_start + 1)
            ends = (places[0], places[-1] + 1) if len(places) else (len(samples), len(samples))
            yield WordTimestamp(word, int(ends[0]), int(ends[1]), 1.0)


def voice() -> bytes:
    """Half a second of audio for each word."""
    return b"".join(np.full(SECOND // 2, word.char_start + 1, "<i2").tobytes() for word in WORDS)


def drive(aligner: FakeAligner, pacing: Pacing = PACING) -> AlignDriver:
    """A driver of the sessions of a forced aligner."""
    return AlignDriver(lambda inbox, outbox: ForcedSessions(inbox, outbox, aligner, pacing))


def audio(context: int, start_sample: int, end_sample: int) -> AudioStep:
    """An audio step with a part of the voice."""
    pcm = voice()[2 * start_sample : 2 * end_sample]
    return AudioStep((ContextAudio(context, AudioChunk(start_sample, pcm)),))


def check_truth(words: Sequence[WordTimestamp]) -> None:
    """Assert that all words are there once, with their true times."""
    assert [word.word for word in words] == list(WORDS)
    for place, word in enumerate(words):
        assert (word.start_sample, word.end_sample) == (
            place * SECOND // 2,
            (place + 1) * SECOND // 2,
        )


def test_segments_are_aligned_when_they_end() -> None:
    """Each segment is one clip of its words and audio, placed on the context's clock."""
    fake = FakeAligner()
    driver = drive(fake, Pacing(100 * SECOND, 60 * SECOND))
    driver.step(Follow(1, "en-us", "v"), Expect(1, WORDS), audio(1, 0, 3 * SECOND))
    assert fake.calls == []
    middle = WORDS[4].char_start
    (first,) = driver.step(SegmentEnd(1, middle, 2 * SECOND))
    assert isinstance(first, Aligned)
    assert first.end_sample == 2 * SECOND
    assert [word.word for word in first.words] == list(WORDS[:4])
    driver.step(audio(1, 3 * SECOND, 5 * SECOND), SegmentEnd(1, len(TEXT), 5 * SECOND), Finish(1))
    assert driver.answers[-1] == Done(1, 5 * SECOND)
    check_truth(driver.words(1))
    assert [len(clip.pcm) // 2 for (clip,) in fake.calls[:2]] == [2 * SECOND, 3 * SECOND]
    assert driver.sessions.rows_used == 0


@pytest.mark.parametrize("step", [1920, 7_000, 30_000])
def test_a_long_segment_is_aligned_while_it_grows(step: int) -> None:
    """After each second of audio, words that end well before its end are reported, each once."""
    fake = FakeAligner()
    driver = drive(fake)
    driver.step(Follow(1, "en", "v"), Expect(1, WORDS))
    known = []
    for start in range(0, 5 * SECOND, step):
        driver.step(audio(1, start, min(start + step, 5 * SECOND)))
        known.append(len(driver.words(1)))
        for word in driver.words(1):
            assert word.end_sample is not None
            assert word.end_sample <= start + step - SECOND // 2
    assert known[-1] >= 6, "most are known before the segment ends"
    driver.step(Finish(1))
    check_truth(driver.words(1))
    longest = max(len(clip.pcm) for clips in fake.calls for clip in clips)
    assert longest <= 2 * 3 * SECOND, "audio whose words are known is not aligned again"


def test_contexts_share_a_pass_and_ended_segments_go_first() -> None:
    """Clips that are due together share a pass, up to the limit of a step."""
    fake = FakeAligner()
    driver = drive(fake, Pacing(SECOND, 5 * SECOND))
    for context in (1, 2, 3):
        driver.step(Follow(context, "en", "v"), Expect(context, WORDS))
    middle = WORDS[4].char_start
    driver.step(
        *(audio(context, 0, 2 * SECOND) for context in (1, 2, 3)), SegmentEnd(3, middle, 2 * SECOND)
    )
    first, second = fake.calls[:2]
    assert len(first[0].words) == 4, "the segment that has ended"
    assert (len(first), len(second)) == (2, 1)


def test_a_failure_ends_the_contexts_of_its_clips() -> None:
    """An aligner out of memory fails the contexts of its clips; the others continue."""
    fake = FakeAligner()
    driver = drive(fake)
    driver.step(Follow(1, "en", "v"), Expect(1, WORDS), Follow(2, "en", "v"), Expect(2, WORDS))
    fake.error = MemoryError("one two three")
    (failed,) = driver.step(audio(1, 0, 2 * SECOND))
    assert isinstance(failed, Failed)
    assert (failed.context, failed.code) == (1, ErrorCode.ENGINE_ERROR)
    assert "one" not in failed.message
    fake.error = None
    assert driver.step(audio(1, 2 * SECOND, 3 * SECOND), Finish(1)) == []
    driver.step(audio(2, 0, 5 * SECOND), Finish(2))
    check_truth(driver.words(2))


def test_an_unknown_language_is_refused() -> None:
    """The context fails at once, and no clip is aligned."""
    fake = FakeAligner()
    driver = drive(fake)
    (failed,) = driver.step(Follow(1, "nl", "v"), Expect(1, WORDS), audio(1, 0, 3 * SECOND))
    assert isinstance(failed, Failed)
    assert failed.code is ErrorCode.INVALID_LANGUAGE
    assert fake.calls == []


def test_a_real_network_finds_all_words(tmp_path: Path) -> None:
    """With a tiny network every word is reported once, in order, inside the audio."""
    model = str(write_tiny_aligner(tmp_path / "tiny"))
    driver = AlignDriver(partial(load_forced, model=model, device="cpu", threads=1))
    assert driver.sessions.capabilities.aligner == "on the CPU: set by aligner_device"
    driver.step(Follow(1, "en", "v"), Expect(1, WORDS), audio(1, 0, 5 * SECOND), Finish(1))
    assert driver.answers[-1] == Done(1, 5 * SECOND)
    words = driver.words(1)
    assert [word.word for word in words] == list(WORDS)
    starts = [word.start_sample for word in words]
    assert starts == sorted(starts)
    assert all(word.end_sample is not None and word.end_sample <= 5 * SECOND for word in words)


def test_more_than_five_minutes_at_once_fail_their_context_alone() -> None:
    """The model was trained on 300 s: such a context loses its exact times, and no other does."""
    driver = drive(FakeAligner())
    long = bytes(301 * SECOND * 2)
    answers = driver.step(
        *(Follow(context, "en", "v") for context in (1, 2)),
        *(Expect(context, WORDS) for context in (1, 2)),
        AudioStep((ContextAudio(1, AudioChunk(0, long)), ContextAudio(2, AudioChunk(0, voice())))),
        *(Finish(context) for context in (1, 2)),
    )
    assert [answer.code for answer in answers if isinstance(answer, Failed)] == [
        ErrorCode.ENGINE_ERROR
    ]
    assert [answer.context for answer in answers if isinstance(answer, Done)] == [2]
    assert driver.sessions.rows_used == 0
