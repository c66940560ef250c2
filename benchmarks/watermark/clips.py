"""Unmarked clips: synthetic speech of two synthesizers, people, noise, and music-like tones."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import soundfile
import soxr

from testbed import flite_speech, noise
from testbed.agent_text import agent_sentences
from testbed.aligned_texts import ENGLISH
from testbed.known_speech import espeak, flite
from testbed.recordings import FOLDER
from testbed.texts import TEXTS
from voiceagent_tts.core import SAMPLE_RATE_HZ

Clip = npt.NDArray[np.float32]
"""[S] float32 in [-1, 1], mono, 24 kHz."""

CLIP_S = 3.0
_CLIP_SAMPLES = round(CLIP_S * SAMPLE_RATE_HZ)
_PACES = (0.85, 1.0, 1.15, 1.3)
_VOICES = (
    "default", "alloy", "ash", "ballad", "coral", "echo", "fable", "nova", "onyx", "sage",
    "shimmer", "verse",
)  # fmt: skip
_SENTENCES = 8
_PEAK = 0.5
_SCALE_HZ = 110.0 * 2.0 ** (np.arange(37) / 12)  # three octaves of semitones


def cut(samples: Clip, clip_samples: int = _CLIP_SAMPLES) -> Iterator[Clip]:
    """Cut audio into clips without overlap; a shorter rest is dropped."""
    for start in range(0, len(samples) - clip_samples + 1, clip_samples):
        yield samples[start : start + clip_samples]


def of_espeak() -> Iterator[Clip]:
    """Speech of espeak in its languages and many voices, endlessly; nothing is said twice."""
    voices_left = set[str](_VOICES)
    for voice, pace, texts in _utterances(_VOICES):
        yield from cut(_floats(b"".join(espeak(text, "en", voice, pace).pcm for text in texts)))
        if voice in voices_left:  # the other languages, once by each voice
            voices_left.remove(voice)
            for language, others in TEXTS.items():
                said = [espeak(text, language, voice).pcm for text in others]
                yield from cut(_floats(b"".join(said)))


def of_flite() -> Iterator[Clip]:
    """English speech of flite's voices, endlessly; nothing is said twice."""
    for voice, pace, texts in _utterances(flite_speech.VOICES):
        spoken = [flite(text, voice, pace) for text in texts]
        yield from cut(_floats(b"".join(one.pcm for one in spoken if one is not None)))


def _utterances(voices: tuple[str, ...]) -> Iterator[tuple[str, float, list[str]]]:
    """A voice, its pace, and sentences that it has not said at this pace, endlessly."""
    said: set[tuple[str, float, str]] = set()
    for seed, (voice, pace) in enumerate(itertools.cycle(itertools.product(voices, _PACES))):
        texts = dict.fromkeys(itertools.islice(agent_sentences(seed), _SENTENCES))
        new = [text for text in texts if (voice, pace, text) not in said]
        said.update((voice, pace, text) for text in new)
        yield voice, pace, new


def of_people() -> Iterator[Clip]:
    """Clips of recorded people, as far as they are on this machine."""
    for path in sorted(FOLDER.glob("*/*.wav")):
        samples, rate_hz = soundfile.read(path, dtype="float32")
        yield from cut(soxr.resample(samples, rate_hz, SAMPLE_RATE_HZ))


def of_noise() -> Iterator[Clip]:
    """White noise, pink noise and babble, endlessly."""
    for seed in itertools.count():
        rng = np.random.default_rng(seed)
        kinds = (noise.pink, noise.babble, lambda size, rng: rng.standard_normal(size))
        yield _scaled(kinds[seed % 3](_CLIP_SAMPLES, rng))


def of_tones() -> Iterator[Clip]:
    """Music-like tones, endlessly: chords of harmonics with vibrato, struck in a rhythm."""
    for seed in itertools.count():
        rng = np.random.default_rng(seed)
        beat_samples = round(rng.uniform(0.25, 0.8) * SAMPLE_RATE_HZ)
        sound = np.zeros(_CLIP_SAMPLES)
        for start in range(0, _CLIP_SAMPLES, beat_samples):
            time_s = np.arange(_CLIP_SAMPLES - start) / SAMPLE_RATE_HZ
            envelope = np.exp(-time_s * rng.uniform(1, 8))
            vibrato = rng.uniform(0, 3) * np.sin(2 * np.pi * 5.5 * time_s)
            for pitch_hz in rng.choice(_SCALE_HZ, rng.integers(1, 4), replace=False):
                phase = 2 * np.pi * pitch_hz * time_s + vibrato
                harmonics = range(1, rng.integers(2, 7))
                chord = sum(np.sin(phase * number) / number for number in harmonics)
                sound[start:] += envelope * chord
        yield _scaled(sound)


def readings(seconds: float) -> Iterator[tuple[str, Clip]]:
    """Speech of different voices to mark, at most `seconds` long, with names."""
    voices = (("nova", "en"), ("onyx", "en"), ("echo", "de"), ("shimmer", "fr"), ("alloy", "es"))
    for voice, language in voices:
        pcm = b"".join(espeak(text, language, voice).pcm for text in TEXTS[language])
        yield f"espeak {voice} {language}", _floats(pcm)[: round(seconds * SAMPLE_RATE_HZ)]
    for voice in ("slt", "rms", "awb"):
        spoken = [flite(text, voice) for text in ENGLISH[:8]]
        pcm = b"".join(one.pcm for one in spoken if one is not None)
        yield f"flite {voice}", _floats(pcm)[: round(seconds * SAMPLE_RATE_HZ)]
    for path in sorted(Path(FOLDER, "librivox").glob("*.wav")):
        samples, rate_hz = soundfile.read(path, dtype="float32")
        resampled = soxr.resample(samples, rate_hz, SAMPLE_RATE_HZ)
        yield f"person {path.stem[-4:]}", resampled[: round(seconds * SAMPLE_RATE_HZ)]


def _floats(pcm: bytes) -> Clip:
    return (np.frombuffer(pcm, "<i2") / 32_768).astype(np.float32)


def _scaled(sound: npt.NDArray[np.float64]) -> Clip:
    return (sound * (_PEAK / np.abs(sound).max())).astype(np.float32)
