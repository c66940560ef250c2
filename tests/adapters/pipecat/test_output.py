"""Which frames wait for their audio, and in which order they leave, on scripted clocks."""

import pytest
from pipecat.frames.frames import (
    AggregatedTextFrame,
    DataFrame,
    Frame,
    FunctionCallInProgressFrame,
    FunctionCallResultFrame,
    InputAudioRawFrame,
    InputImageRawFrame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
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


@pytest.mark.parametrize(
    ("stamped_s", "latency_s", "due_s"),
    [(0.0, 0.4, 0.42), (1.0, 0.4, 0.42), (NOW_S + 0.28, 0.04, 0.34), (NOW_S + 0.295, 0.0, 0.28)],
)
@pytest.mark.parametrize("is_silent", [False, True])
def test_the_last_words_leave_when_they_have_reached_the_listener(
    stamped_s: float, latency_s: float, due_s: float, is_silent: bool
) -> None:
    """One that is too short to be heard leaves with the last chunk.

    Pipecat completes a short reply itself, with the time of the reply before it, 0 if none.
    """
    output, playout = speaking(0.3, latency_s)
    playout.end_context(NOW_S)
    spoken = [word(stamped_s), LLMFullResponseEndFrame(), LLMFullResponseStartFrame()]
    assert not any(output.receive(frame, NOW_S) for frame in spoken)
    if is_silent:
        playout.go_on_unseen()
        assert output.wait_s(NOW_S) == pytest.approx(0.28)
    else:
        playout.transport_started(NOW_S)
        for index in range(1, 9 if latency_s else 8):
            assert output.pop_due(NOW_S + 0.04 * index - 0.001) is None
            playout.chunk_ended(0.04, NOW_S + 0.04 * index)
    assert output.wait_s(NOW_S + 0.28) == pytest.approx(due_s - 0.28)
    assert [output.pop_due(NOW_S + due_s) for _ in spoken] == spoken
    assert not output.is_holding


@pytest.mark.parametrize(
    "frame",
    [
        AggregatedTextFrame("x=1", "code"),
        LLMFullResponseEndFrame(),
        FunctionCallInProgressFrame("look", "1", {}),
        FunctionCallResultFrame("look", "1", {}, "found"),
    ],
)
def test_frames_of_the_history_wait_behind_its_words_without_a_time(frame: Frame) -> None:
    """A transport with a buffer reaches them long before the words are heard."""
    output, playout = speaking(0.3)
    playout.end_context(NOW_S)
    playout.go_on_unseen()
    spoken = [word(NOW_S + 0.1), frame, LLMFullResponseEndFrame()]
    assert not any(output.receive(each, NOW_S) for each in spoken)
    assert output.pop_due(NOW_S) is None
    assert [output.pop_due(NOW_S + 1.0) for _ in spoken] == spoken


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
