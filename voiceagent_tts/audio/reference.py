"""Audio that somebody sent, as mono samples at 24 kHz, or a sentence why not.

Files are decoded by a process of its own (`reference_decoder`), whose memory and time are limited:
decoders are large, the files are strangers', and a few kilobytes can hold hours of silence. Knows
no voices and no codes; blocks for as long as decoding takes, so that a server calls it in a thread.
"""

import importlib
import json
import subprocess
import sys
from dataclasses import asdict, dataclass

import numpy as np
import numpy.typing as npt

from voiceagent_tts.errors import ErrorCode, InvalidRequestError

_FORMATS = "WAV, FLAC, MP3 or Ogg"
_SILENCE_LEVEL = 0.001  # -60 dBFS, under the noise of a quiet room's recording
_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class AudioLimits:
    """What a file may be; the defaults are those of a voice's reference.

    Attributes:
        min_s: shorter audio tells nothing about a voice.
        max_s: longer audio makes a voice no better, and every prompt longer.
        max_bytes: of the file.
        cpu_s: of the process that decodes it.
        memory_bytes: of the address space of that process, beyond what it has to begin with.
        may_be_silent: whether there need not be a voice in it.
    """

    min_s: float = 0.5
    max_s: float = 60.0
    max_bytes: int = 64 * 2**20
    cpu_s: int = 10
    memory_bytes: int = 512 * 2**20
    may_be_silent: bool = False


REFERENCE_LIMITS = AudioLimits()


def read_audio(data: bytes, limits: AudioLimits = REFERENCE_LIMITS) -> npt.NDArray[np.float32]:
    """Decode a file that somebody sent.

    Args:
        data: a WAV, FLAC, MP3 or Ogg file; rate and channels are converted.
        limits: what is refused.

    Returns:
        [S] float32, mono, 24 kHz.

    Raises:
        InvalidRequestError: the file is of another kind, damaged, too short, too long or too big,
            silent, holds numbers that are none, or wants more memory or time than `limits` allow.
        ModuleNotFoundError: the package that reads sound is not installed.
    """
    importlib.import_module("soundfile")  # of the extra `server`; the decoder could not say so
    _check_file(data, limits)
    samples = _decode(data, limits)
    if not np.isfinite(samples).all():
        raise _refused("audio: holds samples that are not finite numbers")
    if not limits.may_be_silent and np.abs(samples).max() < _SILENCE_LEVEL:
        raise _refused("audio: is silent; expected a voice")
    return samples


def _check_file(data: bytes, limits: AudioLimits) -> None:
    if len(data) > limits.max_bytes:
        raise InvalidRequestError(
            f"audio: expected at most {limits.max_bytes} bytes; got {len(data)}",
            code=ErrorCode.MESSAGE_TOO_BIG,
        )
    if not _is_audio(data[:16]):
        raise _refused(f"audio: expected a {_FORMATS} file")


def _is_audio(start: bytes) -> bool:
    """Whether a file begins as one of ours does; an MP3 with a tag or with its first frame."""
    if start.startswith((b"fLaC", b"OggS", b"ID3")):
        return True
    if start.startswith((b"RIFF", b"RF64")):
        return start[8:12] == b"WAVE"
    is_sync = len(start) > 1 and start[0] == 0xFF and start[1] & 0xE0 == 0xE0
    return is_sync and start[1] & 0x06 != 0  # layer 0 is AAC


def _decode(data: bytes, limits: AudioLimits) -> npt.NDArray[np.float32]:
    argv = [sys.executable, "-m", "voiceagent_tts.audio.reference_decoder"]
    argv.append(json.dumps(asdict(limits)))
    try:
        done = subprocess.run(
            argv, input=data, capture_output=True, timeout=_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise _refused("audio: takes too long to decode") from error
    verdict, _, samples = done.stdout.partition(b"\n")
    if done.returncode == 0 and not verdict:
        return np.frombuffer(samples, "<f4")
    if done.returncode == 0:
        raise _refused(f"audio: {verdict.decode()}")
    raise _refused("audio: is damaged, or needs more memory or time than it may have")


def _refused(message: str) -> InvalidRequestError:
    return InvalidRequestError(message, code=ErrorCode.INVALID_PARAM)
