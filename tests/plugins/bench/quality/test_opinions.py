"""Predictors of opinions that a user brings: TorchScript, ONNX and endpoints."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

from testbed.scripted_judges import scripted_judge
from voiceagent_tts.errors import EngineError, InvalidRequestError
from voiceagent_tts.plugins.bench.quality.opinions import open_predictor

SAMPLES = np.full(24_000, 0.25, np.float32)


class Level(torch.nn.Module):
    """A predictor whose score is known: one more than the length in seconds at 16 kHz."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[1, S] -> [1]."""
        return 1.0 + torch.ones_like(x).sum(dim=1) / 16_000


class Nothing(torch.nn.Module):
    """A predictor without a score."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[1, S] -> [1] NaN."""
        return x.sum(dim=1) * float("nan")


def varint(value: int) -> bytes:
    """A number as protobuf writes it."""
    return bytes([value]) if value < 128 else bytes([value & 127 | 128]) + varint(value >> 7)


def field(number: int, value: bytes | int) -> bytes:
    """A field of a protobuf message: a number, or bytes."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def tensor(name: bytes, dims: Sequence[bytes]) -> bytes:
    """ONNX's ValueInfoProto of float32 with named dimensions."""
    shape = b"".join(field(1, field(2, dim)) for dim in dims)
    return field(1, name) + field(2, field(1, field(1, 1) + field(2, shape)))


def onnx_mean() -> bytes:
    """An ONNX model that gives the mean of x [B, S] over all its values."""
    keep = field(5, field(1, b"keepdims") + field(3, 0) + field(20, 2))
    node = field(1, b"x") + field(2, b"y") + field(4, b"ReduceMean") + keep
    graph = (
        field(1, node) + field(2, b"g") + field(11, tensor(b"x", [b"B", b"S"]))
        + field(12, tensor(b"y", []))
    )  # fmt: skip
    return field(1, 8) + field(7, graph) + field(8, field(2, 13))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # TorchScript is on its way out
def test_a_torch_script_file_gets_16_khz(tmp_path: Path) -> None:
    """One second at 24 kHz is one second there; a score that is no number is an error."""
    torch.jit.script(Level()).save(tmp_path / "level.pt")
    assert open_predictor(str(tmp_path / "level.pt"))(SAMPLES) == pytest.approx(2.0, abs=0.01)
    torch.jit.script(Nothing()).save(tmp_path / "nothing.pt")
    with pytest.raises(EngineError, match="one score"):
        open_predictor(str(tmp_path / "nothing.pt"))(SAMPLES)


def test_an_onnx_file_is_run(tmp_path: Path) -> None:
    """The mean of a constant is the constant."""
    (tmp_path / "mean.onnx").write_bytes(onnx_mean())
    score = open_predictor(str(tmp_path / "mean.onnx"))(SAMPLES)
    assert score == pytest.approx(0.25, abs=0.01)


def test_an_endpoint_gets_a_wav_file() -> None:
    """And answers with a number; another answer is an error."""
    with scripted_judge() as server:
        server.answers = [b'{"mos": 3.5}', b'{"mos": "x"}', b"[]", b""]
        predict = open_predictor(f"{server.url}/mos", "a key")
        assert predict(SAMPLES) == 3.5
        assert server.requests[0][:2] == ("/mos", "Bearer a key")
        assert server.requests[0][2].startswith(b"RIFF")
        for _ in range(3):
            with pytest.raises(EngineError, match="expected"):
                predict(SAMPLES)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("name", ["no.pt", "no.onnx", "model.txt", "", "\0"])
def test_what_is_no_predictor_is_refused(name: str, tmp_path: Path) -> None:
    """A file of another content, or none."""
    (tmp_path / "no.pt").write_bytes(b"nothing")
    (tmp_path / "no.onnx").write_bytes(b"nothing")
    with pytest.raises(InvalidRequestError, match="--mos"):
        open_predictor(str(tmp_path / name) if "\0" not in name else name)
