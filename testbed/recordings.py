"""Recordings of people with word times by forced alignment, a second truth beside synthetic voices.

`make recordings` installs Debian's `pocketsphinx-testdata`: a public-domain LibriVox reading,
and commands under a BSD licence. The acoustic model of pocketsphinx (extra `bench`) aligns them.
Its own error is measured on flite by `own_errors_ms`. No recording is in the repository.
"""

import hashlib
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
import soundfile
import soxr

from testbed.known_speech import Spoken, pcm16
from voiceagent_tts.core import SAMPLE_RATE_HZ, WordTimestamp
from voiceagent_tts.text.words import split_words

FOLDER = Path("/usr/share/pocketsphinx/test/data")
_TRANSCRIPTIONS = ("librivox/transcription", "cards/cards.transcription")
_LINE = re.compile(r"<s>(?P<text>.*)</s>\s*\((?P<name>.*)\)")
_ALIGNER_RATE_HZ = 16_000
_ALIGNER_FRAMES_PER_S = 100

Part = Literal["development", "test"]


class RecordingsMissingError(RuntimeError):
    """The recordings or pocketsphinx are not installed."""


def recordings(part: Part) -> list[Spoken]:
    """The recordings of one part; the hash of a file's name assigns it to a part.

    Raises:
        RecordingsMissingError: the recordings or pocketsphinx are not installed.
    """
    if not FOLDER.exists():
        raise RecordingsMissingError(f"recordings are not in {FOLDER}: make recordings")
    spoken = (
        _recording(FOLDER / path, match["text"].strip(), match["name"])
        for path in _TRANSCRIPTIONS
        for match in _LINE.finditer((FOLDER / path).read_text())
        if part_of(match["name"]) == part
    )
    return [one for one in spoken if one is not None]


def part_of(name: str) -> Part:
    """Assign a file to development or test."""
    return "test" if hashlib.sha256(name.encode()).digest()[0] % 2 else "development"


def own_errors_ms(contexts: Iterable[Spoken]) -> list[float]:
    """Absolute errors of the forced alignment's word starts, where the truth is known."""
    errors: list[float] = []
    for spoken in contexts:
        starts = _aligned(spoken.text, np.frombuffer(spoken.pcm, "<i2"), SAMPLE_RATE_HZ) or []
        pairs = zip(starts, spoken.words, strict=False)
        errors += (abs(start - row.start_sample) * 1000 / SAMPLE_RATE_HZ for start, row in pairs)
    return errors


def _recording(transcription: Path, text: str, name: str) -> Spoken | None:
    samples, rate_hz = soundfile.read(transcription.with_name(f"{name}.wav"), dtype="int16")
    starts = _aligned(text, samples, rate_hz)
    if starts is None:
        return None
    words = (
        WordTimestamp(word, start, None, 1.0)
        for word, start in zip(split_words(text), starts, strict=True)
    )
    pcm = pcm16(soxr.resample(samples.astype(np.float64), rate_hz, SAMPLE_RATE_HZ))
    return Spoken("en", transcription.parent.name, text, pcm, tuple(words))


def _aligned(text: str, samples: Any, rate_hz: int) -> list[int] | None:
    """Starts of the words in samples at 24 kHz; None where the aligner fails."""
    decoder = _decoder()
    audio = pcm16(soxr.resample(samples.astype(np.float64), rate_hz, _ALIGNER_RATE_HZ))
    try:
        decoder.set_align_text(re.sub(r"[^a-z' ]", "", text.lower()))
    except RuntimeError:  # a word that is not in the dictionary
        return None
    decoder.start_utt()
    decoder.process_raw(audio, full_utt=True)
    decoder.end_utt()
    found = [piece for piece in decoder.seg() or () if piece.word[0] not in "<["]
    starts = [piece.start_frame * SAMPLE_RATE_HZ // _ALIGNER_FRAMES_PER_S for piece in found]
    return starts if len(starts) == len(split_words(text)) else None


@cache
def _decoder() -> Any:
    try:
        from pocketsphinx import Decoder
    except ImportError as error:
        message = "pocketsphinx is not installed: pip install -e .[bench]"
        raise RecordingsMissingError(message) from error
    return Decoder(samprate=_ALIGNER_RATE_HZ, loglevel="FATAL")
