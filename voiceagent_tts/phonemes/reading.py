"""A text as phonemes with their places in it, and the voices that read it."""

import re
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from voiceagent_tts.core import Word
from voiceagent_tts.phonemes.network import Network
from voiceagent_tts.seam.events import VoiceDetails
from voiceagent_tts.text.pieces import TextPiece
from voiceagent_tts.text.readings import Said
from voiceagent_tts.text.words import UNSPACED

PAUSES = frozenset(";:,.!?—…")
_SILENT = PAUSES | frozenset(' "“”()')
RUN = re.compile(rf"[{UNSPACED}]+|[^\s{UNSPACED}]+")
"""Characters without white space, of scripts that put some between words or of the others."""
_SPOKEN = re.compile(r"[^\W_]")
MAX_PHONEMES = 400
"""Longest string that a network is given, as in the package of hibari; Kokoro takes 510."""


@dataclass(frozen=True, slots=True)
class Phonemes:
    """A string of phonemes, each with its place in the client's text.

    Attributes:
        text: phonemes, stress, spaces between words, and marks.
        offsets: for each of them, an offset in the context's text; non-decreasing.
    """

    text: str
    offsets: tuple[int, ...]

    @property
    def sounds(self) -> list[int]:
        """Indices of those that are neither a space nor a mark."""
        return [place for place, phoneme in enumerate(self.text) if phoneme not in _SILENT]

    def parts(self) -> "Iterator[Phonemes]":
        """Divide it where it is too long for the network: after marks, else between words."""
        start = 0
        while len(self.text) - start > MAX_PHONEMES:
            end = start + _last_border(self.text[start : start + MAX_PHONEMES])
            yield Phonemes(self.text[start:end], self.offsets[start:end])
            start = end
        yield Phonemes(self.text[start:], self.offsets[start:])


def place_of(run: re.Match[str], said: Said) -> int:
    """Offset of the first letter or digit of a run of what is said; marks may be another word's."""
    spoken = _SPOKEN.search(said.text, *run.span())
    return said.offsets[run.start() if spoken is None else spoken.start()]


def _last_border(text: str) -> int:
    """Index after the last mark in the second half of `text`, else its last space, else its end."""
    marks = [match.end() for match in re.finditer(r"[;:,.!?—…] ", text)]
    if marks and marks[-1] > len(text) // 2:
        return marks[-1]
    return text.rfind(" ") + 1 or len(text)


class Pronouncer(Protocol):
    """Reads a language. Threads may share it."""

    def can_say(self, ipa: str) -> bool:
        """Whether it has a sound for each symbol of a pronunciation in IPA."""
        ...

    def phonemes(self, said: Said) -> Phonemes:
        """Read a text; empty if there is nothing to say."""
        ...


@dataclass(frozen=True, slots=True)
class LoadedVoice:
    """A voice in memory.

    Attributes:
        pronouncer: reads texts in its language; shared by the voices of a language.
    """

    details: VoiceDetails
    network: Network
    pronouncer: Pronouncer

    def read(self, piece: TextPiece) -> Iterator[tuple[Phonemes, list[Word]]]:
        """Read a piece: what is said at once, with the words that begin in it, in order.

        A word belongs to the first part with a sound of it or of a later word.
        """
        words, given = piece.words, 0
        parts = list(self.pronouncer.phonemes(piece.said).parts())
        for index, part in enumerate(parts):
            is_last = index == len(parts) - 1
            after = len(words)
            if not is_last and part.offsets:
                after = bisect_left(words, part.offsets[-1] + 1, key=lambda word: word.char_start)
            yield part, list(words[given:after])
            given = max(given, after)
