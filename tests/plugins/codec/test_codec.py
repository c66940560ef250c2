"""`voiceagent-tts codec` on a tiny checkpoint."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import soundfile

from testbed.command_line import Command, CommandHere, FullDisk
from voiceagent_tts.errors import InvalidRequestError
from voiceagent_tts.plugins.codec.commands import decode, encode

REFERENCE = Path(__file__).parents[2] / "reference"
MODEL = ("--model", str(REFERENCE / "base-0b6"))


def test_sound_becomes_codes_and_sound_again(command_here: CommandHere, tmp_path: Path) -> None:
    """`encode` writes the official package's codes; `decode` makes 80 ms of audio of each frame."""
    encoded = command_here("codec", "encode", str(REFERENCE / "reference.wav"), "a.npz", *MODEL)
    assert (encoded.status, encoded.output) == (0, ""), encoded.errors
    with (
        np.load(tmp_path / "a.npz") as made,
        np.load(REFERENCE / "reference-prompt.npz") as made_by,
    ):
        assert np.array_equal(made["codes"], made_by["ref_code"])
        assert made["codes"].dtype == np.int16
    decoded = command_here("codec", "decode", "a.npz", "a.wav", *MODEL)
    assert (decoded.status, decoded.output) == (0, ""), decoded.errors
    information = soundfile.info(tmp_path / "a.wav")
    assert (information.frames, information.samplerate) == (18 * 1_920, 24_000)


@pytest.mark.parametrize("what", ["encode", "decode"])
def test_a_full_disk_is_said_and_leaves_nothing(
    what: str, command_here: CommandHere, full_disk: FullDisk, tmp_path: Path
) -> None:
    """If a file cannot be written, one line says so, and the unfinished file is removed."""
    source, name = {
        "encode": ("reference.wav", "a.npz"),
        "decode": ("codec-130-frames.npz", "a.wav"),
    }[what]
    with full_disk():
        outcome = command_here("codec", what, str(REFERENCE / source), name, *MODEL)
    assert outcome.status == 1
    assert outcome.errors == f"voiceagent-tts: {name}: cannot be written; File too large\n"
    assert list(tmp_path.iterdir()) == []


def test_codes_become_the_official_sound(tmp_path: Path) -> None:
    """130 frames in a file become the official package's samples, rounded to 16 bits."""
    source = REFERENCE / "codec-130-frames.npz"
    decode(source, tmp_path / "a.wav", REFERENCE / "base-0b6")
    samples, _ = soundfile.read(tmp_path / "a.wav", dtype="float32")
    with np.load(source) as arrays:
        assert np.abs(samples - arrays["wav"]).max() < 1e-4 + 1 / 65_536


async def test_a_refusal_is_one_line(command: Command, tmp_path: Path) -> None:
    """A failure is one line on standard error with status 1, and nothing is written."""
    np.savez(tmp_path / "a.npz", codes=np.zeros((4, 16)))
    outcome = await command("codec", "decode", "a.npz", "a.wav", *MODEL)
    assert outcome.status == 1
    assert outcome.errors == (
        "voiceagent-tts: a.npz: codes: expected integers [F, K]; got float64 [4, 16]\n"
    )
    assert not (tmp_path / "a.wav").exists()


@pytest.mark.parametrize(
    ("codes", "expected"),
    [
        (np.zeros((4, 15), np.int16), "expected 16 per frame; got 15"),
        (np.full((4, 16), -1), "a.npz: codes: expected 0 to 63; got -1 to -1"),
        (np.full((4, 16), 64), "a.npz: codes: expected 0 to 63; got 64 to 64"),
        (np.array([None]), "expected an .npz file with an array `codes`"),
    ],
    ids=["codebooks", "negative", "too large", "pickled"],
)
def test_other_codes_are_refused(codes: np.ndarray, expected: str, tmp_path: Path) -> None:
    """Codes that this codec cannot decode are refused; the error says what was expected."""
    np.savez(tmp_path / "a.npz", codes=codes)
    with pytest.raises(InvalidRequestError) as caught:
        decode(tmp_path / "a.npz", tmp_path / "a.wav", REFERENCE / "base-0b6")
    assert expected in caught.value.message


@pytest.mark.parametrize(
    ("run", "source", "target", "expected"),
    [
        (encode, "missing.wav", "a.npz", "missing.wav: cannot be read; No such file"),
        (encode, "text", "a.npz", "expected a WAV, FLAC, MP3 or Ogg file"),
        (encode, "text", "a.wav", "expected a file name with suffix .npz; got a.wav"),
        (encode, "text", "no/a.npz", "no does not exist or is not writable"),
        (decode, "text", "a.wav", "expected an .npz file with an array `codes`"),
        (decode, "zip", "a.wav", "expected an .npz file with an array `codes`"),
        (
            decode,
            "text",
            "a.mp4",
            "expected a file name with suffix .wav, .flac, .ogg, .mp3, .opus",
        ),
    ],
)
def test_other_files_are_refused(
    run: Callable[[Path, Path, Path], None], source: str, target: str, expected: str, tmp_path: Path
) -> None:
    """Files that are missing or of another kind, and missing folders, are refused with a reason."""
    (tmp_path / "text").write_text("no sound and no codes\n")
    (tmp_path / "zip").write_bytes(b"PK\x03\x04 but cut short")
    with pytest.raises(InvalidRequestError) as caught:
        run(tmp_path / source, tmp_path / target, REFERENCE / "base-0b6")
    assert expected in caught.value.message
