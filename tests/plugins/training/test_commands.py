"""`voiceagent-tts finetune` on a tiny checkpoint."""

import json
import signal
from pathlib import Path

import pytest
import torch

from testbed.command_line import CommandHere, FullDisk, finished, start
from testbed.parity_reference import REFERENCE
from testbed.tiny_dataset import random_dataset
from testbed.waiting import until
from voiceagent_tts.errors import InvalidRequestError
from voiceagent_tts.model.config import read_model_config
from voiceagent_tts.plugins.training.commands import BASE_ID
from voiceagent_tts.plugins.training.run_folder import Position, RunFolder

MODEL = ("--model", str(REFERENCE / "base-0b6"))


def test_a_source_without_a_good_clip_is_refused(command_here: CommandHere, tmp_path: Path) -> None:
    """Each bad clip is named with its reason, and the report is written."""
    manifest = tmp_path / "manifest.jsonl"
    lines = [
        {"audio": str(REFERENCE / "reference.wav"), "text": "..."},
        {"audio": "gone.wav", "text": "Hello there."},
    ]
    manifest.write_text("\n".join(map(json.dumps, lines)))
    done = command_here("finetune", "prepare", "manifest.jsonl", "-o", "data", *MODEL)
    assert done.status == 1
    assert "gone.wav: missing_audio" in done.errors
    assert "reference.wav: empty_text" in done.errors
    assert json.loads((tmp_path / "data/report.json").read_text())["dropped"] == 2


@pytest.mark.parametrize("command", ["prepare", "train"])
def test_a_folder_that_is_missing_is_said_before_a_model_is_fetched(
    command_here: CommandHere, command: str
) -> None:
    """The default model is gigabytes, and a model hub may be away."""
    refused = command_here("finetune", command, "typo", "-o", "out")
    assert refused.status == 2
    assert "'typo' does not exist" in refused.errors


def test_the_page_names_the_model_that_is_downloaded() -> None:
    """Whoever prepares recordings learns before that gigabytes come first."""
    page = (Path(__file__).parents[3] / "docs" / "finetuning.md").read_text()
    before, _, _ = page.partition("## 1. Prepare the recordings")
    assert BASE_ID in before


def test_a_dataset_becomes_a_checkpoint(command_here: CommandHere, tmp_path: Path) -> None:
    """`train` says how it ended, and `export` writes a model that loads; the base is unchanged."""
    random_dataset(tmp_path / "data", REFERENCE / "base-0b6", clips=4)
    flags = ("--lora-rank", "2", "--epochs", "1", "--validation-share", "0")
    trained = command_here("finetune", "train", "data", "-o", "run", *MODEL, *flags)
    assert (trained.status, trained.output) == (0, "run: finished\n"), trained.errors
    again = command_here("finetune", "train", "data", "-o", "run", *MODEL, *flags)
    assert again.output == "run: finished\n"
    consent = ("--consent", "Anna agreed on 3 May 2026.")
    exported = command_here(
        "finetune", "export", "run", "-o", "anna", "--speaker", "anna", *consent, "--no-verify"
    )
    assert exported.status == 0, exported.errors
    assert exported.output.startswith("anna: speaks as anna")
    assert read_model_config(tmp_path / "anna").tts_model_type == "custom_voice"


def test_a_full_disk_is_said(
    command_here: CommandHere, full_disk: FullDisk, tmp_path: Path
) -> None:
    """One line names the file that cannot be written, and nothing unfinished is left."""
    random_dataset(tmp_path / "data", REFERENCE / "base-0b6", clips=4)
    flags = ("--lora-rank", "2", "--epochs", "1", "--validation-share", "0")
    with full_disk():
        full = command_here("finetune", "train", "data", "-o", "run", *MODEL, *flags)
    assert full.status == 1
    assert full.errors.startswith("voiceagent-tts: run/run.json: cannot be written"), full.errors
    network = torch.nn.Linear(100, 100)
    folder = RunFolder(tmp_path)
    with full_disk():
        with pytest.raises(InvalidRequestError, match=r"weights\.safetensors: cannot be written"):
            folder.save_weights(network)
        with pytest.raises(InvalidRequestError, match=r"state\.pt: cannot be written"):
            folder.save_state(network, torch.optim.AdamW(network.parameters()), Position())
    assert not list(tmp_path.rglob(".*.unfinished*"))


@pytest.mark.thorough
def test_an_export_that_does_not_speak_fails(command_here: CommandHere, tmp_path: Path) -> None:
    """With random weights `verify` finds noise, and the exit status says so."""
    random_dataset(tmp_path / "data", REFERENCE / "base-0b6", clips=4)
    flags = ("--epochs", "1", "--validation-share", "0")
    command_here("finetune", "train", "data", "-o", "run", *MODEL, *flags)
    consent = ("--consent", "Anna agreed on 3 May 2026.")
    exported = command_here("finetune", "export", "run", "-o", "a", "--speaker", "a", *consent)
    assert exported.status == 1
    assert "checks failed: this model does not work correctly" in exported.output


@pytest.mark.thorough
async def test_an_interrupt_saves_the_run(tmp_path: Path) -> None:
    """SIGINT ends the program after a step, with a state to resume from."""
    random_dataset(tmp_path / "data", REFERENCE / "base-0b6", clips=4)
    flags = ("--epochs", "100000", "--validation-share", "0")
    program = await start("finetune", "train", "data", "-o", "run", *MODEL, *flags, folder=tmp_path)
    await until(lambda: (tmp_path / "run/weights.safetensors").exists(), "an epoch has ended")
    program.send_signal(signal.SIGINT)
    outcome = await finished(program)
    assert (outcome.status, outcome.output) == (0, "run: interrupted\n"), outcome.errors
    state = torch.load(tmp_path / "run/state.pt", weights_only=True)
    assert state["position"]["step"] >= 1
