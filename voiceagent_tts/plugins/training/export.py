"""Writes a trained run as a CustomVoice checkpoint with one speaker.

The speaker's embedding becomes a row of the talker's codec embedding, and config.json names the
row, so that the official package and `serve` load the checkpoint like a published one.

Source: the end of `finetuning/sft_12hz.py` of the official repository.
"""

import json
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from voiceagent_tts.errors import InvalidRequestError
from voiceagent_tts.model.config import ModelConfig, TalkerConfig
from voiceagent_tts.plugins.training.dataset import read_dataset
from voiceagent_tts.plugins.training.files import written
from voiceagent_tts.plugins.training.lora import merged_weights
from voiceagent_tts.plugins.training.model_card import Consent, write_card
from voiceagent_tts.plugins.training.options import TrainOptions
from voiceagent_tts.plugins.training.run_folder import RunFolder, check_finite
from voiceagent_tts.plugins.training.train import build_network

_ROW_FROM_END = 72
"""The speaker's row, counted from the end of the talker's vocabulary: row 3000 of 3,072, as in the
official script. No published speaker or language has it."""
_EMBEDDING = "talker.model.codec_embedding.weight"
_NAME = re.compile(r"[a-z0-9]+(?:[_-][a-z0-9]+)*")
_MAX_NAME_CHARS = 64
_WEIGHTS = ("model.safetensors", "model-*.safetensors", "model.safetensors.index.json")
_OTHERS = ("README.md", ".*")


@dataclass(frozen=True, slots=True)
class ExportJob:
    """What is exported, and as what.

    Attributes:
        run: folder of a training run.
        output: folder of the checkpoint; must not exist.
        speaker: name of the speaker, in lower case.
        consent: consent of the person whose voice it is.
        dtype: precision of the weights.
    """

    run: Path
    output: Path
    speaker: str
    consent: Consent
    dtype: torch.dtype = torch.bfloat16


def export(job: ExportJob) -> None:
    """Write the checkpoint; the folder appears only when it is complete.

    Raises:
        InvalidRequestError: the name is not usable, the folder exists, or there is no run.
        CheckpointError: the run has no weights yet, or a file is damaged.
        EngineError: a weight is not finite.
    """
    _check_name(job.speaker)
    if job.output.exists():
        raise InvalidRequestError(
            f"{job.output}: expected a folder that does not exist; remove it, or choose another"
        )
    folder = RunFolder(job.run)
    run = folder.read()
    base, options = Path(run["base"]), TrainOptions(**run["options"])
    network = build_network(base, options, torch.device("cpu"))
    folder.load_weights(network)
    dataset = read_dataset(Path(run["dataset"]))
    row = speaker_row(network.config)
    weights = {name: _stored(tensor, job.dtype) for name, tensor in merged_weights(network)}
    weights[_EMBEDDING][row] = dataset.speaker_embedding.to(job.dtype)
    for name, tensor in weights.items():
        check_finite(name, tensor)
    partial = job.output.with_name(f"{job.output.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    _copy_base(base, partial)
    with written(partial / "model.safetensors") as unfinished:
        save_file(weights, unfinished, {"format": "pt"})
    _write_config(base / "config.json", partial / "config.json", job.speaker, row)
    write_card(partial, job.speaker, job.consent, run, dataset)
    partial.rename(job.output)


def _copy_base(base: Path, target: Path) -> None:
    """Copy a model's folder, the codec with its weights, but not the weights that are replaced."""
    replaced = shutil.ignore_patterns(*_WEIGHTS, *_OTHERS)

    def ignored(folder: str, names: list[str]) -> set[str]:
        return replaced(folder, names) if Path(folder) == base else set()

    shutil.copytree(base, target, ignore=ignored)


def speaker_row(config: ModelConfig) -> int:
    """Return the row of the codec embedding that holds the speaker.

    Raises:
        InvalidRequestError: another id has this row.
    """
    talker = config.talker_config
    row = talker.vocab_size - _ROW_FROM_END
    if row < talker.code_predictor_config.vocab_size or row in _used_ids(talker):
        raise InvalidRequestError(
            f"config.json: expected row {row} of the codec embedding to be free; it is in use"
        )
    return row


def _used_ids(talker: TalkerConfig) -> set[int]:
    return {
        talker.codec_bos_id,
        talker.codec_eos_token_id,
        talker.codec_pad_id,
        talker.codec_think_id,
        talker.codec_nothink_id,
        talker.codec_think_bos_id,
        talker.codec_think_eos_id,
        *talker.codec_language_id.values(),
    }


def _stored(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    return tensor.detach().to("cpu", dtype, copy=True).contiguous()


def _write_config(source: Path, target: Path, speaker: str, row: int) -> None:
    config: dict[str, Any] = json.loads(source.read_text("utf-8"))
    config["tts_model_type"] = "custom_voice"
    config["talker_config"] |= {"spk_id": {speaker: row}, "spk_is_dialect": {speaker: False}}
    target.write_text(json.dumps(config, indent=2, ensure_ascii=False), "utf-8")


def _check_name(speaker: str) -> None:
    if len(speaker) > _MAX_NAME_CHARS or not _NAME.fullmatch(speaker):
        raise InvalidRequestError(
            f"--speaker: expected at most {_MAX_NAME_CHARS} lower-case letters and digits, joined "
            f"by _ or -, got {speaker[:_MAX_NAME_CHARS]!r}"
        )
