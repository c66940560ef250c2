"""`voiceagent-tts finetune` on a tiny checkpoint."""

import json
from pathlib import Path

from testbed.command_line import CommandHere
from testbed.parity_reference import REFERENCE

MODEL = ("--model", str(REFERENCE / "base-0b6"))


def test_a_source_without_a_good_clip_is_refused(command_here: CommandHere, tmp_path: Path) -> None:
    """Each bad clip is named with its reason, and the report is written."""
    manifest = tmp_path / "manifest.jsonl"
    lines = [
        {"audio": str(REFERENCE / "reference.wav"), "text": "Hello there."},
        {"audio": "gone.wav", "text": "Hello there."},
    ]
    manifest.write_text("\n".join(map(json.dumps, lines)))
    done = command_here("finetune", "prepare", "manifest.jsonl", "-o", "data", *MODEL)
    assert done.status == 1
    assert "gone.wav: missing_audio" in done.errors
    assert "reference.wav: silent" in done.errors, "it is noise"
    assert json.loads((tmp_path / "data/report.json").read_text())["dropped"] == 2


def test_a_choice_that_is_none_is_refused(command_here: CommandHere) -> None:
    """The error names the option and its values."""
    refused = command_here("finetune", "prepare", ".", "-o", "data", "--bad", "maybe", *MODEL)
    assert refused.status == 1
    assert refused.errors == "voiceagent-tts: --bad: expected skip or refuse; got maybe\n"
