"""Which frames wait for their audio, and in which order they leave, on scripted clocks."""

import pytest
from pipecat.frames.frames import (
    DataFrame,
    Frame,
    InputAudioRawFrame,
    InputImageRawFrame,
    LLMMessagesTransformFrame,
    TTSAudioRawFrame,
    TTSTextFrame,
)
from pipecat.utils.text.base_text_aggregator import TextType

from voiceagent_tts.adapters.pipecat.output import Output
from voiceagent_tts.adapters.pipecat.playout import Playout
from voiceagent_tts.core import SAMPLE_RATE_HZ

NOW_S = 5.0


def speaking(seconds: float, latency_s: float = 0.02) -> tuple[Output, Playout]:
    """An utterance whose audio the transport has."""
    playout = Playout(latency_s)
    playout.start_context("one")
    playout.baseline_s = NOW_S
    samples = bytes(2 * round(seconds * SAMPLE_RATE_HZ))
    playout.play(TTSAudioRawFrame(samples, SAMPLE_RATE_HZ, 1), NOW_S)
    return Output(playout), playout


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
