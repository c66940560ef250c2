"""Finds the words that were heard: compares the played samples with the engine's audio.

The engine writes the audio and the words of each context to a folder (`testbed.throttled.Truth`).
The played audio is located in it sample by sample, even if several contexts spoke a reply one after
another, so the result depends on no adapter, no protocol and no clock. This module knows no agent
framework.
"""

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from voiceagent_tts.core import BYTES_PER_SAMPLE, SAMPLE_RATE_HZ, Word, WordTimestamp, ms_to_samples
from voiceagent_tts.plugins.bench.bargein.heard import Heard, heard_in
from voiceagent_tts.text.words import split_words

_PROBE_SAMPLES = 64
"""Length over which equal audio counts as the start of a context."""
_OVERLAP_SAMPLES = ms_to_samples(60)
"""Length over which the audio of two contexts may agree after one took over from the other."""
_PADDING_SAMPLES = ms_to_samples(40)
"""Silence that a transport may add after a context to fill its last chunk."""


@dataclass(frozen=True, slots=True)
class Speech:
    """The engine's output for one context: PCM16 at 24 kHz, and its words."""

    pcm: bytes
    words: tuple[WordTimestamp, ...]


def read_speeches(folder: Path) -> list[Speech]:
    """All contexts that an engine wrote to `folder`."""
    speeches: list[Speech] = []
    for path in sorted(folder.glob("*.pcm")):
        words = path.with_suffix(".words")
        lines = words.read_text("utf-8").splitlines() if words.exists() else []
        speeches.append(Speech(path.read_bytes(), tuple(map(_word, lines))))
    return speeches


def _word(line: str) -> WordTimestamp:
    text, char_start, char_end, start_sample, end_sample = json.loads(line)
    return WordTimestamp(Word(text, char_start, char_end), start_sample, end_sample, 1.0)


def heard_of(text: str, played: bytes, speeches: Sequence[Speech]) -> Heard:
    """The words of the reply `text` that are heard in `played`."""
    texts = [word.text for word in split_words(text)]
    heard = Heard(frozenset(), frozenset(), frozenset())
    for speech, samples in trace(played, speeches):
        if speech is None:
            heard = replace(heard, unknown_s=heard.unknown_s + samples / SAMPLE_RATE_HZ)
            continue
        # A word that broke off may be spoken again.
        first = max(heard.begun, default=0)
        base = _place([word.word.text for word in speech.words], texts, first)
        piece = heard_in(speech.words, samples, base)
        heard = Heard(
            heard.finished | piece.finished,
            heard.heard | piece.heard,
            heard.begun | piece.begun,
            heard.unknown_s,
        )
    return heard


def trace(played: bytes, speeches: Sequence[Speech]) -> list[tuple[Speech | None, int]]:
    """Split `played` into (context, samples from its start) in order; None is unknown audio."""
    search = _Search(played, speeches)
    pieces: list[tuple[Speech | None, int]] = []
    position = 0
    while position < search.samples:
        found = search.find(position)
        if found is None:
            pieces.append((None, search.samples - position))
            break
        if found.start > position:
            pieces.append((None, found.start - position))
        elif found.start < position:  # the last piece seemed longer by coincidence
            speech, length = pieces[-1]
            pieces[-1] = (speech, length - (position - found.start))
        pieces.append((found.speech, found.samples))
        position = found.start + found.samples
    return pieces


@dataclass(frozen=True, slots=True)
class _Found:
    start: int
    samples: int
    speech: Speech


class _Search:
    """Finds the starts of speeches in audio."""

    def __init__(self, played: bytes, speeches: Sequence[Speech]) -> None:
        self._audio = np.frombuffer(played, "<i2")
        self._by_head: dict[bytes, list[Speech]] = defaultdict(list)
        for speech in speeches:
            self._by_head[speech.pcm[: _PROBE_SAMPLES * BYTES_PER_SAMPLE]].append(speech)

    @property
    def samples(self) -> int:
        return len(self._audio)

    def find(self, position: int) -> _Found | None:
        """The piece that starts near `position` and ends after it."""
        earliest = max(0, position - _OVERLAP_SAMPLES)
        latest = min(self.samples, position + _PADDING_SAMPLES + 1)
        for start in (*range(position, earliest - 1, -1), *range(position + 1, latest)):
            found = self._longest_from(start)
            if found is not None and start + found.samples > position:
                return found
        return None

    def _longest_from(self, start: int) -> _Found | None:
        rest = self._audio[start:]
        head = rest[:_PROBE_SAMPLES].tobytes()
        lengths = [
            (self._agreement(rest, speech), speech) for speech in self._by_head.get(head, ())
        ]
        if not lengths:
            return None
        samples, speech = max(lengths, key=lambda length: length[0])
        return _Found(start, samples, speech)

    @staticmethod
    def _agreement(rest: npt.NDArray[np.int16], speech: Speech) -> int:
        """Number of equal samples at the start of both."""
        candidate = np.frombuffer(speech.pcm, "<i2")
        length = min(len(rest), len(candidate))
        differ = np.flatnonzero(rest[:length] != candidate[:length])
        return int(differ[0]) if len(differ) else length


def _place(texts: Sequence[str], reply: Sequence[str], first: int) -> int:
    """Index in `reply` of the words `texts`, at `first` or later."""
    for base in range(first, len(reply)):
        if list(reply[base : base + len(texts)]) == list(texts[: len(reply) - base]):
            return base
    return first
