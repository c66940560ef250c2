"""Passes over rows stay on one device and never wait for a value, so they can be captured."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import Tensor

from testbed.parity_reference import REFERENCE
from voiceagent_tts.engine import passes
from voiceagent_tts.engine.cuda_graph import plainly
from voiceagent_tts.engine.passes import Passes, empty_rows
from voiceagent_tts.engine.row_table import DeviceRecords, record_type
from voiceagent_tts.engine.sizes import Shapes, fitting
from voiceagent_tts.engine.transfer import Download, Upload
from voiceagent_tts.model.checkpoint import build_network
from voiceagent_tts.model.config import read_model_config
from voiceagent_tts.model.kv_pool import empty_pool
from voiceagent_tts.model.sampling import SamplingBounds, SamplingSettings, TorchSampler

NOWHERE = torch.device("meta")
"""Tensors on this device have shapes and no values: waiting for a value fails."""
SHAPES = Shapes(rows=(1, 3), windows=(256, 512), prompts=(16, 64), prompt_rows=(1, 2))
PAGES = 2


@dataclass
class _OnDevice:
    """A tensor that the host neither writes nor reads; its values are ignored."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device

    def __post_init__(self) -> None:
        self.tensor: Tensor = torch.zeros(self.shape, dtype=self.dtype, device=self.device)

    def send(self, array: object = None) -> None:
        """Do nothing."""


@pytest.fixture
def without_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace every transfer between host and device by one that moves nothing."""
    monkeypatch.setattr(passes, "Upload", _OnDevice)
    monkeypatch.setattr(passes, "Download", _OnDevice)


@torch.inference_mode()
@pytest.mark.usefixtures("without_host")
@pytest.mark.parametrize(
    ("name", "dtype", "settings"),
    [
        ("base-0b6", torch.bfloat16, SamplingSettings()),
        pytest.param(
            "custom_voice-1b7",
            torch.float16,
            SamplingSettings(top_p=0.9),
            marks=pytest.mark.thorough,
        ),
        ("custom_voice-1b7", torch.float32, SamplingSettings(is_sampled=False)),
    ],
)
def test_every_pass_can_be_captured(
    name: str, dtype: torch.dtype, settings: SamplingSettings
) -> None:
    """Every pass of every shape runs on tensors without values, all on one device."""
    config = read_model_config(REFERENCE / name)
    network = build_network(config, dtype, NOWHERE, "sdpa")
    network.code_predictor.fold(network.talker.codec_embedding)
    pool = empty_pool(config.talker_config, 5, network.talker.codec_embedding)
    rows = empty_rows(network, 3, 512, pool)
    layout = record_type(network.codebooks, PAGES)
    sampler = TorchSampler(SamplingBounds.of([settings]))
    passes = Passes(network, rows, layout, SHAPES, sampler, sampler, plainly)
    keys = list(passes.keys())
    for kind, count, length, window in keys:
        match kind:
            case "prefill":
                passes.prefill(count, length, window)
            case "code_predictor":
                passes.code_predictor_step(count)
            case _:
                passes.talker_step(count, window)
    assert len(keys) == 2 + 2 * 2 + 2 * 2 + 1


def test_a_record_is_a_row_of_numbers() -> None:
    """A record consists of 32-bit numbers; the device reads each field where the host wrote it."""
    layout = record_type(4, 3)
    records = np.zeros(2, layout)
    records["slot"], records["penalty"] = (5, 7), (1.5, 2.5)
    records["talker"]["top_k"], records["predictor"]["temperature"] = 50, 0.25
    records["noise"], records["pages"] = [[0.5, 0.25, 0, 1]] * 2, [[8, 9, 10]] * 2
    packed = torch.from_numpy(records.view(np.int32).reshape(2, -1))
    read = DeviceRecords(packed, layout)
    assert read.integer("slot").tolist() == [5, 7]
    assert read.number("penalty").tolist() == [[1.5], [2.5]]
    assert read.settings("talker").top_k.tolist() == [[50], [50]]
    assert read.settings("predictor").temperature.tolist() == [[0.25], [0.25]]
    assert read.noise.tolist() == [[0.5, 0.25, 0, 1]] * 2
    assert read.table.tolist() == [[8, 9, 10]] * 2


@pytest.mark.parametrize(("wanted", "size"), [(1, 1), (2, 4), (4, 4), (5, 8)])
def test_the_next_large_enough_size_is_taken(wanted: int, size: int) -> None:
    """The smallest sufficient size is chosen, an exact fit included."""
    assert fitting((1, 4, 8), wanted) == size


def test_what_is_sent_arrives() -> None:
    """Leading rows are written, other rows stay unchanged; values from the device are read back."""
    upload = Upload((3, 2), torch.int32, torch.device("cpu"))
    upload.send(np.array([[1, 2], [3, 4], [5, 6]]))
    upload.send(np.array([[7, 8]]))
    assert upload.tensor.tolist() == [[7, 8], [3, 4], [5, 6]]
    download = Download((2,), torch.int32, torch.device("cpu"))
    download.tensor.copy_(torch.tensor([3, 4]))
    download.send()
    assert download.receive().tolist() == [3, 4]
