"""Encode a context's audio as a file that is sent while it is generated.

Takes 24 kHz PCM16 chunks and returns the bytes of an mp3, opus, aac, flac, wav or pcm file as soon
as the codec emits them. Headers are sent before the length is known: WAV declares the largest, FLAC
an unknown one. `write_length` corrects the header of a file that is complete and was not sent yet.
This module knows no HTTP.
"""

import struct
from typing import Literal, Protocol

from voiceagent_tts.audio.output import OutputStream
from voiceagent_tts.core import BYTES_PER_SAMPLE, SAMPLE_RATE_HZ

ContainerFormat = Literal["mp3", "opus", "aac", "flac", "wav", "pcm"]

CONTENT_TYPES: dict[ContainerFormat, str] = {
    "mp3": "audio/mpeg",
    "opus": "audio/opus",
    "aac": "audio/aac",
    "flac": "audio/flac",
    "wav": "audio/wav",
    "pcm": "audio/pcm",
}
"""Content type of each format, as in the OpenAI API."""

WAV_HEADER_BYTES = 44
_UNKNOWN_LENGTH = 0xFFFF_FFFF
_FLAC_SAMPLES = slice(21, 26)
"""Bytes of a FLAC file whose last 36 bits are its number of samples, 0 if unknown.

Source: RFC 9639, 8.2: STREAMINFO is the first metadata block, behind 4 bytes of `fLaC` and 4 of
header."""


class ContainerEncoder:
    """Encodes the audio of one context into one file.

    Args:
        container_format: kind of file.
        sample_rate_hz: rate of the audio in it. Opus always plays at 48 kHz; for Opus this is the
            rate of the encoder's input: 8, 16, 24 or 48 kHz.
    """

    def __init__(
        self, container_format: ContainerFormat, sample_rate_hz: int = SAMPLE_RATE_HZ
    ) -> None:
        self.content_type = CONTENT_TYPES[container_format]
        self._format: ContainerFormat = container_format
        self._sample_rate_hz = sample_rate_hz
        self._samples = 0
        self._output = OutputStream("pcm_s16le", sample_rate_hz)
        self._writer = _open_writer(container_format, sample_rate_hz)

    def push(self, pcm: bytes) -> bytes:
        """Append whole 24 kHz samples; return the file's next bytes, possibly none."""
        return self._write(self._output.push(pcm))

    def finish(self) -> bytes:
        """Return the last bytes of the file; call once."""
        return self._write(self._output.finish()) + self._writer.close()

    def write_length(self, file: bytearray) -> None:
        """Write the length into the header of the complete `file`, if its format has it there."""
        if self._format == "wav":
            file[:WAV_HEADER_BYTES] = wav_header(
                self._sample_rate_hz, self._samples * BYTES_PER_SAMPLE
            )
        elif self._format == "flac":
            field_value = int.from_bytes(file[_FLAC_SAMPLES], "big") | self._samples
            file[_FLAC_SAMPLES] = field_value.to_bytes(5, "big")

    def _write(self, pcm: bytes) -> bytes:
        self._samples += len(pcm) // BYTES_PER_SAMPLE
        return self._writer.write(pcm)


class _Writer(Protocol):
    def write(self, pcm: bytes) -> bytes: ...
    def close(self) -> bytes: ...


def _open_writer(container_format: ContainerFormat, sample_rate_hz: int) -> _Writer:
    match container_format:
        case "pcm":
            return _PlainWriter(b"")
        case "wav":
            return _PlainWriter(wav_header(sample_rate_hz))
        case _:
            from voiceagent_tts.plugins.speech.muxed import MuxedWriter  # with PyAV, 35 MB

            return MuxedWriter(container_format, sample_rate_hz)


def wav_header(sample_rate_hz: int, data_bytes: int = _UNKNOWN_LENGTH) -> bytes:
    """Return the 44 bytes before the PCM16 mono samples of a WAV file.

    Without `data_bytes` both lengths are 0xFFFFFFFF, which players read as "until the end".
    """
    riff_bytes = min(data_bytes + 36, _UNKNOWN_LENGTH)
    byte_rate = sample_rate_hz * BYTES_PER_SAMPLE
    audio_format = (1, 1, sample_rate_hz, byte_rate, BYTES_PER_SAMPLE, 8 * BYTES_PER_SAMPLE)
    return b"".join(
        (
            struct.pack("<4sI4s", b"RIFF", riff_bytes, b"WAVE"),
            struct.pack("<4sIHHIIHH", b"fmt ", 16, *audio_format),
            struct.pack("<4sI", b"data", data_bytes),
        )
    )


class _PlainWriter:
    """Writes a header, then the samples unchanged."""

    def __init__(self, header: bytes) -> None:
        self._header = header

    def write(self, pcm: bytes) -> bytes:
        header, self._header = self._header, b""
        return header + pcm

    def close(self) -> bytes:
        return self._header
