import numpy as np

from voiceagent_tts.aligner.online.espeak_reference import ReferenceWord
from voiceagent_tts.aligner.online.trace import Trace
from voiceagent_tts.core import Word

HOP = 240


def word(first: int, end: int) -> ReferenceWord:
    """A word that is in these frames of the reference, and nothing else of interest."""
    return ReferenceWord(Word("w", 0, 1), first, end, 50, -50, True, float(end - first))


def test_a_word_begins_where_the_path_comes_to_it() -> None:
    """From its first frame to its last, moved by as much as the reference is beside its frames."""
    trace = Trace(np.arange(10), [HOP * place for place in range(10)])
    time = trace.time(word(3, 6))
    assert (time.start_sample, time.end_sample) == (3 * HOP + 50, 5 * HOP - 50)
    assert time.is_exact
    assert trace.frames_in(word(3, 6)) == 3


def test_a_word_that_is_skipped_begins_with_the_next_frame() -> None:
    """The path need not touch its first frame."""
    trace = Trace(np.array([0, 1, 3, 5, 6]), [HOP * place for place in range(5)])
    assert trace.time(word(2, 4)).start_sample == 2 * HOP + 50


def test_a_word_behind_a_pause_does_not_begin_before_it() -> None:
    """What is left of the sound before a pause is not the next word's beginning."""
    centres = [0, HOP, 2 * HOP, 50 * HOP, 51 * HOP, 52 * HOP]
    trace = Trace(np.array([0, 1, 2, 3, 4, 5]), centres)
    assert trace.time(word(2, 5)).start_sample == 50 * HOP + 50


def test_the_end_of_a_word_is_not_known_before_it_is_reached() -> None:
    """A word that is under way has a start; one that is to come has not begun."""
    trace = Trace(np.arange(5), [HOP * place for place in range(5)])
    assert trace.time(word(3, 8)).end_sample is None
    assert trace.has_begun(word(4, 8))
    assert not trace.has_begun(word(5, 8))


def test_a_word_without_sound_has_no_length() -> None:
    """It stands where the next frame is, and is no exact time."""
    time = Trace(np.arange(5), [HOP * place for place in range(5)]).time(word(2, 2))
    assert time.start_sample == time.end_sample
    assert not time.is_exact
