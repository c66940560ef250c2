"""The compressed formats of `containers`, made by FFmpeg; loaded with the first file of one."""

import contextlib
from dataclasses import dataclass, field
from fractions import Fraction
from typing import cast

import av
import numpy as np
from av.audio.stream import AudioStream
from av.error import FFmpegError

_AAC_MAX_BITS_PER_SAMPLE = 6  # ISO/IEC 14496-3: 6,144 bits in a frame of 1,024 samples


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


class MuxedWriter:
    """Encodes samples with an FFmpeg codec into an FFmpeg container."""

    def __init__(self, container_format: str, sample_rate_hz: int) -> None:
        muxing = _MUXINGS[container_format]
        self._sample_rate_hz = sample_rate_hz
        self._written_samples = 0
        self._sink = _Sink()
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
        """Append samples; return the file's next bytes."""
        if pcm:
            self._container.mux(self._stream.encode(self._frame(pcm)))
        return self._sink.pop()

    def close(self) -> bytes:
        """Return the last bytes."""
        self._container.mux(self._stream.encode(None))
        self._container.close()
        return self._sink.pop()

    def __del__(self) -> None:
        """End a file whose client left: an open container and its stream hold each other."""
        with contextlib.suppress(FFmpegError, AttributeError):  # it may never have been opened
            self._container.close()

    def _frame(self, pcm: bytes) -> av.AudioFrame:
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
