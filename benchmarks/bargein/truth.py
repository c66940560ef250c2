"""Which words were heard: the samples that a loudspeaker played, against what the engine made.

The engine leaves the sound and the words of each context in a folder (`worker.throttled.Truth`).
What was played is found again in that sound, sample by sample, also where a reply was spoken by
several contexts one after the other, so no adapter, no protocol and no clock is trusted. The room
knows no agent framework.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from voiceagent_tts.core import BYTES_PER_SAMPLE, SAMPLE_RATE_HZ, Word, WordTimestamp, ms_to_samples
from voiceagent_tts.text.words import split_words

HEARD_SAMPLES = ms_to_samples(20)
"""So much of a word was played when it counts as heard."""
_PROBE_SAMPLES = 64
"""Sound that agrees for so long is taken for the same."""
_OVERLAP_SAMPLES = ms_to_samples(60)
"""Sound of two contexts may agree for so long behind the place where one took over."""
_PADDING_SAMPLES = ms_to_samples(20)
"""Silence that a transport may put behind a context, to fill its last chunk."""


@dataclass(frozen=True, slots=True)
class Speech:
    """What the engine made of one context: PCM16 at 24 kHz, and its words."""

    pcm: bytes
    words: tuple[WordTimestamp, ...]


@dataclass(frozen=True, slots=True)
class Heard:
    """What a listener heard of a reply; words by their number in it.

    Args:
        finished: were played to their end.
        heard: of which at least 20 ms were played.
        begun: of which at least one sample was played.
        unknown_s: sound that is not the engine's.
    """

    finished: frozenset[int]
    heard: frozenset[int]
    begun: frozenset[int]
    unknown_s: float = 0.0


def read_speeches(folder: Path) -> list[Speech]:
    """All contexts that an engine left in `folder`."""
    speeches: list[Speech] = []
    for path in sorted(folder.glob("*.pcm")):
        words = path.with_suffix(".words")
        lines = words.read_text("utf-8").splitlines() if words.exists() else []
        speeches.append(Speech(path.read_bytes(), tuple(map(_word, lines))))
    return speeches


def _word(line: str) -> WordTimestamp:
    text, char_start, char_end, start_sample, end_sample = json.loads(line)
    return WordTimestamp(Word(text, char_start, char_end), start_sample, end_sample, True)


def heard_of(text: str, played: bytes, speeches: Sequence[Speech]) -> Heard:
    """What a listener to `played` heard of the reply `text`."""
    texts = [word.text for word in split_words(text)]
    heard = Heard(frozenset(), frozenset(), frozenset())
    for speech, samples in trace(played, speeches):
        if speech is None:
            heard = replace(heard, unknown_s=heard.unknown_s + samples / SAMPLE_RATE_HZ)
            continue
        # The word that broke off may be said again.
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


def heard_in(words: Iterable[WordTimestamp], played_samples: int, base: int = 0) -> Heard:
    """What of `words`, the first of which is number `base`, was heard in so much of their sound."""
    finished, heard, begun = set[int](), set[int](), set[int]()
    for number, word in enumerate(words, base):
        heard_at = word.start_sample + HEARD_SAMPLES
        if max(word.end_sample or 0, heard_at) <= played_samples:
            finished.add(number)
        if heard_at <= played_samples:
            heard.add(number)
        if word.start_sample < played_samples:
            begun.add(number)
    return Heard(frozenset(finished), frozenset(heard), frozenset(begun))


def trace(played: bytes, speeches: Sequence[Speech]) -> list[tuple[Speech | None, int]]:
    """The pieces that `played` consists of: (whose beginning it is, samples of it) in order."""
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
        elif found.start < position:  # the last piece only seemed to go on for so long
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
    """Finds beginnings of speeches in sound."""

    def __init__(self, played: bytes, speeches: Sequence[Speech]) -> None:
        self._sound = np.frombuffer(played, "<i2")
        self._by_head: dict[bytes, list[Speech]] = defaultdict(list)
        for speech in speeches:
            self._by_head[speech.pcm[: _PROBE_SAMPLES * BYTES_PER_SAMPLE]].append(speech)

    @property
    def samples(self) -> int:
        """Length of the sound."""
        return len(self._sound)

    def find(self, position: int) -> _Found | None:
        """The piece that begins about `position`, and goes on behind it."""
        earliest = max(0, position - _OVERLAP_SAMPLES)
        latest = min(self.samples, position + _PADDING_SAMPLES + 1)
        for start in (*range(position, earliest - 1, -1), *range(position + 1, latest)):
            found = self._longest_from(start)
            if found is not None and start + found.samples > position:
                return found
        return None

    def _longest_from(self, start: int) -> _Found | None:
        rest = self._sound[start:]
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
        """How many samples the two have in common from their beginnings on."""
        candidate = np.frombuffer(speech.pcm, "<i2")
        length = min(len(rest), len(candidate))
        differ = np.flatnonzero(rest[:length] != candidate[:length])
        return int(differ[0]) if len(differ) else length


def _place(texts: Sequence[str], reply: Sequence[str], first: int) -> int:
    """Where in `reply` the words `texts` stand, from `first` on."""
    for base in range(first, len(reply)):
        if list(reply[base : base + len(texts)]) == list(texts[: len(reply) - base]):
            return base
    return first
