"""Encode a context's audio as a file that is sent while it is generated.

Takes 24 kHz PCM16 chunks and returns the bytes of an mp3, opus, aac, flac, wav or pcm file as soon
as the codec emits them. Headers are sent before the length is known: WAV declares the largest, FLAC
an unknown one. `write_length` corrects the header of a file that is complete and was not sent yet.
This module knows no HTTP.
"""

import struct
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Literal, Protocol, cast

import numpy as np

from voiceagent_tts.audio.output import OutputStream
from voiceagent_tts.core import BYTES_PER_SAMPLE, SAMPLE_RATE_HZ

if TYPE_CHECKING:
    import av
    from av.audio.stream import AudioStream

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
_AAC_MAX_BITS_PER_SAMPLE = 6  # ISO/IEC 14496-3: 6,144 bits in a frame of 1,024 samples


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
            return _MuxedWriter(_MUXINGS[container_format], sample_rate_hz)


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


@dataclass(frozen=True, slots=True)
class _Muxing:
    """FFmpeg's names of a container and its codec, and their options."""

    muxer: str
    codec: str
    sample_format: str
    bit_rate: int | None = None
    muxer_options: dict[str, str] = field(default_factory=dict[str, str])
    codec_options: dict[str, str] = field(default_factory=dict[str, str])


_MUXINGS = {
    # Without a bit reservoir a frame is emitted when it is full; a Xing header is rewritten later.
    "mp3": _Muxing(
        "mp3",
        "libmp3lame",
        "s16p",
        bit_rate=64_000,
        muxer_options={"write_xing": "0", "id3v2_version": "0"},
        codec_options={"reservoir": "0"},
    ),
    # In microseconds: a page is never longer than its first 20 ms packet.
    "opus": _Muxing(
        "opus", "libopus", "s16", bit_rate=48_000, muxer_options={"page_duration": "1"}
    ),
    # FFmpeg's other coder takes three times as long, up to 13 ms for a chunk of 85 ms, and at this
    # rate its error is 11 dB larger.
    "aac": _Muxing("adts", "aac", "fltp", bit_rate=64_000, codec_options={"aac_coder": "fast"}),
    # The highest compression level with blocks of 27 ms; higher levels have 105 ms.
    "flac": _Muxing(
        "flac",
        "flac",
        "s16",
        muxer_options={"metadata_header_padding": "0"},
        codec_options={"compression_level": "2"},
    ),
}


class _MuxedWriter:
    """Encodes samples with an FFmpeg codec into an FFmpeg container."""

    def __init__(self, muxing: _Muxing, sample_rate_hz: int) -> None:
        self._sample_rate_hz = sample_rate_hz
        self._written_samples = 0
        self._sink = _Sink()
        import av  # 35 MB that only compressed files need

        self._container = av.open(
            self._sink, "w", format=muxing.muxer, options={**muxing.muxer_options}
        )
        stream = self._container.add_stream(
            muxing.codec, rate=sample_rate_hz, options={**muxing.codec_options}
        )
        self._stream = cast("AudioStream", stream)
        self._stream.layout, self._stream.format = "mono", muxing.sample_format
        if muxing.bit_rate is not None:
            self._stream.bit_rate = _allowed_bit_rate(muxing, sample_rate_hz)
        self._container.start_encoding()

    def write(self, pcm: bytes) -> bytes:
        if pcm:
            self._container.mux(self._stream.encode(self._frame(pcm)))
        return self._sink.pop()

    def close(self) -> bytes:
        self._container.mux(self._stream.encode(None))
        self._container.close()
        return self._sink.pop()

    def _frame(self, pcm: bytes) -> "av.AudioFrame":
        import av

        samples = np.frombuffer(pcm, "<i2")[None]  # [1, S]
        frame = av.AudioFrame.from_ndarray(samples, format="s16", layout="mono")
        frame.sample_rate = self._sample_rate_hz
        frame.time_base = Fraction(1, self._sample_rate_hz)
        frame.pts = self._written_samples
        self._written_samples += samples.shape[1]
        return frame


def _allowed_bit_rate(muxing: _Muxing, sample_rate_hz: int) -> int:
    assert muxing.bit_rate is not None
    if muxing.codec == "aac":
        return min(muxing.bit_rate, _AAC_MAX_BITS_PER_SAMPLE * sample_rate_hz)
    return muxing.bit_rate


class _Sink:
    """A write-only file without seeking; `pop` empties it."""

    def __init__(self) -> None:
        self._data = bytearray()

    def write(self, data: bytes) -> int:
        self._data += data
        return len(data)

    def pop(self) -> bytes:
        data, self._data = bytes(self._data), bytearray()
        return data
