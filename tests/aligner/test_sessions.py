"""The sessions of an online aligner, driven by commands, on espeak's audio."""

from collections.abc import Sequence

import pytest

from testbed import segment_driving
from testbed.align_driving import AlignDriver
from testbed.segment_driving import of_type, pcm_of
from voiceagent_tts.aligner.online.aligner import OnlineAligner, OnlineSessions
from voiceagent_tts.core import AudioChunk, WordTimestamp
from voiceagent_tts.errors import ErrorCode
from voiceagent_tts.seam.aligner_messages import (
    Aligned,
    Expect,
    Finish,
    Follow,
)
from voiceagent_tts.seam.commands import Cancel
from voiceagent_tts.seam.events import (
    AudioStep,
    Cancelled,
    ContextAudio,
    Done,
    Failed,
    SegmentEnd,
    Words,
)
from voiceagent_tts.text.words import split_words

TEXT = "The quick brown fox jumps over the lazy dog. Then it slept, as all dogs do."
FRAME_BYTES = 3840


def drive() -> AlignDriver:
    return AlignDriver(lambda inbox, outbox: OnlineSessions(inbox, outbox, OnlineAligner()))


@pytest.fixture(scope="module")
def spoken() -> tuple[bytes, list[WordTimestamp]]:
    driver = segment_driving.Driver()
    events = driver.run(driver.submit(1, TEXT), segment_driving.credit(1))
    words = [word for event in of_type(Words, events) for word in event.words]
    return pcm_of(events, 1), words


def audio(pcm: bytes, *contexts: int) -> Sequence[AudioStep]:
    return [
        AudioStep(
            tuple(
                ContextAudio(context, AudioChunk(start // 2, pcm[start : start + FRAME_BYTES]))
                for context in contexts
            )
        )
        for start in range(0, len(pcm), FRAME_BYTES)
    ]


def test_every_word_is_sent_once_with_the_end_of_the_audio(
    spoken: tuple[bytes, list[WordTimestamp]],
) -> None:
    pcm, truth = spoken
    driver = drive()
    for context in (1, 2):
        driver.step(Follow(context, "en", "v"), Expect(context, tuple(split_words(TEXT))))
    assert driver.sessions.rows_used == 2
    for step in audio(pcm, 1, 2):
        aligned = [event for event in driver.step(step) if isinstance(event, Aligned)]
        assert [event.end_sample for event in aligned] == [step.rows[0].chunk.end_sample] * 2
    for context in (1, 2):
        assert driver.words(context), "most words are known before the end"
        end = driver.step(SegmentEnd(context, len(TEXT), len(pcm) // 2), Finish(context))
        assert end[-1] == Done(context, len(pcm) // 2)
        assert [word.word for word in driver.words(context)] == split_words(TEXT)
        for word, true in zip(driver.words(context), truth, strict=True):
            assert word.start_sample == pytest.approx(true.start_sample, abs=2400)
    assert driver.sessions.rows_used == 0


def test_a_context_that_fails_fails_alone(spoken: tuple[bytes, list[WordTimestamp]]) -> None:
    """A language without a reference fails its context alone, with a list of the known languages.

    Later commands for it are ignored.
    """
    pcm, _ = spoken
    driver = drive()
    failed, *rest = driver.step(
        Follow(1, "xx", "v"),
        Expect(1, tuple(split_words(TEXT))),
        Follow(2, "en", "v"),
        Expect(2, tuple(split_words(TEXT))),
    )
    assert isinstance(failed, Failed)
    assert (failed.context, failed.code) == (1, ErrorCode.INVALID_LANGUAGE)
    assert "known are" in failed.message
    assert rest == []
    driver.step(*audio(pcm, 1, 2), Finish(1), Finish(2))
    assert [word.word for word in driver.words(2)] == split_words(TEXT)
    assert not any(event.context == 1 for event in driver.answers[1:])


def test_cancel_drops_a_context(spoken: tuple[bytes, list[WordTimestamp]]) -> None:
    """A cancel is answered, even for an unknown context, and nothing follows it."""
    driver = drive()
    driver.step(Follow(1, "en", "v"), Expect(1, tuple(split_words(TEXT))))
    assert driver.step(Cancel(1), *audio(spoken[0], 1), Finish(1)) == [Cancelled(1)]
    assert driver.step(Cancel(7)) == [Cancelled(7)]
    driver.step(Follow(2, "en", "v"))
    driver.sessions.close()
    driver.sessions.close()
    assert driver.sessions.rows_used == 0
