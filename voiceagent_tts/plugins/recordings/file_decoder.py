"""A program that decodes an audio file from standard input to samples on standard output.

The first line of the output is empty and float32 samples (mono, 24 kHz) follow, or the line says
why the file is refused. The program limits its own memory and time before it reads the file, checks
the declared length before it decodes, and stops when the file is longer than allowed, whatever its
header says. Its argument is `AudioLimits` as JSON.
"""

import io
import json
import os
import sys
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import soundfile
import soxr

from voiceagent_tts.core import SAMPLE_RATE_HZ
from voiceagent_tts.plugins.recordings.file_reader import AudioLimits

_MIN_RATE_HZ, _MAX_RATE_HZ = 8_000, 192_000
_MAX_CHANNELS = 8
_BLOCK_FRAMES = 65_536
_NICENESS = 10
_UNKNOWN_FRAMES = 2**63 - 1  # in a FLAC file that was written as a stream


class _RefusedError(Exception):
    """The file is refused; the message is the reason."""


class _Forward(soundfile.SoundFile):
    """A file that is only read from front to back.

    After every read of a seekable file the library seeks to its current position, which fails where
    the length is unknown.
    """

    def seekable(self) -> bool:
        return False


def main() -> None:
    """Decode the file on standard input, at a lower priority than speech."""
    if hasattr(os, "nice"):  # not on Windows
        os.nice(_NICENESS)
    limits = AudioLimits(**json.loads(sys.argv[1]))
    data = sys.stdin.buffer.read()
    _limit_process(limits)
    try:
        samples = _decode(data, limits)
    except _RefusedError as refused:
        sys.stdout.write(f"{refused}\n")
    except soundfile.LibsndfileError:
        sys.stdout.write("is damaged: it cannot be decoded\n")
    else:
        sys.stdout.buffer.write(b"\n" + samples.astype("<f4").tobytes())


def _limit_process(limits: AudioLimits) -> None:
    try:
        import resource
    except ImportError:  # Windows: only the parent's timeout and the limits on length apply
        return
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (limits.cpu_s, limits.cpu_s))
    address_space = _address_space_bytes()
    if address_space:
        most = address_space + limits.memory_bytes
        resource.setrlimit(resource.RLIMIT_AS, (most, most))


def _address_space_bytes() -> int:
    """Address space of this process; 0 where the system does not report it (no limit is set)."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            pages = int(file.read().split()[0])
    except OSError:
        return 0
    import resource

    return pages * resource.getpagesize()


def _decode(data: bytes, limits: AudioLimits) -> npt.NDArray[np.float32]:
    with _Forward(io.BytesIO(data)) as file:
        _check_header(file, limits)
        blocks = list(_mono_blocks(file, limits.max_s))
        rate_hz = file.samplerate
    samples = np.concatenate(blocks) if blocks else np.zeros(0, np.float32)
    if len(samples) < limits.min_s * rate_hz:
        raise _RefusedError(
            f"expected at least {limits.min_s:g} s; got {len(samples) / rate_hz:.2f} s"
        )
    return soxr.resample(samples, rate_hz, SAMPLE_RATE_HZ, quality="HQ")


def _check_header(file: soundfile.SoundFile, limits: AudioLimits) -> None:
    if not _MIN_RATE_HZ <= file.samplerate <= _MAX_RATE_HZ:
        raise _RefusedError(
            f"expected a rate from {_MIN_RATE_HZ} to {_MAX_RATE_HZ} Hz; got {file.samplerate}"
        )
    if file.channels > _MAX_CHANNELS:
        raise _RefusedError(f"expected at most {_MAX_CHANNELS} channels; got {file.channels}")
    if _UNKNOWN_FRAMES > file.frames > limits.max_s * file.samplerate:
        raise _RefusedError(
            f"expected at most {limits.max_s:g} s; got {file.frames / file.samplerate:.0f} s"
        )


def _mono_blocks(file: soundfile.SoundFile, max_s: float) -> Iterator[npt.NDArray[np.float32]]:
    decoded = 0
    while len(block := file.read(_BLOCK_FRAMES, dtype="float32", always_2d=True)):
        decoded += len(block)
        if decoded > max_s * file.samplerate:
            raise _RefusedError(
                f"expected at most {max_s:g} s; the file is longer than its header states"
            )
        yield block.mean(axis=1)


if __name__ == "__main__":
    main()
