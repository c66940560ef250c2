"""When the transport plays what has left the service, on scripted clocks."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pipecat.frames.frames import TTSAudioRawFrame

from voiceagent_tts.adapters.pipecat.playout import Playout
from voiceagent_tts.core import SAMPLE_RATE_HZ

CHUNKS_S = st.sampled_from([0.01, 0.04, 0.1])


def audio(seconds: float) -> TTSAudioRawFrame:
    """Silence of this length, as the service sends it."""
    return TTSAudioRawFrame(bytes(2 * round(seconds * SAMPLE_RATE_HZ)), SAMPLE_RATE_HZ, 1)


def playing(context_id: str, seconds: float, now_s: float, chunk_s: float = 0.04) -> Playout:
    """A transport that has got an utterance whole."""
    playout = Playout(latency_s=0.02)
    playout.chunk_s = chunk_s
    add(playout, context_id, seconds, now_s)
    return playout


def add(playout: Playout, context_id: str, seconds: float, now_s: float) -> None:
    """One more utterance leaves."""
    playout.start_context(context_id)
    playout.baseline_s = now_s
    playout.play(audio(seconds), now_s)


def heard_s(playout: Playout, position_s: float) -> float:
    """When a word at this position of the current utterance is heard."""
    return playout.heard_ns(round((playout.baseline_s + position_s) * 1e9)) / 1e9


@given(st.integers(0, 100), CHUNKS_S)
def test_a_word_enters_the_history_in_the_chunk_that_makes_it_audible(
    position: int, chunk_s: float
) -> None:
    """Not before that chunk plays, and not after its end, which an interruption cannot stop."""
    position_s = position * 0.007
    at_s = heard_s(playing("one", 1.0, 5.0, chunk_s), position_s) - 5.0
    begins_s = (math.ceil((position_s + 0.0199) / chunk_s) - 1) * chunk_s
    assert begins_s - 1e-3 <= at_s <= max(begins_s + chunk_s, 0.02) + 1e-3


@pytest.mark.parametrize(("position_s", "at_s"), [(0.179, 0.165), (0.18, 0.165), (0.181, 0.205)])
def test_a_word_is_heard_once_20_ms_of_it_were_played(position_s: float, at_s: float) -> None:
    """A word whose twentieth millisecond is the last one of a chunk is heard with that chunk."""
    assert heard_s(playing("one", 1.0, 5.0), position_s) - 5.0 == pytest.approx(at_s)


@given(st.lists(st.integers(1, 500), min_size=1, max_size=10), CHUNKS_S)
def test_each_utterance_is_filled_up_to_a_chunk(lengths_ms: list[int], chunk_s: float) -> None:
    """However many are queued, the next one begins where the transport begins it."""
    playout, end_s = Playout(latency_s=0.02), 1.0
    playout.chunk_s = chunk_s
    for index, length_ms in enumerate(lengths_ms):
        add(playout, str(index), length_ms / 1000, 1.0)
        playout.end_context(1.0)
        end_s += -(-length_ms // round(chunk_s * 1000)) * chunk_s
    assert playout.end_ns / 1e9 == pytest.approx(end_s, abs=1e-3)


def test_the_pause_between_two_utterances_is_what_is_missing() -> None:
    """0.2 s behind audio that still plays, less after it, none after an interruption."""
    assert Playout(latency_s=0.02).pause_s(0.0) == 0.0
    playout = playing("one", 1.0, 5.0)
    assert playout.pause_s(5.5) == pytest.approx(0.2)
    assert playout.pause_s(6.05) == pytest.approx(0.15)
    assert playout.pause_s(6.3) == 0.0
    playout.interrupt()
    assert playout.pause_s(5.5) == 0.0


def test_the_ends_of_chunks_correct_a_start_that_was_reported_early() -> None:
    """The chunk that ends with the least delay counts; those of a transport that hurries do not."""
    playout = playing("one", 1.0, 5.0)
    assert playout.awaits_start(5.0) and not playout.awaits_start(4.9)
    playout.transport_started(5.0)
    assert not playout.awaits_start(5.0)
    for ends_at_s in (5.07, 5.105, 5.16, 5.18, 5.25, 5.27):
        playout.chunk_ended(ends_at_s)
    assert heard_s(playout, 0.31) == pytest.approx(5.325 + 0.02)
    hurried = playing("two", 1.0, 5.0)
    hurried.transport_started(5.0)
    hurried.chunk_ended(5.01)
    assert heard_s(hurried, 0.31) == pytest.approx(5.325)


def test_a_start_is_not_awaited_without_a_whole_chunk() -> None:
    """A transport does not start with less."""
    assert not playing("one", 0.03, 5.0).awaits_start(5.0)


def test_a_late_start_moves_what_follows() -> None:
    """Each start that the transport reports belongs to the first utterance that had none."""
    playout = playing("one", 1.0, 5.0)
    playout.end_context(5.0)
    add(playout, "two", 1.0, 5.0)
    assert heard_s(playout, 0.11) == pytest.approx(6.125)
    playout.transport_started(5.03)
    assert heard_s(playout, 0.31) == pytest.approx(6.355)
    playout.transport_started(6.04)
    assert heard_s(playout, 0.51) == pytest.approx(6.565)
    playout.transport_started(9.0)
    assert heard_s(playout, 0.71) == pytest.approx(6.765)
