"""`voiceagent-tts verify`: its arguments."""

from pathlib import Path

import pytest

from testbed.command_line import CommandHere

REFERENCE = Path(__file__).parents[2] / "reference"
MODEL = ("--model", str(REFERENCE / "custom_voice-1b7"))


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ([], "expected exactly one of --model and --aligner"),
        ([*MODEL, "--aligner", "a"], "expected exactly one of --model and --aligner"),
        ([*MODEL, "--precision", "int3"], "--precision: expected float32, bfloat16 or float16"),
        ([*MODEL, "--reference", "no.wav"], "no.wav: cannot be read"),
        (["--model", "no such"], "expected the folder of a model, or an id"),
    ],
)
def test_a_mistake_is_one_clear_line(
    options: list[str], sentence: str, command_here: CommandHere
) -> None:
    """A mistake is reported in one line, with status 1."""
    outcome = command_here("verify", *options)
    assert (outcome.status, outcome.output) == (1, "")
    assert outcome.errors.startswith("voiceagent-tts: ")
    assert sentence in outcome.errors
    assert outcome.errors.count("\n") == 1
