"""Synthesize speech whose phones are known, with espeak's variants, flite and festival.

The phones of flite and festival are written in Radio ASCII; here they are in `PHONES`, like those
of espeak. No held-out voice of the benchmark is used, nor a text. This module disturbs nothing.

Source: the phone set of both synthesizers, festival's `lib/radio_phones.scm`.
"""

import random
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt
import soundfile
import soxr

from testbed import flite_speech
from voiceagent_tts.aligner.online.features import HOP_SAMPLES, WINDOW_SAMPLES
from voiceagent_tts.aligner.online.phones import ESPEAK_PHONES, PHONES, SILENCE, sound_spans
from voiceagent_tts.core import SAMPLE_RATE_HZ
from voiceagent_tts.espeak.catalogue import EspeakVoice, VoiceCatalogue
from voiceagent_tts.espeak.library import EspeakLibrary
from voiceagent_tts.espeak.speech import Delivery, speak
from voiceagent_tts.text.pieces import TextPiece
from voiceagent_tts.text.readings import Said
from voiceagent_tts.text.words import split_words

Samples = npt.NDArray[np.floating]
"""Samples at 24 kHz, in units of PCM16."""
Labels = npt.NDArray[np.integer]
"""[N], index in `PHONES` of each frame."""

HELD_OUT_VARIANTS = ("f2", "m2", "f4", "m7")
"""Variants of espeak that the benchmark reports."""
_UNLIKE_PEOPLE = ("whisper", "whisperf", "unirobot", "anikarobot", "croak", "demonic", "fast")
FLITE_VOICES = ("kal16", "slt")
_FESTIVAL_VOICE = "ked_diphone"
"""The voice of Debian's `festvox-kdlpc16k`."""

_RADIO_PHONES = {
    "aa": "ɑ", "ae": "æ", "ah": "ʌ", "ao": "o", "aw": "æu", "ax": "ə", "axr": "ɝ", "ay": "æI",
    "b": "b", "ch": "tʃ", "d": "d", "dh": "ð", "dx": "ɾ", "eh": "e", "el": "l", "em": "m",
    "en": "n", "er": "ɝ", "ey": "eI", "f": "f", "g": "g", "hh": "h", "hv": "h", "ih": "I",
    "iy": "i", "jh": "dʒ", "k": "k", "l": "l", "m": "m", "n": "n", "ng": "ŋ", "nx": "n",
    "ow": "ou", "oy": "oI", "p": "p", "r": "ɹ", "s": "s", "sh": "ʃ", "t": "t", "th": "θ",
    "uh": "u", "uw": "u", "v": "v", "w": "w", "y": "j", "z": "z", "zh": "ʒ",
}  # fmt: skip
"""Phones that each of Radio ASCII passes through; others are pauses."""


@dataclass(frozen=True, slots=True)
class LabelledSpeech:
    """Clean speech and its phones.

    Attributes:
        samples: [S] at 24 kHz, in units of PCM16.
        labels: [N], of the frames whose centres lie inside.
    """

    samples: Samples
    labels: Labels


@dataclass(frozen=True, slots=True)
class _Span:
    """Phones that follow one another within an interval of seconds."""

    start_s: float
    end_s: float
    phones: Sequence[int]


class EspeakSpeakers:
    """Speaks sentences with random variants, paces and pitches of espeak."""

    def __init__(self, rng: random.Random) -> None:
        self._rng, self._library = rng, EspeakLibrary.open()
        variants = self._library.variants()
        self._catalogue = VoiceCatalogue(self._library.voices(), variants)
        self._variants = [
            variant.name
            for variant in variants
            if variant.name not in HELD_OUT_VARIANTS
            and variant.name.lower() not in _UNLIKE_PEOPLE
            and not variant.name.startswith("robosoft")
        ]

    def speak(self, text: str, language: str) -> LabelledSpeech | None:
        """Speak one sentence; None if espeak pronounces nothing of it."""
        found = self._catalogue.resolve(self._rng.choice(self._variants), language)
        voice = EspeakVoice(found.identifier, self._rng.randint(15, 85), found.reads_kana_only)
        delivery = Delivery(
            voice, self._rng.randint(120, 230), has_end_pause=False, trims_lead=True
        )
        words = tuple(split_words(text))
        piece = TextPiece(words, Said(text, tuple(range(len(text)))), segment_end=None)
        speech = speak(self._library, piece, delivery, lambda: True)
        if speech is None or not speech.pcm:
            return None
        spans = [
            _Span(
                phoneme.start_sample / SAMPLE_RATE_HZ,
                phoneme.end_sample / SAMPLE_RATE_HZ,
                [ESPEAK_PHONES[sound] for sound in sounds],
            )
            for sounds, phoneme in sound_spans(speech.phonemes, is_english=voice.is_english)
        ]
        return _labelled(np.frombuffer(speech.pcm, "<i2").astype(np.float32), spans)


