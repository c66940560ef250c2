"""Predicts a mean opinion score by a model that the user brings, as a file or behind an endpoint.

None is part of this package. A TorchScript (`.pt`) or ONNX (`.onnx`) file gets samples [1, S]
float32 at 16 kHz, and gives a score for each clip, as exports of UTMOS do. An endpoint gets the
clip as a WAV file by `POST`, and answers `{"mos": 3.9}`.
"""

import importlib
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import soundfile
import soxr

from voiceagent_tts.client import authorization
from voiceagent_tts.core import SAMPLE_RATE_HZ
from voiceagent_tts.errors import EngineError, InvalidRequestError
from voiceagent_tts.plugins.bench.quality.clips import Samples

PredictOpinion = Callable[[Samples], float]
"""[S] float32 at 24 kHz -> score. Raises EngineError where there is none."""

_MODEL_RATE_HZ = 16_000
_TIMEOUT_S = 120.0


def open_predictor(address: str, key: str = "") -> PredictOpinion:
    """Make the predictor of a file or an endpoint.

    Raises:
        InvalidRequestError: it is neither, or the file cannot be loaded.
    """
    if address.startswith(("http://", "https://")):
        return lambda samples: _ask(address, key, samples)
    path = Path(address)
    if path.suffix not in (".pt", ".onnx") or not path.is_file():
        raise InvalidRequestError(
            f"--mos: expected http(s)://HOST/PATH or a .pt or .onnx file, got {address!r}"
        )
    try:
        run = _torch_script(path) if path.suffix == ".pt" else _onnx(path)
    except ModuleNotFoundError as error:
        raise InvalidRequestError(f"the package {error.name!r} is missing: install it") from error
    except Exception as error:  # both runtimes raise many types for files they do not understand
        raise InvalidRequestError(f"--mos: {path} cannot be loaded: {error}") from error
    return lambda samples: _score(run, samples, path)


def wav_of(samples: Samples) -> bytes:
    """A WAV file with PCM16 at 24 kHz."""
    file = io.BytesIO()
    soundfile.write(file, samples, SAMPLE_RATE_HZ, format="WAV", subtype="PCM_16")
    return file.getvalue()


def _torch_script(path: Path) -> Callable[[Samples], Any]:
    import torch

    model = torch.jit.load(path, map_location="cpu").eval()

    def run(batch: Samples) -> Any:
        with torch.inference_mode():
            return model(torch.from_numpy(batch)).numpy()

    return run


def _onnx(path: Path) -> Callable[[Samples], Any]:
    runtime = importlib.import_module("onnxruntime")
    session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    return lambda batch: session.run(None, {name: batch})[0]


def _score(run: Callable[[Samples], Any], samples: Samples, path: Path) -> float:
    batch = soxr.resample(samples, SAMPLE_RATE_HZ, _MODEL_RATE_HZ)[None].astype(np.float32)
    try:
        scores = np.asarray(run(np.ascontiguousarray(batch)), np.float64)
    except Exception as error:  # as above: whatever a model's own code raises
        raise EngineError(f"--mos: {path} failed on [1, S] float32 at 16 kHz: {error}") from error
    if scores.size != 1 or not np.isfinite(scores).all():
        raise EngineError(f"--mos: expected one score for a clip from {path}, got {scores.shape}")
    return float(scores.reshape(()))


def _ask(url: str, key: str, samples: Samples) -> float:
    headers = {"Content-Type": "audio/wav", **authorization(key or None)}
    try:
        answer = httpx.post(url, content=wav_of(samples), headers=headers, timeout=_TIMEOUT_S)
        answer.raise_for_status()
        return float(answer.json()["mos"])
    except (httpx.HTTPError, httpx.InvalidURL, ValueError, KeyError, TypeError) as error:
        raise EngineError(
            f'{url}: expected {{"mos": number}}, got {type(error).__name__}; check the address'
        ) from error
