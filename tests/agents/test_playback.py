"""The queue between a reply and the loudspeaker: nothing is lost, repeated or counted twice."""

import numpy as np

from agents.playback import Playback

BLOCK = 240


def sound(samples: int) -> bytes:
    """Audible samples that are all different."""
    return np.arange(1_000, 1_000 + samples, dtype="<i2").tobytes()


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
