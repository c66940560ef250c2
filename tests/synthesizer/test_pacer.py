"""Credit follows playback, in steps, within the limits; the time is passed in."""

import pytest

from voiceagent_tts.core import SAMPLE_RATE_HZ, PlayoutClock
from voiceagent_tts.synthesizer.clock import Pacer
from voiceagent_tts.synthesizer.options import Limits

START = 100.0


class Playback:
    """A pacer under a server's limits of 8 s lead and 10 s of unsent audio, and its clock."""

    def __init__(self, max_lead_s: float | None) -> None:
        self.clock = PlayoutClock()
        self.pacer = Pacer(self.clock, max_lead_s, Limits(max_lead_s=8.0, max_unsent_s=10.0))

    def granted_s(self, after_s: float = 0.0) -> float | None:
        """The credit some time after the start, in seconds of audio; None if it is not new."""
        samples = self.pacer.more_samples(START + after_s)
        return None if samples is None else samples / SAMPLE_RATE_HZ

    def send(self, seconds: float, after_s: float = 0.0) -> None:
        """Send audio some time after the start."""
        self.clock.send(round(seconds * SAMPLE_RATE_HZ), START + after_s)


@pytest.mark.parametrize(
    ("max_lead_s", "granted_s"),
    [(2.0, 2.0), (None, 8.0), (60.0, 10.0), (0.0, 10.0), (0.01, 0.2)],
    ids=["asked for", "the server's", "over the unsent limit", "unpaced", "below the minimum"],
)
def test_the_first_credit_is_the_lead(max_lead_s: float | None, granted_s: float) -> None:
    """The first credit is the client's or else the server's lead, within the bounds."""
    assert Playback(max_lead_s).granted_s() == granted_s


def test_credit_waits_for_a_step_of_playback() -> None:
    """New credit is granted when playback has proceeded by half a second, not before."""
    playback = Playback(2.0)
    assert playback.granted_s() == 2.0
    playback.send(1.0)
    assert playback.granted_s(0.49) is None
    assert playback.granted_s(0.5) == 2.5
    assert playback.granted_s(0.5) is None


def test_credit_is_due_only_while_a_paced_listener_plays() -> None:
    """Then after a step of playback; unpaced, only what is sent allows more."""
    paced, unpaced = Playback(0.2), Playback(0.0)
    for playback in (paced, unpaced):
        playback.granted_s()
        assert playback.pacer.due_at is None, "nothing plays"
        playback.send(1.0)
        playback.granted_s()
    assert paced.pacer.due_at == pytest.approx(START + 0.05)
    assert unpaced.pacer.due_at is None
