"""How long a speaker pauses after a text, and how quiet audio ends."""

import pytest

from testbed.scripted_upstream import TONE
from voiceagent_tts.core import BYTES_PER_SAMPLE, ms_to_samples
from voiceagent_tts.plugins.upstream.pauses import QuietEnd, usual_pause_samples


@pytest.mark.parametrize(
    ("text", "pause_ms"),
    [
        ("It is here. ", 400), ("“Is it here?”\n", 400), ("好的。", 400), ("Well…", 400),
        ("It is here, ", 200), ("one of these:", 200), ("好的，", 200),
        ("It is here ", 0), ("well-", 0), ("", 0),
    ],
)  # fmt: skip
def test_a_pause_is_as_long_as_its_mark_asks(text: str, pause_ms: int) -> None:
    assert usual_pause_samples(text) == ms_to_samples(pause_ms)


@pytest.mark.parametrize("part_samples", [1, 7, 10_000])
def test_the_quiet_at_the_end_is_measured_however_the_audio_comes(part_samples: int) -> None:
    """A noise 40 dB below the loudest sound is quiet; sound after a pause begins anew."""
    noise = (40).to_bytes(BYTES_PER_SAMPLE, "little") * 300
    audio = TONE[:800] + bytes(4000) + TONE[:800] + noise + bytes(200)
    ending = QuietEnd()
    for start in range(0, len(audio), part_samples * BYTES_PER_SAMPLE):
        ending.push(audio[start : start + part_samples * BYTES_PER_SAMPLE])
    assert ending.samples == 400
