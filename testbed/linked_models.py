"""Folders of links to a tiny model, some of whose settings are changed so that it speaks sooner."""

import json
from pathlib import Path

from voiceagent_tts.model.config import CODEC_FOLDER

_CODEBOOKS = 4


def link_with_few_codebooks(source: Path, folder: Path) -> None:
    """Make a folder of links to a checkpoint that uses only the first codebooks.

    A step runs the code predictor once per codebook, so its steps are several times faster.
    """
    (folder / CODEC_FOLDER).mkdir(parents=True)
    for file in source.rglob("*.*"):
        if file.name != "config.json":
            (folder / file.relative_to(source)).symlink_to(file)
    model = json.loads((source / "config.json").read_text())
    talker = model["talker_config"]
    for part in (talker, talker["code_predictor_config"]):
        part["num_code_groups"] = _CODEBOOKS
    (folder / "config.json").write_text(json.dumps(model))
    codec = json.loads((source / CODEC_FOLDER / "config.json").read_text())
    codec["decoder_config"]["num_quantizers"] = _CODEBOOKS
    codec["encoder_valid_num_quantizers"] = _CODEBOOKS
    (folder / CODEC_FOLDER / "config.json").write_text(json.dumps(codec))


def link_with_short_runs(source: Path, folder: Path, frames: int) -> None:
    """Make a folder of links to a model whose recommended settings end every sequence early.

    Random weights rarely end a sequence.

    Args:
        source: folder of the model.
        folder: folder to create.
        frames: frames after which a sequence ends.
    """
    folder.mkdir(parents=True)
    for file in source.resolve().iterdir():
        if file.name != "generation_config.json":
            (folder / file.name).symlink_to(file)
    advice = json.loads((source / "generation_config.json").read_text())
    (folder / "generation_config.json").write_text(json.dumps(advice | {"max_new_tokens": frames}))


def link_with_short_quick_runs(source: Path, folder: Path, frames: int) -> str:
    """Make such folders in `folder`, few codebooks and short runs; return the model's folder."""
    link_with_few_codebooks(source, folder / "few-codebooks")
    link_with_short_runs(folder / "few-codebooks", folder / "short-runs", frames)
    return str(folder / "short-runs")
