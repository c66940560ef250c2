"""The queue between a reply and the loudspeaker: nothing is lost, repeated or counted twice."""

import numpy as np

from agents.playback import Playback

BLOCK = 240


def sound(samples: int) -> bytes:
    """Audible samples that are all different."""
    return np.arange(1_000, 1_000 + samples, dtype="<i2").tobytes()


def test_a_pause_loses_no_sample() -> None:
    """The loudspeaker receives silence during the pause, and then the next sample."""
    playback = Playback()
    playback.push(sound(3 * BLOCK))
    heard = playback.read(BLOCK, 0.0)
    playback.pause()
    assert playback.read(BLOCK, 0.0) == bytes(2 * BLOCK)
    assert playback.played_samples == BLOCK
    playback.resume()
    heard += playback.read(BLOCK, 0.0) + playback.read(BLOCK, 0.0)
    assert heard == sound(3 * BLOCK)
    assert playback.is_empty


def test_silence_without_audio_is_not_played() -> None:
    """Only queued samples count, also if they fill a part of a block."""
    playback = Playback()
    playback.read(BLOCK, 0.0)
    playback.push(sound(100))
    assert playback.read(BLOCK, 0.0) == sound(100) + bytes(2 * (BLOCK - 100))
    assert playback.played_samples == 100


def test_stopping_drops_what_was_not_played() -> None:
    """The played samples are returned, and the next reply counts from zero."""
    playback = Playback()
    playback.push(sound(2 * BLOCK))
    playback.read(BLOCK, 0.0)
    playback.pause()
    assert playback.stop() == BLOCK
    assert playback.read(BLOCK, 0.0) == bytes(2 * BLOCK)
    playback.start_reply()
    playback.push(sound(BLOCK))
    assert playback.read(BLOCK, 0.0) == sound(BLOCK)
    assert playback.played_samples == BLOCK


def test_the_first_audible_sample_is_timed_when_it_is_heard() -> None:
    """Leading silence and the latency of the loudspeaker both delay it."""
    playback = Playback()
    playback.push(bytes(2 * BLOCK) + sound(BLOCK))
    playback.read(BLOCK, 0.0)
    assert playback.audible_at_s is None
    playback.read(BLOCK, 5.0)
    first = playback.audible_at_s
    assert first is not None
    playback.read(BLOCK, 500.0)
    assert playback.audible_at_s == first


def test_the_latency_of_the_loudspeaker_delays_what_was_heard() -> None:
    """Words are shown when they have left the loudspeaker."""
    playback = Playback()
    playback.push(sound(2 * BLOCK))
    playback.read(2 * BLOCK, BLOCK / 24_000)
    assert playback.played_samples == 2 * BLOCK
    assert playback.heard_samples == BLOCK
