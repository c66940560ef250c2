"""Preparing recordings: what is kept, what is dropped, and how it is reported."""

import json
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch

from testbed.parity_reference import REFERENCE
from voiceagent_tts.core import FRAME_SAMPLES, SAMPLE_RATE_HZ
from voiceagent_tts.errors import InvalidRequestError
from voiceagent_tts.plugins.recordings.clone import load_reference_encoder
from voiceagent_tts.plugins.training.dataset import read_dataset
from voiceagent_tts.plugins.training.prepare import PrepareOptions, prepare

BASE = REFERENCE / "base-0b6"


def prepared(source: Path, output: Path, options: PrepareOptions | None = None) -> dict:
    """Prepare a dataset with the tiny Base model."""
    return prepare(source, BASE, output, options or PrepareOptions(), lambda done, total: None)


def problems(report: dict) -> dict[str, str]:
    """Return the reason of each dropped clip by its name."""
    return {clip["name"]: clip["problem"] for clip in report["dropped_clips"]}


def test_recordings_become_codes_and_a_speaker(recordings: Path, tmp_path: Path) -> None:
    """Codes are those of the stored sound, and the speaker is that of the reference clip."""
    report = prepared(recordings, tmp_path / "data")
    assert (report["kept"], report["dropped"]) == (4, 0)
    dataset = read_dataset(tmp_path / "data")
    assert [each.name for each in dataset.examples] == ["0.wav", "1.wav", "2.wav", "3.wav"]
    assert dataset.examples[0].text == (recordings / "0.txt").read_text()
    encoder = load_reference_encoder(BASE)
    clips = json.loads((tmp_path / "data/dataset.json").read_text())["clips"]
    samples, rate_hz = soundfile.read(
        tmp_path / "data/clips" / f"{clips[0]['key']}.wav", dtype="float32"
    )
    assert rate_hz == SAMPLE_RATE_HZ
    codes = encoder.codec_encoder.encode(torch.from_numpy(samples))
    assert torch.equal(codes, dataset.examples[0].codes)
    assert len(codes) == -(-len(samples) // FRAME_SAMPLES)
    (named,) = [clip for clip in clips if clip["name"] == report["reference"]]
    samples, _ = soundfile.read(tmp_path / "data/clips" / f"{named['key']}.wav", dtype="float32")
    embedding = encoder.speaker_encoder.embed(torch.from_numpy(samples))
    assert torch.equal(embedding, dataset.speaker_embedding)


def test_every_bad_clip_is_named_with_its_reason(
    recordings: Path, tmp_path: Path, speech: dict[str, np.ndarray]
) -> None:
    """Bad clips are dropped one by one; the good ones are kept, and no transcript is reported."""
    good = next(iter(speech.values()))
    bad: dict[str, tuple[np.ndarray, int, str | None]] = {
        "clipped": (np.clip(good * 30, -1, 1), SAMPLE_RATE_HZ, "too loud by far"),
        "silent": (np.zeros(SAMPLE_RATE_HZ * 2, np.float32), SAMPLE_RATE_HZ, "nothing at all"),
        "noise": (np.full(48_000, 0.002, np.float32), SAMPLE_RATE_HZ, "nothing at all"),
        "phone": (good[::3], 8_000, "a telephone"),
        "short": (good[2_000:14_000], SAMPLE_RATE_HZ, "quick"),
        "long": (np.tile(good, 9), SAMPLE_RATE_HZ, "much too long"),
        "endless": (np.tile(good, 40), SAMPLE_RATE_HZ, "much too long"),
        "mute": (good, SAMPLE_RATE_HZ, None),
        "empty": (good, SAMPLE_RATE_HZ, " \n... "),
        "control": (good, SAMPLE_RATE_HZ, "a\0b"),
        "book": (good, SAMPLE_RATE_HZ, "word " * 20_000),
        "other": (good[::-1].copy(), SAMPLE_RATE_HZ, "This is a sentence. " * 20),
        "nan": (np.full(48_000, np.nan, np.float32), SAMPLE_RATE_HZ, "not a number"),
    }
    for name, (samples, rate_hz, text) in bad.items():
        soundfile.write(recordings / f"{name}.wav", samples, rate_hz, "FLOAT")
        if text is not None:
            (recordings / f"{name}.txt").write_text(text)
    (recordings / "broken.wav").write_bytes(b"RIFF" + bytes(100))
    (recordings / "broken.txt").write_text("This is broken.")
    (recordings / "4.wav").write_bytes((recordings / "0.wav").read_bytes())
    (recordings / "4.txt").write_text((recordings / "0.txt").read_text())
    (recordings / "alone.txt").write_text("Where is my recording?")
    (recordings / "latin.wav").write_bytes((recordings / "1.wav").read_bytes())
    (recordings / "latin.txt").write_bytes("Größe".encode("latin-1"))

    report = prepared(recordings, tmp_path / "data")

    assert problems(report) == {
        "clipped.wav": "clipped",
        "silent.wav": "silent",
        "noise.wav": "silent",
        "phone.wav": "wrong_rate",
        "short.wav": "too_short",
        "long.wav": "too_long",
        "endless.wav": "too_long",
        "mute.wav": "missing_text",
        "empty.wav": "empty_text",
        "control.wav": "invalid_text",
        "book.wav": "invalid_text",
        "other.wav": "mismatch",
        "nan.wav": "unreadable",
        "broken.wav": "unreadable",
        "4.wav": "duplicate",
        "latin.wav": "invalid_text",
        "alone.txt": "missing_audio",
    }
    assert report["kept"] == len(read_dataset(tmp_path / "data").examples) == 4
    written = (tmp_path / "data/report.json").read_text()
    assert json.loads(written) == report
    assert "fox" not in written


def test_a_manifest_names_its_bad_lines(recordings: Path, tmp_path: Path) -> None:
    """Lines that are no JSON object, and files that do not exist, are named; the rest is used."""
    manifest = tmp_path / "manifest.jsonl"
    lines = [
        json.dumps({"audio": "recordings/0.wav", "text": "Hello there, fox.", "ref_audio": "x"}),
        "",
        "{",
        "[" * 100_000,
        '"a string"',
        json.dumps({"audio": "gone.wav", "text": "Where is it?"}),
        json.dumps({"audio": "x" * 5_000, "text": "Where is it?"}),
        json.dumps({"audio": "a\0b", "text": "Where is it?"}),
        json.dumps({"audio": "recordings/1.wav"}),
        json.dumps({"audio": "recordings/2.wav", "text": 7}),
        json.dumps({"audio": "recordings/3.wav", "text": "Hello.", "language": 7}),
    ]
    manifest.write_text("\n".join(lines))
    report = prepared(manifest, tmp_path / "data")
    assert problems(report) == {
        "line 3": "invalid_line",
        "line 4": "invalid_line",
        "line 5": "invalid_line",
        "gone.wav": "missing_audio",
        "x" * 5_000: "missing_audio",
        "a\0b": "missing_audio",
        "recordings/1.wav": "missing_text",
        "recordings/2.wav": "invalid_line",
        "recordings/3.wav": "invalid_line",
    }
    (example,) = read_dataset(tmp_path / "data").examples
    assert (example.name, example.text) == ("recordings/0.wav", "Hello there, fox.")


def test_bad_clips_are_refused_if_asked(recordings: Path, tmp_path: Path) -> None:
    """With `refuse` the error names the clip, the report is written, and there is no dataset."""
    (recordings / "1.txt").unlink()
    options = PrepareOptions(bad="refuse")
    with pytest.raises(InvalidRequestError, match=r"1\.wav: missing_text"):
        prepared(recordings, tmp_path / "data", options)
    report = json.loads((tmp_path / "data/report.json").read_text())
    assert problems(report) == {"1.wav": "missing_text"}
    with pytest.raises(InvalidRequestError, match="expected a dataset"):
        read_dataset(tmp_path / "data")


def test_a_source_without_clips_is_refused(tmp_path: Path) -> None:
    """An empty folder, a missing one, and an empty manifest end with what was expected."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty.jsonl").write_text("\n\n")
    for name in ("empty", "missing", "empty.jsonl"):
        with pytest.raises(InvalidRequestError, match="expected"):
            prepared(tmp_path / name, tmp_path / "data")


def test_a_second_run_encodes_only_what_is_new(
    recordings: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Codes are kept; a changed file is encoded again, and a changed text is taken over."""
    prepared(recordings, tmp_path / "data")
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "data/clips").iterdir()}
    (recordings / "0.wav").write_bytes((recordings / "1.wav").read_bytes()[:-4_000])
    (recordings / "2.txt").write_text("Another text of the clip.")
    prepared(recordings, tmp_path / "data")
    after = {path: path.stat().st_mtime_ns for path in (tmp_path / "data/clips").iterdir()}
    assert {path: after[path] for path in before} == before
    assert len(after) == len(before) + 2
    assert read_dataset(tmp_path / "data").examples[2].text == "Another text of the clip."


def test_the_reference_may_be_named(recordings: Path, tmp_path: Path) -> None:
    """The named clip gives the speaker embedding; a name that was not kept is refused."""
    named = PrepareOptions(reference="2.wav")
    assert prepared(recordings, tmp_path / "data", named)["reference"] == "2.wav"
    unknown = PrepareOptions(reference="9.wav")
    with pytest.raises(InvalidRequestError, match="--reference"):
        prepared(recordings, tmp_path / "data", unknown)
