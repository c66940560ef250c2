"""The checkpoint's JSON: read as published, refused where the network cannot compute it."""

import json
from pathlib import Path
from typing import Any

import pytest

from testbed.parity_reference import REFERENCE
from voiceagent_tts.errors import CheckpointError
from voiceagent_tts.model.config import (
    read_codec_config,
    read_generation_config,
    read_model_config,
)


def changed(tmp_path: Path, change: dict[str, Any], source: str = "base-0b6") -> Path:
    """Copy the folder of `source` with the dotted keys of config.json changed (None: removed)."""
    config = json.loads((REFERENCE / source / "config.json").read_text())
    for dotted, value in change.items():
        *parents, key = dotted.split(".")
        part = config
        for parent in parents:
            part = part[parent]
        part[key] = value
        if value is None:
            del part[key]
    (tmp_path / "config.json").write_text(json.dumps(config))
    return tmp_path


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"tokenizer_type": "qwen3_tts_tokenizer_25hz"}, "tokenizer_type"),
        ({"talker_config.hidden_act": "gelu"}, "talker_config.hidden_act"),
        ({"talker_config.hidden_size": None}, "talker_config.hidden_size"),
        ({"talker_config.rope_scaling.rope_type": "yarn"}, "talker_config.rope_scaling.rope_type"),
        ({"talker_config.num_key_value_heads": 3}, "num_key_value_heads 3"),
        ({"talker_config.num_code_groups": 8}, "num_code_groups is 8 here and 16"),
        ({"talker_config.spk_is_dialect": {"eric": "martian"}}, "eric the dialect martian"),
    ],
)
def test_what_can_not_be_computed_is_refused(
    tmp_path: Path, change: dict[str, Any], key: str
) -> None:
    with pytest.raises(CheckpointError, match=key) as error:
        read_model_config(changed(tmp_path, change))
    assert str(tmp_path / "config.json") in str(error.value)


def test_missing_and_broken_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="generation_config.json: expected a file"):
        read_generation_config(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(CheckpointError, match="config.json"):
        read_model_config(tmp_path)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", 0.0), ("top_k", -1), ("top_p", 0.0), ("top_p", 1.5),
        ("repetition_penalty", 0.0), ("subtalker_temperature", -1.0), ("subtalker_top_p", 2.0),
    ],
)  # fmt: skip
def test_impossible_sampling_is_refused(tmp_path: Path, name: str, value: float) -> None:
    """A setting out of its range is refused; the error names the setting and the range."""
    (tmp_path / "generation_config.json").write_text(json.dumps({name: value}))
    with pytest.raises(CheckpointError, match=f"{name}: Input should be .* than .*, got {value}"):
        read_generation_config(tmp_path)


def test_a_codec_of_another_frame_is_refused(tmp_path: Path) -> None:
    source = REFERENCE / "base-0b6" / "speech_tokenizer" / "config.json"
    config = json.loads(source.read_text())
    config["decoder_config"]["upsample_rates"] = [8, 5, 4, 2]
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match=r"decoder_config.*1280 samples"):
        read_codec_config(tmp_path)


@pytest.mark.parametrize(
    ("name", "size", "takes_instruct"),
    [
        ("custom_voice-1b7", "1b7", True),
        ("custom_voice-1b7", "0b6", False),
        ("voice_design-1b7", "1b7", True),
        ("base-0b6", "1b7", False),
    ],
)
def test_takes_instruct_depends_on_kind_and_size(
    tmp_path: Path, name: str, size: str, takes_instruct: bool
) -> None:
    """VoiceDesign and the 1.7B CustomVoice accept an instruct; other models do not."""
    config = read_model_config(changed(tmp_path, {"tts_model_size": size}, name))
    assert config.takes_instruct is takes_instruct
