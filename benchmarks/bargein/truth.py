"""Finds the words that were heard: compares the played samples with the engine's audio.

The engine writes the audio and the words of each context to a folder (`testbed.throttled.Truth`).
The played audio is located in it sample by sample, even if several contexts spoke a reply one after
another, so the result depends on no adapter, no protocol and no clock. This module knows no agent
framework.
"""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
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

Samples = npt.NDArray[np.int16]


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
    audio = np.frombuffer(played, "<i2")
    by_head: dict[bytes, list[Speech]] = defaultdict(list)
    for speech in speeches:
        by_head[speech.pcm[: _PROBE_SAMPLES * BYTES_PER_SAMPLE]].append(speech)
    pieces: list[tuple[Speech | None, int]] = []
    position = 0
    while position < len(audio):
        found = _find(audio, by_head, position)
        if found is None:
            pieces.append((None, len(audio) - position))
            break
        start, samples, speech = found
        if start > position:
            pieces.append((None, start - position))
        elif start < position:  # the last piece seemed longer by coincidence
            earlier, length = pieces[-1]
            pieces[-1] = (earlier, length - (position - start))
        pieces.append((speech, samples))
        position = start + samples
    return pieces


def _find(
    audio: Samples, by_head: Mapping[bytes, Sequence[Speech]], position: int
) -> tuple[int, int, Speech] | None:
    """The piece that starts near `position` and ends after it: its start, its length, its speech.

    Args:
        audio: what was played.
        by_head: speeches by their first samples.
        position: place in `audio`.
    """
    earliest = max(0, position - _OVERLAP_SAMPLES)
    latest = min(len(audio), position + _PADDING_SAMPLES + 1)
    for start in (*range(position, earliest - 1, -1), *range(position + 1, latest)):
        rest = audio[start:]
        alike = by_head.get(rest[:_PROBE_SAMPLES].tobytes(), ())
        lengths = [_agreement(rest, speech) for speech in alike]
        if lengths and start + max(lengths) > position:
            return start, max(lengths), alike[lengths.index(max(lengths))]
    return None


def _agreement(audio: Samples, speech: Speech) -> int:
    """Number of equal samples at the start of both."""
    candidate = np.frombuffer(speech.pcm, "<i2")
    length = min(len(audio), len(candidate))
    differ = np.flatnonzero(audio[:length] != candidate[:length])
    return int(differ[0]) if len(differ) else length


def _place(texts: Sequence[str], reply: Sequence[str], first: int) -> int:
    """Index in `reply` of the words `texts`, at `first` or later."""
    for base in range(first, len(reply)):
        if list(reply[base : base + len(texts)]) == list(texts[: len(reply) - base]):
            return base
    return first
