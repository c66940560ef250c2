"""The echo canceller of the sound card, without a sound card."""

import numpy as np
import pytest

from agents.sound_card import _EchoCanceller


@pytest.mark.parametrize("delay_s", [-0.3, 2.5])
def test_any_delay_that_devices_report_is_taken(delay_s: float) -> None:
    """A busy machine reports delays that WebRTC refuses; the conversation goes on."""
    canceller = _EchoCanceller()
    canceller.delay_s["microphone"] = delay_s
    canceller.learn(bytes(2 * 240))
    assert len(canceller.clean(bytes(2 * 480))) == 2 * 480


def test_the_agents_voice_is_not_heard_before_its_echo_can_be_removed() -> None:
    """While the canceller learns, a microphone beside a loudspeaker that sounds is silent."""
    loudspeaker, microphone = _noise(240), _noise(160)
    canceller = _EchoCanceller()
    assert any(canceller.clean(microphone)), "nothing was played yet: the user is heard"
    for _ in range(290):
        canceller.learn(loudspeaker)
        assert not any(canceller.clean(microphone))
    for _ in range(60):
        canceller.learn(bytes(480))
    assert any(canceller.clean(microphone)), "the agent is silent: the user is heard"
    for _ in range(11):
        canceller.learn(loudspeaker)
    cleaned = [canceller.clean(_noise(160, seed)) for seed in range(20)]
    assert any(map(any, cleaned)), "it has learned for 3 s: the user is heard beside the agent"


def _noise(samples: int, seed: int = 0) -> bytes:
    """PCM16 of white noise that nobody else plays."""
    noise = np.random.default_rng(seed).integers(-3000, 3000, samples)
    return noise.astype("<i2").tobytes()
