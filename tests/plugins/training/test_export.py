"""Exported checkpoints: the official layout, and a voice that `serve` speaks code for code."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import httpx
import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from testbed.parity_reference import REFERENCE
from testbed.tiny_dataset import random_dataset
from voiceagent_tts.config import Settings
from voiceagent_tts.engine.generate import Request, generate_codes
from voiceagent_tts.errors import CheckpointError, EngineError, InvalidRequestError
from voiceagent_tts.model.checkpoint import load_checkpoint
from voiceagent_tts.model.codec import load_codec
from voiceagent_tts.model.prompt import Preset, PromptBuilder
from voiceagent_tts.model.sampling import sampling_params
from voiceagent_tts.plugins.recordings.codec_encoder import load_codec_encoder
from voiceagent_tts.plugins.training.dataset import read_dataset
from voiceagent_tts.plugins.training.export import ExportJob, export, speaker_row
from voiceagent_tts.plugins.training.model_card import Consent
from voiceagent_tts.plugins.training.options import TrainOptions
from voiceagent_tts.plugins.training.train import TrainJob, train
from voiceagent_tts.server.serve import running

CPU = torch.device("cpu")
CONSENT = Consent("Anna agreed on 3 May 2026 to her voice being used in this shop.")
OPTIONS = TrainOptions(
    epochs=1, learning_rate=1e-3, precision="float32", validation_share=0, recompute=False
)
OFFICIAL = REFERENCE / "training"


def trained_run(base: Path, folder: Path, options: TrainOptions = OPTIONS) -> Path:
    """Train on four clips of random codes; return the folder of the run."""
    dataset = random_dataset(folder / "data", base, clips=4)
    train(TrainJob(dataset, base, folder / "run", CPU, options))
    return folder / "run"


def test_the_layout_is_the_official_one(tmp_path: Path) -> None:
    """Tensors, shapes and config.json are those of the checkpoint that the official code wrote."""
    run = trained_run(OFFICIAL / "base", tmp_path)
    export(ExportJob(run, tmp_path / "anna", "anna", CONSENT, torch.float32))
    ours, official = (
        load_file(folder / "model.safetensors")
        for folder in (tmp_path / "anna", OFFICIAL / "trained")
    )
    assert {name: t.shape for name, t in ours.items()} == {
        name: t.shape for name, t in official.items()
    }
    configs = [
        json.loads((folder / "config.json").read_text())
        for folder in (tmp_path / "anna", OFFICIAL / "trained")
    ]
    assert configs[0] == configs[1]
    speaker = read_dataset(tmp_path / "data").speaker_embedding
    assert torch.equal(ours["talker.model.codec_embedding.weight"][3000], speaker)


@pytest.mark.parametrize("rank", [0, 4], ids=["full", "lora"])
def test_an_export_loads_and_says_where_it_comes_from(tmp_path: Path, rank: int) -> None:
    """It has the codec, the tokenizer, a card and a consent record, and speaks as its speaker."""
    run = trained_run(REFERENCE / "base-0b6", tmp_path, replace(OPTIONS, lora_rank=rank))
    export(ExportJob(run, tmp_path / "anna", "anna", CONSENT))
    checkpoint = load_checkpoint(tmp_path / "anna")
    load_codec(tmp_path / "anna")
    load_codec_encoder(tmp_path / "anna")
    row = speaker_row(checkpoint.config)
    assert checkpoint.config.talker_config.spk_id == {"anna": row}
    speaker = read_dataset(tmp_path / "data").speaker_embedding.bfloat16()
    assert torch.equal(checkpoint.network.talker.codec_embedding[row].bfloat16(), speaker)
    record = json.loads((tmp_path / "anna/consent.json").read_text())
    assert (record["speaker"], record["statement"]) == ("anna", CONSENT.statement)
    card = (tmp_path / "anna/README.md").read_text()
    assert (
        CONSENT.statement in card and "4 recordings" in card and f"| lora_rank | {rank} |" in card
    )
    assert not list(tmp_path.glob("*.partial"))


@pytest.mark.parametrize("name", ["", "Anna", "../a"])
def test_an_unusable_name_is_refused(name: str, tmp_path: Path) -> None:
    """The official package finds speakers in lower case only."""
    with pytest.raises(InvalidRequestError, match="--speaker: expected"):
        export(ExportJob(tmp_path, tmp_path / "out", name, CONSENT))


@pytest.mark.parametrize("statement", ["  ", "a\nb", "a" * 2_001])
def test_an_export_needs_a_consent(statement: str) -> None:
    """One line that says who agreed."""
    with pytest.raises(InvalidRequestError, match="--consent: expected one line"):
        Consent(statement)


def test_weights_that_are_not_finite_are_not_exported(tmp_path: Path) -> None:
    """The tensor is named, and no folder is left."""
    run = trained_run(REFERENCE / "base-0b6", tmp_path)
    weights = load_file(run / "weights.safetensors")
    name = next(iter(weights))
    weights[name][0] = torch.nan
    save_file(weights, run / "weights.safetensors")
    with pytest.raises(EngineError, match=f"{re.escape(name)}: .*NaN or infinity; train"):
        export(ExportJob(run, tmp_path / "anna", "anna", CONSENT))
    assert not list(tmp_path.glob("anna*"))


def test_what_cannot_be_exported_is_named(tmp_path: Path) -> None:
    """No run, a run without weights, and a folder that exists are refused."""
    job = ExportJob(tmp_path / "run", tmp_path / "out", "anna", CONSENT)
    with pytest.raises(InvalidRequestError, match="expected the folder of a run"):
        export(job)
    base = REFERENCE / "base-0b6"
    dataset = random_dataset(tmp_path / "data", base, clips=4)
    stopped = TrainJob(dataset, base, tmp_path / "run", CPU, OPTIONS)
    train(stopped, is_stopping=lambda: True)
    with pytest.raises(CheckpointError, match="train until its first evaluation"):
        export(job)
    with pytest.raises(InvalidRequestError, match="expected a folder that does not exist"):
        export(replace(job, output=tmp_path))
    assert not (tmp_path / "out").exists()


@pytest.mark.thorough
@pytest.mark.parametrize(
    "rank", [pytest.param(0, id="full"), pytest.param(16, id="lora", marks=pytest.mark.costly)]
)
async def test_a_tiny_model_learns_four_clips_and_serve_speaks_them(
    tmp_path: Path, rank: int
) -> None:
    """After training, `serve` answers each text with the sound of exactly its clip's codes."""
    base = greedy_base(tmp_path / "base")
    options = replace(
        OPTIONS,
        epochs=150 if rank == 0 else 400,
        batch_clips=4,
        accumulation=1,
        learning_rate=3e-3 if rank == 0 else 1e-2,
        weight_decay=0.0,
        lora_rank=rank,
        evaluate_steps=1_000,  # only at the end: each one writes files
    )
    run = trained_run(base, tmp_path, options)
    folder = tmp_path / "anna"
    export(ExportJob(run, folder, "anna", CONSENT, torch.float32))
    clips = read_dataset(tmp_path / "data").examples
    checkpoint, codec = load_checkpoint(folder), load_codec(folder)
    builder = PromptBuilder(checkpoint.config, checkpoint.tokenizer)
    params = sampling_params(checkpoint.generation)
    requests = [Request(builder.build(clip.text, Preset("anna")), params, 50) for clip in clips]
    with torch.inference_mode():
        spoken = generate_codes(checkpoint.network, requests, rows=4, capacity=256)
    for clip, codes in zip(clips, spoken, strict=True):
        assert torch.equal(codes, clip.codes), clip.name
    settings = Settings(
        port=0,
        engine="qwen3",
        models=(str(folder),),
        threads=1,
        rows=2,
        aligner="off",
        watermark=False,
    )
    async with running(settings) as server, httpx.AsyncClient(timeout=60) as client:
        for clip in clips:
            answer = await client.post(
                f"{server.url}/v1/audio/speech",
                json={"input": clip.text, "voice": "anna", "response_format": "pcm"},
            )
            assert answer.status_code == 200, answer.text
            served = np.frombuffer(answer.content, "<i2").astype(np.float32) / 32_768
            expected = codec.decode(clip.codes).numpy()
            assert len(served) == len(expected)
            assert np.abs(served - expected).max() < 1e-3


def greedy_base(folder: Path) -> Path:
    """Write the tiny Base model with a generation config that samples nothing."""
    shutil.copytree(REFERENCE / "base-0b6", folder)
    path = folder / "generation_config.json"
    generation = json.loads(path.read_text())
    generation |= {"do_sample": False, "subtalker_dosample": False, "repetition_penalty": 1.0}
    path.write_text(json.dumps(generation))
    return folder
