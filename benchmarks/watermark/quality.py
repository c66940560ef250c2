"""Is the mark found after codecs and other changes, and how far is marked audio from unmarked?

Speech of eight synthetic voices and of people is marked, changed, and examined: whole, and in clips
of 3 s without overlap. PESQ (ITU-T P.862.2, at most 4.64) and STOI (at most 1) compare marked with
unmarked audio; the segmental signal-to-noise ratio takes the mark as noise. Also writes a file to
listen to: each voice unmarked, then marked.
"""

import importlib
import io
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any

import av
import numpy as np
import soundfile
import soxr
import typer
from pystoi import stoi
from rich.console import Console
from rich.table import Table

from benchmarks.common.report import provenance, publish
from benchmarks.watermark.clips import CLIP_S, Clip, cut, readings
from voiceagent_tts.audio.containers import ContainerEncoder, ContainerFormat
from voiceagent_tts.audio.output import OutputStream
from voiceagent_tts.audio.pcm import pcm_to_float
from voiceagent_tts.audio.resample import Resampler
from voiceagent_tts.core import SAMPLE_RATE_HZ
from voiceagent_tts.plugins.provenance.detector import detect
from voiceagent_tts.plugins.provenance.keys import WatermarkKey
from voiceagent_tts.plugins.provenance.watermark import mark

_RESULT = Path("benchmarks/results/watermark_quality.json")
_KEY = WatermarkKey(bytes(range(32)))
_PESQ_HZ = 16_000
_TELEPHONE_HZ = 8_000
_SEGMENT_SAMPLES = 480
_AUDIBLE_RMS = 100.0
_GAP_SAMPLES = SAMPLE_RATE_HZ // 2

Change = Callable[[bytes], Clip]


def as_file(container_format: ContainerFormat) -> Change:
    """What the server's own encoder makes of marked audio."""

    def change(pcm: bytes) -> Clip:
        encoder = ContainerEncoder(container_format)
        return _decoded(encoder.push(pcm) + encoder.finish())

    return change


def at_bit_rate(muxer: str, codec: str, sample_format: str, kbit_s: int) -> Change:
    """What an encoder of FFmpeg makes of marked audio."""

    def change(pcm: bytes) -> Clip:
        file = io.BytesIO()
        with av.open(file, "w", format=muxer) as container:
            stream: Any = container.add_stream(codec, rate=SAMPLE_RATE_HZ)
            stream.layout, stream.format, stream.bit_rate = "mono", sample_format, kbit_s * 1000
            frame = av.AudioFrame.from_ndarray(
                np.frombuffer(pcm, "<i2")[None], format="s16", layout="mono"
            )
            frame.sample_rate, frame.pts = SAMPLE_RATE_HZ, 0
            frame.time_base = Fraction(1, SAMPLE_RATE_HZ)
            container.mux(stream.encode(frame))
            container.mux(stream.encode(None))
        return _decoded(file.getvalue())

    return change


def by_telephone(pcm: bytes) -> Clip:
    """µ-law at 8 kHz, as telephone lines carry it."""
    output = OutputStream("pcm_mulaw", _TELEPHONE_HZ)
    encoded = output.push(pcm) + output.finish()
    samples = _from_mulaw(encoded)
    resampler = Resampler(_TELEPHONE_HZ, SAMPLE_RATE_HZ)
    return _floats(np.concatenate((resampler.push(samples), resampler.finish())))


def faster(factor: float) -> Change:
    """Played faster, at a higher pitch."""
    return lambda pcm: soxr.resample(pcm_to_float(pcm), SAMPLE_RATE_HZ * factor, SAMPLE_RATE_HZ)


def with_noise(snr_db: float) -> Change:
    """White noise at a ratio to the speech's mean power."""

    def change(pcm: bytes) -> Clip:
        samples = pcm_to_float(pcm)
        noise = np.random.default_rng(1).standard_normal(len(samples))
        level = np.sqrt(np.mean(samples**2)) * 10 ** (-snr_db / 20)
        return (samples + level * noise).astype(np.float32)

    return change


CHANGES: dict[str, Change] = {
    "none": pcm_to_float,
    "µ-law 8 kHz": by_telephone,
    "MP3 80 kbit/s": at_bit_rate("mp3", "libmp3lame", "s16p", 80),
    "MP3 64 kbit/s (ours)": as_file("mp3"),
    "MP3 32 kbit/s": at_bit_rate("mp3", "libmp3lame", "s16p", 32),
    "AAC 64 kbit/s (ours)": as_file("aac"),
    "Opus 48 kbit/s (ours)": as_file("opus"),
    "Opus 36 kbit/s": at_bit_rate("ogg", "libopus", "s16", 36),
    "Opus 24 kbit/s": at_bit_rate("ogg", "libopus", "s16", 24),
    "Opus 16 kbit/s": at_bit_rate("ogg", "libopus", "s16", 16),
    "Opus 12 kbit/s": at_bit_rate("ogg", "libopus", "s16", 12),
    "Opus 7 kbit/s": at_bit_rate("ogg", "libopus", "s16", 7),
    "white noise at 20 dB": with_noise(20),
    "white noise at 10 dB": with_noise(10),
    "0.2 % faster": faster(1.002),
    "1 % faster": faster(1.01),
    "5 % faster": faster(1.05),
}


