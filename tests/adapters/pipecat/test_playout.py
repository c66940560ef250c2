"""Which chunk the transport plays, by its reports, and which frames wait for it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pipecat.frames.frames import (
    AggregatedTextFrame,
    DataFrame,
    Frame,
    InputAudioRawFrame,
    LLMMessagesTransformFrame,
    TTSAudioRawFrame,
    TTSStartedFrame,
    TTSStoppedFrame,
    TTSTextFrame,
)
from pipecat.utils.text.base_text_aggregator import TextType

from voiceagent_tts.adapters.pipecat.output import Output
from voiceagent_tts.adapters.pipecat.playout import Playout
from voiceagent_tts.core import SAMPLE_RATE_HZ

CHUNKS_S = st.sampled_from([0.01, 0.04, 0.1])


def audio(seconds: float) -> TTSAudioRawFrame:
    """Silence of this length, as the service sends it."""
    return TTSAudioRawFrame(bytes(2 * round(seconds * SAMPLE_RATE_HZ)), SAMPLE_RATE_HZ, 1)


def playing(
    context_id: str, seconds: float, now_s: float, chunk_s: float = 0.04, latency_s: float = 0.0
) -> Playout:
    """A transport that has got an utterance whole."""
    playout = Playout(latency_s)
    playout.transport_ready(chunk_s)
    add(playout, context_id, seconds, now_s)
    return playout


def add(playout: Playout, context_id: str, seconds: float, now_s: float) -> None:
    """One more utterance leaves."""
    playout.start_context(context_id)
    playout.play(audio(seconds), now_s)


def end_chunk(playout: Playout, now_s: float) -> None:
    """The transport reports a chunk of its length."""
    playout.chunk_ended(playout.chunk_s, now_s)


@given(st.lists(st.integers(1, 500), min_size=1, max_size=10), CHUNKS_S)
def test_each_utterance_is_filled_up_to_a_chunk(lengths_ms: list[int], chunk_s: float) -> None:
    """However many are queued, the next one begins where the transport begins it."""
    playout, end_s = Playout(latency_s=0.0), 1.0
    playout.transport_ready(chunk_s)
    for index, length_ms in enumerate(lengths_ms):
        add(playout, str(index), length_ms / 1000, 1.0)
        playout.end_context(1.0)
        end_s += -(-length_ms // round(chunk_s * 1000)) * chunk_s
    assert playout.end_s(1.0) == pytest.approx(end_s, abs=1e-3)


def test_a_chunk_is_at_hand_by_the_last_report() -> None:
    """A transport that has lost time plays it later than it could have."""
    playout = playing("one", 1.0, 5.0)
    playout.transport_started(5.0)
    assert playout.at_hand_s(2, 5.0) == pytest.approx(0.08)
    end_chunk(playout, 5.1)
    assert playout.at_hand_s(2, 5.11) == pytest.approx(0.03)


def test_the_pause_between_two_utterances_is_what_is_missing() -> None:
    """0.2 s behind audio that still plays, less after it, none after an interruption."""
    assert Playout(latency_s=0.0).pause_s(0.0) == 0.0
    playout = playing("one", 1.0, 5.0)
    assert playout.pause_s(5.5) == pytest.approx(0.2)
    assert playout.pause_s(6.05) == pytest.approx(0.15)
    assert playout.pause_s(6.3) == 0.0
    playout.interrupt()
    assert playout.pause_s(5.5) == 0.0


def test_an_utterance_whose_start_is_not_reported_plays_from_its_first_chunk() -> None:
    """A transport that was interrupted between two chunks reports the start of the one left."""
    playout = playing("one", 1.0, 5.0)
    playout.interrupt()
    playout.transport_stopped(5.5)
    playout.transport_started(5.5)  # with the chunk that is left
    add(playout, "two", 1.0, 5.53)
    end_chunk(playout, 5.54)  # that chunk
    assert playout.wait_s(0, 5.56) is None
    end_chunk(playout, 5.57)
    assert (playout.wait_s(1, 5.57), playout.wait_s(2, 5.6)) == (0.0, None)
    assert playout.heard_ms("two", 5.57) == 80


def test_a_late_report_of_a_chunk_before_the_interruption_starts_no_utterance() -> None:
    """In a busy program it comes after new audio has left; the true start follows it."""
    playout = playing("one", 1.0, 5.0)
    playout.transport_started(5.0)
    for index in range(12):
        end_chunk(playout, 5.04 + 0.04 * index)
    playout.interrupt()
    playout.transport_stopped(5.49)
    add(playout, "two", 1.0, 5.50)
    end_chunk(playout, 5.60)
    playout.transport_started(5.60)
    assert (playout.wait_s(0, 5.60), playout.wait_s(1, 5.60)) == (0.0, None)
    end_chunk(playout, 5.64)
    assert playout.heard_ms("two", 5.64) == 80


@pytest.mark.parametrize(("latency_s", "heard_ms"), [(0.0, 120), (0.05, 70), (0.2, 0)])
def test_what_is_on_its_way_to_the_listener_is_not_heard(latency_s: float, heard_ms: int) -> None:
    """It has left the transport, and no more."""
    playout = playing("one", 1.0, 5.0, latency_s=latency_s)
    playout.transport_started(5.0)
    end_chunk(playout, 5.04)
    end_chunk(playout, 5.08)
    assert playout.heard_ms("one", 5.08) == heard_ms


@pytest.mark.parametrize("late_s", [0.0, 0.3])
def test_a_transport_that_reports_ahead_plays_in_its_own_time(late_s: float) -> None:
    """One with a buffer reports chunks as played that it has only got, also after a late start."""
    playout = playing("one", 1.0, 5.0)
    start_s = 5.0 + late_s
    playout.transport_started(start_s)
    for _ in range(25):
        end_chunk(playout, start_s)
    assert playout.wait_s(10, start_s + 0.1) == pytest.approx(0.3)
    assert playout.heard_ms("one", start_s + 0.1) == 120


def test_a_transport_that_waits_too_long_drops_what_fills_no_chunk() -> None:
    """What comes then begins a chunk of its own, and starts anew."""
    playout = playing("one", 0.05, 5.0)
    playout.transport_started(5.0)
    end_chunk(playout, 5.04)
    playout.transport_stopped(8.0)
    add(playout, "one", 0.1, 9.0)
    assert playout.chunk_at(0.06) == 1  # the first 50 ms are one chunk of 40 ms
    assert playout.wait_s(1, 9.0) is None
    playout.transport_started(9.0)
    assert playout.wait_s(1, 9.0) == 0.0


def test_the_next_utterance_waits_for_its_own_start() -> None:
    """It may be reported long after the end of the one before."""
    playout = playing("one", 0.1, 5.0)
    playout.end_context(5.0)
    add(playout, "two", 0.1, 5.0)
    playout.transport_started(5.0)
    for _ in range(3):
        end_chunk(playout, 5.1)
    playout.transport_stopped(5.2)
    assert playout.wait_s(3, 9.0) is None
    playout.transport_started(9.0)
    assert playout.wait_s(3, 9.0) == 0.0


def test_a_transport_that_reports_nothing_is_followed_by_the_clock() -> None:
    """Two seconds after its audio should have played."""
    playout = playing("one", 1.0, 5.0)
    assert playout.report_overdue_s(5, 5.2) == pytest.approx(2.0)
    playout.go_on_unseen()
    assert playout.wait_s(5, 5.1) == pytest.approx(0.1)
    assert playout.wait_s(99, 5.1) is not None  # or who waits for a report would never sleep


def test_without_a_transport_the_clock_decides() -> None:
    """At once: no report will ever come."""
    playout = Playout(latency_s=0.0)
    add(playout, "one", 1.0, 5.0)
    assert playout.wait_s(5, 5.1) == pytest.approx(0.1)
    assert playout.wait_s(11, 5.5) == 0.0
    assert playout.heard_ms("one", 5.5) == 520


def test_reported_chunks_count_by_their_length() -> None:
    """A filter of the transport may cut them anew, or keep some of the audio back."""
    playout = playing("one", 1.0, 5.0)
    playout.transport_started(5.0)
    playout.chunk_ended(0.03, 5.03)
    assert playout.wait_s(1, 5.04) is None
    playout.chunk_ended(0.09, 5.12)
    assert (playout.wait_s(3, 5.12), playout.wait_s(4, 5.16)) == (0.0, None)


def test_a_transport_that_ran_dry_has_lost_nothing() -> None:
    """It reported nothing while it had nothing: what comes then is played chunk by chunk."""
    playout = playing("one", 0.04, 5.0)
    playout.transport_started(5.0)
    end_chunk(playout, 5.04)
    add(playout, "one", 2.0, 7.0)
    end_chunk(playout, 7.5)  # it is slow
    assert playout.lead_s(7.5) == pytest.approx(1.92)


# Frames that wait.


def word(at_s: float) -> TTSTextFrame:
    """A word of the utterance "one", as Pipecat stamps it."""
    frame = TTSTextFrame("w", TextType.WORD, context_id="one")
    frame.pts = round(at_s * 1e9)
    return frame


@pytest.mark.parametrize(
    "frame",
    [InputAudioRawFrame(bytes(320), 16_000, 1), LLMMessagesTransformFrame(list), DataFrame()],
)
def test_frames_of_other_processors_leave_at_once_and_untouched(frame: Frame) -> None:
    """Microphones, cameras and serializers stamp their frames too."""
    output = Output(playing("one", 1.0, 5.0))
    frame.pts = 7
    assert not output.receive(word(5.5), 5.0)
    assert output.receive(frame, 5.0)
    assert frame.pts == 7


def test_the_last_word_reaches_the_listener_of_a_transport_that_reports_nothing() -> None:
    """By the clock: it is on its way when all of its audio has been played."""
    playout = playing("one", 0.3, 5.0, latency_s=0.4)
    output, spoken = Output(playout), word(5.0)
    playout.end_context(5.0)
    assert not output.receive(spoken, 5.0)
    playout.go_on_unseen()
    assert output.wait_s(5.0) == pytest.approx(0.28)
    assert output.wait_s(5.28) == pytest.approx(0.14)
    assert output.pop_due(5.42) is spoken


@pytest.mark.parametrize("has_audio", [True, False])
def test_a_segment_is_announced_if_it_is_spoken(has_audio: bool) -> None:
    """At the end of its context if none of its words is timed; none leaves ahead of audio."""
    playout = playing("one", 1.0, 5.0)
    output, announced = Output(playout), AggregatedTextFrame("w", TextType.SENTENCE)
    announced.context_id, announced.will_be_spoken = "two", True
    playout.end_context(5.0)
    playout.go_on_unseen()
    assert not output.receive(announced, 5.0)
    assert output.receive(TTSStartedFrame(context_id="two"), 5.0)
    if has_audio:
        assert output.receive(audio(1.0), 5.0)
    assert output.receive(TTSStoppedFrame(context_id="two"), 5.0)
    assert output.pop_due(14.0) is (announced if has_audio else None)
    assert not output.is_holding
