"""Read an audio file of unknown origin as mono samples at 24 kHz, or refuse it with a reason.

A separate process (`file_decoder`) with limited memory and time decodes the file: decoders are
large, the file is untrusted, and a few kilobytes can contain hours of silence. Reading blocks until
the file is decoded, so a server calls it in a thread. This module knows no voices.
"""

import importlib
import json
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from voiceagent_tts.errors import ErrorCode, InvalidRequestError
from voiceagent_tts.reading import read_file

_FORMATS = "WAV, FLAC, MP3 or Ogg"
_SILENCE_LEVEL = 0.001  # -60 dBFS, below the noise of a recording in a quiet room
_MAX_LEVEL = 2.0**16
"""Some programs write floats in the range of 16-bit integers. The energy of far larger samples is
not finite, and neither is the voice of such a recording."""
_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class AudioLimits:
    """Limits on a file; the defaults are those of a voice's reference recording.

    Attributes:
        min_s: minimum duration; shorter audio does not identify a voice.
        max_s: maximum duration; longer audio does not improve a voice but lengthens every prompt.
        max_bytes: maximum size of the file.
        cpu_s: CPU time of the decoder process.
        memory_bytes: address space of the decoder process, beyond what it has when it starts.
        may_be_silent: whether a file without sound is accepted.
    """

    min_s: float = 0.5
    max_s: float = 60.0
    max_bytes: int = 64 * 2**20
    cpu_s: int = 10
    memory_bytes: int = 512 * 2**20
    may_be_silent: bool = False


REFERENCE_LIMITS = AudioLimits()


def read_audio(data: bytes, limits: AudioLimits = REFERENCE_LIMITS) -> npt.NDArray[np.float32]:
    """Decode an untrusted file.

    Args:
        data: a WAV, FLAC, MP3 or Ogg file; rate and channels are converted.
        limits: limits above which the file is refused.

    Returns:
        [S] float32, mono, 24 kHz.

    Raises:
        InvalidRequestError: the file has another format, is damaged, too short, too long, too big
            or silent, has samples that are not finite or far beyond full scale, or needs more
            memory or time than `limits`.
        ModuleNotFoundError: the package `soxr` is not installed.
    """
    # Checked here, because the decoder process could not report a missing package (extra `server`).
    importlib.import_module("soxr")
    _check_file(data, limits)
    samples = _decode(data, limits)
    if not np.isfinite(samples).all():
        raise _refused("audio: expected finite samples, got NaN or infinite ones")
    level = np.abs(samples).max()
    if level > _MAX_LEVEL:
        raise _refused(f"audio: expected samples from -1 to 1, got one of {level:.2g}")
    if not limits.may_be_silent and level < _SILENCE_LEVEL:
        raise _refused("audio: expected a voice, got silence")
    return samples


def read_audio_file(path: Path, limits: AudioLimits = REFERENCE_LIMITS) -> npt.NDArray[np.float32]:
    """Read a file of this machine; otherwise as `read_audio`."""
    return read_audio(read_file(path, limits.max_bytes), limits)


def _check_file(data: bytes, limits: AudioLimits) -> None:
    if len(data) > limits.max_bytes:
        raise InvalidRequestError(
            f"audio: expected at most {limits.max_bytes} bytes; got {len(data)}",
            code=ErrorCode.MESSAGE_TOO_BIG,
        )
    if not _is_audio(data[:16]):
        raise _refused(f"audio: expected a {_FORMATS} file")


def _is_audio(start: bytes) -> bool:
    """Whether a file begins like a supported format; an MP3 with a tag or with its first frame."""
    if start.startswith((b"fLaC", b"OggS", b"ID3")):
        return True
    if start.startswith((b"RIFF", b"RF64")):
        return start[8:12] == b"WAVE"
    is_sync = len(start) > 1 and start[0] == 0xFF and start[1] & 0xE0 == 0xE0
    return is_sync and start[1] & 0x06 != 0  # layer 0 is AAC


def _decode(data: bytes, limits: AudioLimits) -> npt.NDArray[np.float32]:
    argv = [sys.executable, "-m", "voiceagent_tts.plugins.recordings.file_decoder"]
    argv.append(json.dumps(asdict(limits)))
    try:
        done = subprocess.run(
            argv, input=data, capture_output=True, timeout=_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise _refused(f"audio: decoding took longer than {_TIMEOUT_S:.0f} s") from error
    verdict, _, samples = done.stdout.partition(b"\n")
    if done.returncode == 0 and not verdict:
        return np.frombuffer(samples, "<f4")
    if done.returncode == 0:
        raise _refused(f"audio: {verdict.decode()}")
    raise _refused("audio: is damaged, or needs more memory or time than it may have")


def _refused(message: str) -> InvalidRequestError:
    return InvalidRequestError(message, code=ErrorCode.INVALID_PARAM)
