"""The codec is given as much as it can turn into audio soon, the most urgent first."""

import pytest

from voiceagent_tts.core import FRAME_SAMPLES
from voiceagent_tts.engine.scheduler import Pace, Scheduler
from voiceagent_tts.engine.sequence import ActiveSequence, EngineContext

ROWS, EVERYTHING = 100, 10**9


def make_context(row: int, *, has_spoken: bool, undecoded: int, decoding: int) -> EngineContext:
    """A context whose row makes frames; those with smaller rows have less audio in hand."""
    context = EngineContext(row, arrival=row, samples_wanted=EVERYTHING)
    context.active = ActiveSequence(row, undecoded_frames=undecoded, decoding_frames=decoding)
    if has_spoken:
        context.record_sent((30 + row) * FRAME_SAMPLES, 0.0)
    return context


def planned(contexts: list[EngineContext]) -> dict[int, int]:
    """Frames that the codec is given in a step of all rows, by row, in order."""
    plan = Scheduler(Pace(), ROWS, ROWS).plan(contexts, 0.0)
    return {context.id: frames for context, frames in plan.decode}


def test_a_full_codec_is_given_first_audio_only() -> None:
    """Beyond the limit only contexts without audio are decoded, however many there are."""
    spoken = [make_context(row, has_spoken=True, undecoded=30, decoding=12) for row in range(20)]
    silent = [make_context(row, has_spoken=False, undecoded=0, decoding=0) for row in range(20, 60)]
    assert planned([*spoken, *silent]) == dict.fromkeys(range(20, 60), 1)


@pytest.mark.parametrize("rows", [1, 4, 50, 100])
def test_the_limit_grows_with_the_rows(rows: int) -> None:
    """An empty codec is given up to a fixed number of frames and some per row, and no more."""
    contexts = [make_context(row, has_spoken=True, undecoded=40, decoding=0) for row in range(rows)]
    given = sum(planned(contexts).values())
    assert given == min(12 * rows, 128 + 4 * rows)


def test_who_has_the_least_audio_is_decoded_first() -> None:
    """Where not all windows fit, those of the listeners with the least audio in hand do."""
    contexts = [make_context(row, has_spoken=True, undecoded=40, decoding=0) for row in range(100)]
    given = planned(contexts[::-1])
    assert list(given) == list(range(len(given)))
    assert len(given) < 100
