"""Speaker similarity: the same voice is nearer than another, and swapped voices are found."""

from pathlib import Path

import numpy as np
import pytest
import soundfile

from testbed.parity_reference import REFERENCE
from testbed.quality_clips import spoken
from voiceagent_tts.errors import InvalidRequestError
from voiceagent_tts.plugins.bench.quality.clips import Clip, Item
from voiceagent_tts.plugins.bench.quality.voices import Embed, open_encoder, voice_values

VOICES = ("slt", "rms", "default")
REFERENCE_TEXT = "Please bring the green umbrella back on your way home."
TEXT = "One moment, I am looking it up."


@pytest.fixture(scope="module")
def embed() -> Embed:
    """The real network, whose weights are small and random."""
    return open_encoder(REFERENCE / "base-0b6")


def references(folder: Path) -> dict[str, Path]:
    """A recording of each voice."""
    paths = {voice: folder / f"{voice}.wav" for voice in VOICES}
    for voice, path in paths.items():
        soundfile.write(path, spoken(REFERENCE_TEXT, voice).samples, 24_000)
    return paths


def clips(paths: dict[str, Path], voices: dict[str, str]) -> list[Clip]:
    """Clips by the voice of each value, to be like the reference of its key."""
    return [
        Clip(Item(wanted, TEXT, reference=paths[wanted]), spoken(TEXT, voice).samples)
        for wanted, voice in voices.items()
    ]


def test_swapped_voices_are_found(embed: Embed, tmp_path: Path) -> None:
    """With their own voices all clips are nearest to their references; two swapped ones are not."""
    paths = references(tmp_path)
    right = voice_values(clips(paths, {voice: voice for voice in VOICES}), embed, None)
    assert right.of["own_voice_percent"] == [100, 100, 100] and right.examples == []
    swapped = {"slt": "rms", "rms": "slt", "default": "default"}
    wrong = voice_values(clips(paths, swapped), embed, None)
    assert wrong.of["own_voice_percent"] == [0, 0, 100]
    assert [each["nearest"] for each in wrong.examples] == ["rms.wav", "slt.wav"]
    assert np.mean(wrong.of["similarity"]) < np.mean(right.of["similarity"])


def test_a_recording_is_like_itself_and_one_reference_can_serve_all(
    embed: Embed, tmp_path: Path
) -> None:
    """The cosine of equal sound is 1; with one reference there is no other to be nearer to."""
    paths = references(tmp_path)
    clip = Clip(Item("x", REFERENCE_TEXT), spoken(REFERENCE_TEXT, "slt").samples)
    values = voice_values([clip], embed, paths["slt"])
    assert values.of["similarity"] == pytest.approx([1.0], abs=1e-4)
    assert "own_voice_percent" not in values.of
    assert voice_values([clip], embed, None).of == {}


def test_a_model_without_speaker_encoder_is_refused() -> None:
    """With what was expected."""
    with pytest.raises(InvalidRequestError, match="Base"):
        open_encoder(REFERENCE / "custom_voice-1b7")
