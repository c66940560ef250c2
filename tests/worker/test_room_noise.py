"""The slow and faulty engine: what it does to the audio of the engine inside it."""

import numpy as np
import pytest

from testbed.throttled import RoomNoise
from voiceagent_tts.core import AudioChunk
from voiceagent_tts.seam.events import ContextAudio


def test_room_noise_is_added_to_silence_and_goes_on_between_chunks() -> None:
    """It has the stated level, no repetition between chunks, and leaves positions as they are."""
    noise = RoomNoise(350)
    rows = [
        noise.added_to(ContextAudio(1, AudioChunk(start, bytes(2 * 24_000))))
        for start in (0, 24_000)
    ]
    first, second = (np.frombuffer(row.chunk.pcm, "<i2").astype(float) for row in rows)
    assert np.sqrt(np.square(np.append(first, second)).mean()) == pytest.approx(350, rel=0.1)
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.1
    assert [row.chunk.start_sample for row in rows] == [0, 24_000]
