"""Synthesise speech with known word times, from espeak's variants and flite, also distorted.

Espeak's variants differ from the aligner's reference in timbre, pitch and pace but not in
pronunciation; flite differs in all of them. This module uses no aligner.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import soxr

from testbed import flite_speech
from voiceagent_tts.audio.levels import leading_silence_samples
from voiceagent_tts.core import (
    BYTES_PER_SAMPLE,
    FRAME_SAMPLES,
    SAMPLE_RATE_HZ,
    Word,
    WordTimestamp,
    ms_to_samples,
)
from voiceagent_tts.plugins.bench.bargein.known_speech import KnownSpeech as KnownSpeech
from voiceagent_tts.plugins.bench.bargein.known_speech import espeak as espeak
from voiceagent_tts.text.words import split_words

_SILENCE_LEVEL = 33
"""-60 dBFS: quieter frames at the beginning are removed."""


def flite(
    text: str, speaker: str, pace: float = 1.0, unwritten: Mapping[int, str] | None = None
) -> KnownSpeech | None:
    """Speak English `text` with a voice of flite; None if flite splits it into other words.

    Args:
        text: the context's text.
        speaker: one of `flite_speech.VOICES`.
        pace: 1.0 is the voice's own.
        unwritten: what the voice says before the word of each index, and the text lacks.

    Raises:
        FliteMissingError: flite is not installed.
    """
    words = split_words(text)
    said: list[tuple[str, Word | None]] = []
    for index, word in enumerate(words):
        said += ((token, None) for token in (unwritten or {}).get(index, "").split())
        said.append((word.text, word))
    samples, rate_hz, times = flite_speech.speak(
        " ".join(token for token, _ in said), speaker, 1.0 / pace
    )
    if len(said) != len(times):
        return None
    floats = soxr.resample(samples.astype(np.float32), rate_hz, SAMPLE_RATE_HZ)
    stamps = (
        WordTimestamp(word, round(start * SAMPLE_RATE_HZ), round(end * SAMPLE_RATE_HZ), 1.0)
        for (_, word), (start, end) in zip(said, times, strict=True)
        if word is not None
    )
    whole = KnownSpeech("en", speaker, text, pcm16(floats), tuple(stamps))
    return _without_lead(whole)


def read_as(frame: str, number: str, said: str, voice: str) -> KnownSpeech:
    """Speak an English text with a number that is read otherwise than espeak reads it.

    Args:
        frame: the text, with `{}` in place of the number.
        number: as it is written, in one word.
        said: as it is read.
        voice: a variant of espeak.
    """
    spoken = espeak(frame.format(said), "en", voice)
    place, count = len(split_words(frame[: frame.index("{}")])), len(said.split())
    before, read, after = (
        spoken.words[:place],
        spoken.words[place : place + count],
        spoken.words[place + count :],
    )
    times = (*before, replace(read[0], end_sample=read[-1].end_sample), *after)
    text = frame.format(number)
    words = zip(times, split_words(text), strict=True)
    return replace(spoken, text=text, words=tuple(replace(time, word=word) for time, word in words))


def _without_lead(spoken: KnownSpeech) -> KnownSpeech:
    """Remove the silent frames before the first sound, as an engine does."""
    frames = leading_silence_samples(spoken.pcm, _SILENCE_LEVEL) // FRAME_SAMPLES
    words = tuple(word.later(-frames * FRAME_SAMPLES) for word in spoken.words)
    return replace(spoken, pcm=spoken.pcm[frames * FRAME_SAMPLES * BYTES_PER_SAMPLE :], words=words)


def with_pauses(spoken: KnownSpeech, pauses_ms: Sequence[tuple[int, int]]) -> KnownSpeech:
    """Insert silence before some words."""
    for index, length_ms in sorted(pauses_ms, reverse=True):
        at, length = spoken.words[index].start_sample, ms_to_samples(length_ms)
        pcm = spoken.pcm[: at * BYTES_PER_SAMPLE]
        pcm += bytes(length * BYTES_PER_SAMPLE) + spoken.pcm[at * BYTES_PER_SAMPLE :]
        before = (
            replace(word, end_sample=min(word.end_sample or at, at))
            for word in spoken.words[:index]
        )
        after = (word.later(length) for word in spoken.words[index:])
        spoken = replace(spoken, pcm=pcm, words=(*before, *after))
    return spoken


def with_lead(spoken: KnownSpeech, lead_ms: int) -> KnownSpeech:
    length = ms_to_samples(lead_ms)
    words = tuple(word.later(length) for word in spoken.words)
    return replace(spoken, pcm=bytes(length * BYTES_PER_SAMPLE) + spoken.pcm, words=words)


def with_reverb(spoken: KnownSpeech) -> KnownSpeech:
    """Add the echo of a room that decays by 60 dB in 0.3 s."""
    rng = np.random.default_rng(0)
    length = int(0.3 * SAMPLE_RATE_HZ)
    echo = rng.standard_normal(length) * 10 ** (-3 * np.arange(length) / length)
    echo *= 0.3 / np.sqrt(np.square(echo).sum())
    echo[0] = 1.0
    samples = np.frombuffer(spoken.pcm, "<i2").astype(np.float64)
    size = len(samples) + length
    wet = np.fft.irfft(np.fft.rfft(samples, size) * np.fft.rfft(echo, size), size)
    return replace(spoken, pcm=pcm16(wet[: len(samples)]))


def joined(parts: Sequence[KnownSpeech]) -> KnownSpeech:
    text, pcm = "", b""
    words: list[WordTimestamp] = []
    for part in parts:
        text += " " if text else ""
        samples = len(pcm) // BYTES_PER_SAMPLE
        words += (
            replace(
                stamp.later(samples),
                word=replace(
                    stamp.word,
                    char_start=stamp.word.char_start + len(text),
                    char_end=stamp.word.char_end + len(text),
                ),
            )
            for stamp in part.words
        )
        text, pcm = text + part.text, pcm + part.pcm
    return replace(parts[0], text=text, pcm=pcm, words=tuple(words))


def pcm16(samples: npt.NDArray[np.floating]) -> bytes:
    return np.clip(np.rint(samples), -(1 << 15), (1 << 15) - 1).astype("<i2").tobytes()
