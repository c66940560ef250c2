"""Which frames wait for their audio, and in which order they leave, on scripted clocks."""

import pytest
from pipecat.frames.frames import (
    AggregatedTextFrame,
    DataFrame,
    Frame,
    InputAudioRawFrame,
    InputImageRawFrame,
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

NOW_S = 5.0


def speaking(seconds: float, latency_s: float = 0.0) -> tuple[Output, Playout]:
    """An utterance whose audio the transport has."""
    playout = Playout(latency_s)
    playout.transport_ready(0.04)
    playout.start_context("one")
    playout.baseline_s = NOW_S
    samples = bytes(2 * round(seconds * SAMPLE_RATE_HZ))
    playout.play(TTSAudioRawFrame(samples, SAMPLE_RATE_HZ, 1), NOW_S)
    return Output(playout, lambda _: True), playout


def word(at_s: float) -> TTSTextFrame:
    """A word of the utterance, as Pipecat stamps it."""
    frame = TTSTextFrame("w", TextType.WORD, context_id="one")
    frame.pts = round(at_s * 1e9)
    return frame


@pytest.mark.parametrize(
    "frame",
    [
        InputAudioRawFrame(bytes(320), 16_000, 1),
        InputImageRawFrame(bytes(3), (1, 1), "RGB"),
        LLMMessagesTransformFrame(list),
        DataFrame(),
    ],
)
def test_frames_of_other_processors_leave_at_once_and_untouched(frame: Frame) -> None:
    """Microphones, cameras and serializers stamp their frames too."""
    output, _ = speaking(1.0)
    frame.pts = 7
    assert not output.receive(word(NOW_S + 0.5), NOW_S)
    assert output.receive(frame, NOW_S)
    assert frame.pts == 7


def test_the_last_word_reaches_the_listener_of_a_transport_that_reports_nothing() -> None:
    """By the clock: it is on its way when all of its audio has been played."""
    output, playout = speaking(0.3, latency_s=0.4)
    playout.end_context(NOW_S)
    spoken = word(NOW_S)
    assert not output.receive(spoken, NOW_S)
    playout.go_on_unseen()
    assert output.wait_s(NOW_S) == pytest.approx(0.28)
    assert output.wait_s(NOW_S + 0.28) == pytest.approx(0.14)
    assert output.pop_due(NOW_S + 0.42) is spoken


def segment(context_id: str) -> AggregatedTextFrame:
    """A segment of a context, as Pipecat announces it."""
    frame = AggregatedTextFrame("w", TextType.SENTENCE)
    frame.context_id, frame.will_be_spoken = context_id, True
    return frame


@pytest.mark.parametrize("has_audio", [True, False])
def test_a_segment_is_announced_if_it_is_spoken(has_audio: bool) -> None:
    """At the end of its context if none of its words is timed; none leaves ahead of audio."""
    output, playout = speaking(1.0)
    playout.end_context(NOW_S)
    playout.go_on_unseen()
    announced = segment("two")
    assert not output.receive(announced, NOW_S)
    assert output.receive(TTSStartedFrame(context_id="two"), NOW_S)
    if has_audio:
        samples = bytes(2 * SAMPLE_RATE_HZ)
        assert output.receive(TTSAudioRawFrame(samples, SAMPLE_RATE_HZ, 1), NOW_S)
    assert output.receive(TTSStoppedFrame(context_id="two"), NOW_S)
    assert output.pop_due(NOW_S + 9.0) is (announced if has_audio else None)
    assert not output.is_holding
