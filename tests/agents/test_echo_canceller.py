"""The echo canceller of the sound card, without a sound card."""

import pytest

from agents.sound_card import _EchoCanceller


@pytest.mark.parametrize("delay_s", [-0.3, 0.0, 0.08, 2.5])
def test_any_delay_that_devices_report_is_taken(delay_s: float) -> None:
    """A busy machine reports delays that WebRTC refuses; the conversation goes on."""
    canceller = _EchoCanceller()
    canceller.delay_s["microphone"] = delay_s
    canceller.learn(bytes(2 * 240))
    assert len(canceller.clean(bytes(2 * 480))) == 2 * 480
