"""Options that mirror the settings, or the fields of a dataclass."""

from types import SimpleNamespace
from typing import Any

import pytest

from voiceagent_tts.cli.undeclared import make, options_in
from voiceagent_tts.config import Settings
from voiceagent_tts.errors import InvalidRequestError
from voiceagent_tts.plugins.training.options import TrainOptions

TYPES = {name: field.annotation for name, field in Settings.model_fields.items()}


def read(*arguments: str) -> dict[str, Any]:
    return options_in(SimpleNamespace(args=list(arguments)), TYPES)  # type: ignore[arg-type]


def test_every_setting_is_an_option() -> None:
    """With a value behind it or after an equals sign, or as a flag with its opposite."""
    given = read(
        "--rows", "8", "--gpu-memory-gb=0.5", "--log-json", "--no-watermark", "--no-overflow",
        "--upstream-fields", '{"lang_code": "a"}', "--device=cpu=x",
    )  # fmt: skip
    assert given.pop("device") == "cpu=x"
    settings = Settings(**given)
    assert (settings.rows, settings.gpu_memory_gb) == (8, 0.5)
    assert settings.log_json and not (settings.watermark or settings.overflow)
    assert settings.upstream_fields == {"lang_code": "a"}


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--rowss", "3"], "expected an option of this command, got --rowss; try --rows"),
        (["--rows"], "--rows: expected a value after it, got none"),
        (["--no-rows"], "got --no-rows"),
        (["hello"], "got hello; "),
        (["rows", "3"], "got rows; "),
        (["--"], "got --; "),
    ],
)
def test_a_mistake_is_said(arguments: list[str], sentence: str) -> None:
    """With the option that may have been meant."""
    with pytest.raises(InvalidRequestError, match=sentence):
        read(*arguments)


def test_a_dataclass_is_made_of_texts() -> None:
    """A value that is none of its field's names the option."""
    options = make(TrainOptions, {"epochs": "5", "learning_rate": "1e-3", "recompute": False})
    assert (options.epochs, options.learning_rate, options.recompute) == (5, 0.001, False)
    with pytest.raises(InvalidRequestError, match=r"--lora-rank: expected a valid integer.* got x"):
        make(TrainOptions, {"lora_rank": "x"})