class FliteSpeakers:
    """Speaks English sentences with flite's voices that are used for tuning, at random paces.

    Raises:
        FliteMissingError: flite is not installed.
    """

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def speak(self, text: str) -> LabelledSpeech:
        """Speak one sentence."""
        stretch = self._rng.uniform(0.8, 1.25)
        samples, rate_hz, segments = flite_speech.speak_segments(
            text, self._rng.choice(FLITE_VOICES), stretch
        )
        spans = [_Span(start_s, end_s, _radio_phones(name)) for name, start_s, end_s in segments]
        return _labelled(soxr.resample(samples.astype(np.float32), rate_hz, SAMPLE_RATE_HZ), spans)


def speak_with_festival(texts: Iterable[str]) -> Iterator[LabelledSpeech]:
    """Speak English sentences with a voice that was recorded by another person.

    Raises:
        FileNotFoundError: festival is not installed.
        CalledProcessError: festival or its voice is incomplete.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        lines = [f"(voice_{_FESTIVAL_VOICE})"]
        for number, text in enumerate(texts):
            said = text.replace('"', "").replace("\\", "")
            wave, segments = folder / f"{number}.wav", folder / f"{number}.seg"
            lines += [
                f'(set! u (utt.synth (Utterance Text "{said}")))',
                f'(utt.save.wave u "{wave}" \'riff)',
                f'(utt.save.segs u "{segments}")',
            ]
        script = folder / "speak.scm"
        script.write_text("\n".join(lines))
        subprocess.run(["festival", "--batch", script], check=True, stdout=subprocess.DEVNULL)
        for wave in sorted(folder.glob("*.wav"), key=lambda wave: int(wave.stem)):
            samples, rate_hz = soundfile.read(wave, dtype="int16")
            ends = [line.split() for line in wave.with_suffix(".seg").read_text().splitlines()[1:]]
            times = [0.0, *(float(end) for end, _, _ in ends)]
            spans = [
                _Span(start_s, end_s, _radio_phones(phone))
                for (start_s, end_s), (_, _, phone) in zip(pairwise(times), ends, strict=True)
            ]
            resampled = soxr.resample(samples.astype(np.float32), rate_hz, SAMPLE_RATE_HZ)
            yield _labelled(resampled, spans)


def frame_centres(frames: int) -> npt.NDArray[np.int64]:
    """Centres in samples of the first frames of an audio stream, as `FrameStream` has them."""
    return np.arange(1, frames + 1) * HOP_SAMPLES - WINDOW_SAMPLES // 2


def _radio_phones(name: str) -> list[int]:
    return [PHONES.index(phone) for phone in _RADIO_PHONES.get(name, SILENCE)]


def _labelled(samples: Samples, spans: Iterable[_Span]) -> LabelledSpeech:
    centres_s = frame_centres(len(samples) // HOP_SAMPLES) / SAMPLE_RATE_HZ
    labels = np.full(len(centres_s), PHONES.index(SILENCE), np.int64)
    for span in spans:
        borders = np.linspace(span.start_s, span.end_s, len(span.phones) + 1)
        for phone, (start_s, end_s) in zip(span.phones, pairwise(borders), strict=True):
            labels[(centres_s >= start_s) & (centres_s < end_s)] = phone
    return LabelledSpeech(samples, labels)
