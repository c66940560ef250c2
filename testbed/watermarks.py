"""The key of the servers that tests start, and sound to mark."""

from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from voiceagent_tts.plugins.provenance.keys import WatermarkKey

WATERMARK_KEY_FILE = Path(__file__).with_name("watermark.keys")
TEST_KEY = WatermarkKey(bytes.fromhex(WATERMARK_KEY_FILE.read_text("ascii")))
OTHER_KEY = WatermarkKey(bytes(32))

_TEXT = (
    "Your table for four is booked for eight on Friday, on the terrace if the weather holds. "
    "Please tell us by noon if more of you come. We look forward to seeing you."
)


@cache
def speech_pcm() -> bytes:
    """About ten seconds of unmarked speech: PCM16 at 24 kHz."""
    from testbed.known_speech import espeak  # only some tests speak; all of them need the key

    return espeak(_TEXT, "en", "nova").pcm


def as_floats(pcm: bytes) -> npt.NDArray[np.float32]:
    """The samples as the detector reads them: [S] float32 in [-1, 1]."""
    return (np.frombuffer(pcm, "<i2") / 32_768).astype(np.float32)
