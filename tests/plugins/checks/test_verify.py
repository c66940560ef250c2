"""Verification reports working models as correct, and finds broken ones."""

import shutil
from pathlib import Path

import pytest
import soundfile
import torch
from safetensors.torch import load_file, save_file

from testbed.engine_driving import load
from testbed.parity_reference import REFERENCE
from testbed.recorded_graphs import RecordedGraph, recorded_graphs
from testbed.runner_driving import prompt_of, sampling
from voiceagent_tts.engine import guards
from voiceagent_tts.engine.generate import Request
from voiceagent_tts.errors import InvalidRequestError
from voiceagent_tts.model.config import read_model_config
from voiceagent_tts.plugins.checks import verify as verification
from voiceagent_tts.plugins.checks.verify import Check, Reference, compare_graphs, verify
from voiceagent_tts.plugins.checks.verify_command import verify_model

UNTRAINED = "codec round trip"
"""The check that random weights fail: their codec does not reproduce its input."""


def failures(checks: list[Check]) -> list[str]:
    """Return the names of the failed checks."""
    return [check.claim for check in checks if not check.holds]


def run(folder: Path, reference: Reference | None = None) -> list[Check]:
    """Run every check of a model in float32 on the CPU."""
    return list(verify(folder, torch.float32, "cpu", reference))


@pytest.fixture
def few_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    """Speak two words, and compare speeches of 4 frames: for tests whose claim is another check."""
    monkeypatch.setattr(verification, "_TEXT", "Hi there.")
    monkeypatch.setattr(verification, "_GREEDY_FRAMES", 4)
    # Random weights end a short text late, as no trained ones do.
    monkeypatch.setattr(guards, "_SPARE_FRAMES", 192)


def recording(text: str = "") -> Reference:
    """The reference audio of the tests."""
    samples, _ = soundfile.read(REFERENCE / "reference.wav", dtype="float32")
    return Reference(torch.from_numpy(samples), text)


def graphs() -> Check:
    """The check of captured graphs, which are recorded on the CPU."""
    with recorded_graphs():
        return compare_graphs(*load(is_packed=False), Request(prompt_of("Hi."), sampling(), 4))


def test_graphs_speak_as_single_passes_do() -> None:
    """Replays that repeat their passes hold."""
    check = graphs()
    assert check.holds, check
    assert check.found.startswith("equal codes; samples differ by ")


def test_graphs_that_compute_something_else_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """So are those that cannot be captured, with the first line of the reason."""
    monkeypatch.setattr(RecordedGraph, "replay", lambda graph: None)
    check = graphs()
    assert (check.holds, check.found) == (False, "different codes")

    def refuse(graph: RecordedGraph, function: object) -> None:
        raise RuntimeError("operation not permitted when stream is capturing\nmore")

    monkeypatch.setattr(RecordedGraph, "__init__", refuse)
    check = graphs()
    assert (check.holds, check.found) == (False, "operation not permitted when stream is capturing")


def test_fewer_bits_compute_too() -> None:
    """In 8 bits a model passes what it passes in float32."""
    folder = REFERENCE / "custom_voice-1b7"
    assert failures(list(verify(folder, torch.float32, "cpu", None, "int8"))) == [UNTRAINED]


@pytest.mark.thorough
@pytest.mark.usefixtures("few_frames")
def test_a_base_model_needs_a_recording() -> None:
    """With a recording, a clone speaks; without, it is required."""
    checks = run(REFERENCE / "base-0b6", recording("quick brown fox"))
    assert failures(checks) == [UNTRAINED]
    with pytest.raises(InvalidRequestError, match="--reference"):
        run(REFERENCE / "base-0b6")


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    """A model that a test may break."""
    return Path(shutil.copytree(REFERENCE / "custom_voice-1b7", tmp_path / "model"))


@pytest.mark.thorough
@pytest.mark.usefixtures("few_frames")
def test_a_codec_that_makes_no_numbers_is_found(broken: Path) -> None:
    """One weight that is not a number reaches the samples and is found there."""
    path = broken / "speech_tokenizer" / "model.safetensors"
    tensors = load_file(path)
    tensors["decoder.decoder.1.block.1.conv.weight"][0, 0, 0] = float("nan")
    save_file(tensors, path)
    assert "samples" in failures(run(broken))


@pytest.mark.usefixtures("few_frames")
def test_a_model_that_never_ends_is_found(broken: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that makes the end unlikely speaks until it is stopped; the check fails."""
    monkeypatch.setattr(guards, "_CAP_FRAMES_PER_TEXT_ID", 1)
    monkeypatch.setattr(guards, "_SPARE_FRAMES", 0)
    path = broken / "model.safetensors"
    tensors = load_file(path)
    head = tensors["talker.codec_head.weight"].mul_(50)
    head[read_model_config(broken).talker_config.codec_eos_token_id] = 0
    save_file(tensors, path)
    assert "end of a short text" in failures(run(broken))


def test_a_partial_file_is_found_first(broken: Path) -> None:
    """A file that does not load is named, and no other check runs."""
    path = broken / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1000])
    (check,) = run(broken)
    assert not check.holds and "the download is not complete" in check.found


@pytest.mark.thorough
@pytest.mark.usefixtures("few_frames")
def test_the_table_ends_with_the_verdict(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The table lists every check, and the status says whether all of them passed."""
    folder = str(REFERENCE / "voice_design-1b7")
    assert not verify_model(folder, "cpu", None, None, "")
    assert "1 of 10 checks failed" in capsys.readouterr().out
    monkeypatch.setattr(verification, "_MIN_SNR_DB", 0.0)
    assert verify_model(folder, "cpu", None, None, "")
    shown = capsys.readouterr().out
    assert shown.count(" ok ") == 10 and shown.endswith("All 10 checks passed.\n")