def _decoded(file: bytes) -> Clip:
    resampler = av.AudioResampler("s16", "mono", SAMPLE_RATE_HZ)
    with av.open(io.BytesIO(file), "r") as container:
        frames = [part for f in container.decode(audio=0) for part in resampler.resample(f)]
    return _floats(np.concatenate([frame.to_ndarray()[0] for frame in frames]))


def _floats(samples: np.ndarray) -> Clip:
    return (samples / 32_768).astype(np.float32)


def _from_mulaw(data: bytes) -> np.ndarray:
    """Decode µ-law. Source: ITU-T G.711, table 2a."""
    inverted = ~np.frombuffer(data, np.uint8)
    exponent, mantissa = (inverted >> 4) & 7, (inverted & 15).astype(np.int32)
    magnitude = ((mantissa * 2 + 33) << exponent) - 33
    return (np.where(inverted & 128, -magnitude, magnitude) * 4).astype(np.int16)


def found(marked: list[bytes], change: Change) -> dict[str, Any]:
    """Detection of whole readings and of clips of 3 s, after a change."""
    changed = [change(pcm) for pcm in marked]
    whole = [detect(samples, [_KEY]) for samples in changed]
    clips = [detect(clip, [_KEY]) for samples in changed for clip in cut(samples)]
    return {
        "readings_found": sum(each.is_marked for each in whole) / len(whole),
        "clips": len(clips),
        "clips_found": round(sum(each.is_marked for each in clips) / len(clips), 3),
        "lowest_clip_score": min(each.score for each in clips),
        "median_clip_score": round(float(np.median([each.score for each in clips])), 2),
    }


def distance(unmarked: bytes, marked: bytes) -> dict[str, float]:
    """PESQ, STOI and segmental SNR of one reading."""
    pesq = importlib.import_module("pesq")
    before, after = (
        soxr.resample(pcm_to_float(pcm), SAMPLE_RATE_HZ, _PESQ_HZ) for pcm in (unmarked, marked)
    )
    return {
        "pesq": round(float(pesq.pesq(_PESQ_HZ, before, after, "wb")), 3),
        "stoi": round(float(stoi(before, after, _PESQ_HZ)), 4),
        "segmental_snr_db": round(_segmental_snr_db(unmarked, marked), 1),
    }


def _segmental_snr_db(unmarked: bytes, marked: bytes) -> float:
    """Mean ratio over segments of 20 ms with speech, each limited to -10 to 35 dB."""
    before, after = (np.frombuffer(pcm, "<i2").astype(np.float64) for pcm in (unmarked, marked))
    whole = len(before) // _SEGMENT_SAMPLES * _SEGMENT_SAMPLES
    speech = before[:whole].reshape(-1, _SEGMENT_SAMPLES)
    rest = (after - before)[:whole].reshape(-1, _SEGMENT_SAMPLES)
    power = np.mean(speech**2, axis=1)
    loud = power > _AUDIBLE_RMS**2
    ratio = power[loud] / np.maximum(np.mean(rest[loud] ** 2, axis=1), 1e-3)
    return float(np.clip(10 * np.log10(ratio), -10, 35).mean())


def main(
    out: Annotated[Path, typer.Option(help="Folder for the file to listen to.")] = Path("out"),
    seconds: Annotated[float, typer.Option(min=3.0, help="Longest reading of a voice.")] = 15.0,
) -> None:
    """Measure robustness and audibility, and write the result that the documents quote."""
    names, unmarked = zip(
        *((name, (clip * 32_767).astype("<i2").tobytes()) for name, clip in readings(seconds)),
        strict=True,
    )
    marked = [mark(pcm, _KEY) for pcm in unmarked]
    changes = {name: found(marked, change) for name, change in CHANGES.items()}
    pairs = list(zip(unmarked, marked, strict=True))
    distances = {name: distance(*pair) for name, pair in zip(names, pairs, strict=True)}
    _show(changes, distances)
    out.mkdir(exist_ok=True)
    gap = bytes(2 * _GAP_SAMPLES)
    listening = b"".join(before + gap + after + gap for before, after in pairs)
    soundfile.write(out / "watermark.wav", np.frombuffer(listening, "<i2"), SAMPLE_RATE_HZ)
    publish({"clip_s": CLIP_S, "changes": changes, "distances": distances, **provenance()}, _RESULT)


def _show(*tables: dict[str, dict[str, Any]]) -> None:
    for rows in tables:
        table = Table("", *next(iter(rows.values())))
        for name, row in rows.items():
            table.add_row(name, *map(str, row.values()))
        Console(stderr=True).print(table)


if __name__ == "__main__":
    typer.run(main)
