"""The latency benchmark of the forced aligner, on a tiny network."""

from pathlib import Path

import pytest

from benchmarks.alignment.aligner_latency import measure
from testbed.tiny_aligner import write_tiny_aligner
from voiceagent_tts.aligner.forced.load import load_aligner


def test_every_length_and_batch_is_measured(tmp_path: Path) -> None:
    """Each kind of pass has a time, and each clip its share of it."""
    aligner = load_aligner(write_tiny_aligner(tmp_path), "cpu")
    measured = measure(aligner, 1, lengths_s=(1, 2), batches=(1, 4))
    assert list(measured) == ["1 s x 1", "1 s x 4", "2 s x 1", "2 s x 4"]
    for name, times in measured.items():
        clips = int(name.rpartition(" ")[2])
        assert times["pass_ms"] > 0
        assert times["clip_ms"] == pytest.approx(times["pass_ms"] / clips, abs=0.01)
