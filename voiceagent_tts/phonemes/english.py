"""English to phonemes, each with the place in the client's text that it says.

The package `hibari` normalises a text ("$3.2 billion" becomes "3.2 billion dollars"), reads it word
by word, and knows nothing of places. Words are runs between spaces on both sides of the
normalisation, so it is enough to know which run of the client's became which: most stay as they
are, and those between two that stayed are divided by normalising them in parts.
"""

import contextlib
import logging
import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any

from voiceagent_tts.phonemes.ipa import phonemes_of
from voiceagent_tts.phonemes.reading import Phonemes
from voiceagent_tts.text.readings import Said

_logger = logging.getLogger(__name__)

_RUN = re.compile(r"\S+")
_ENDLESS_DIGITS = 30
"""The package has no names for numbers that are much longer: they are said digit by digit."""
_ENDLESS_NUMBER = re.compile(rf"\d(?:[,.]?\d){{{_ENDLESS_DIGITS - 1},}}")
_MARKS = ".,;:!?"


@dataclass(frozen=True, slots=True)
class _Run:
    """Characters between spaces, and the offset in the context's text of what they say."""

    text: str
    offset: int


class EnglishPronouncer:
    """Reads English in one accent. Threads may share it.

    Args:
        knows: whether the voices of that accent have a phoneme.
        is_british: whether the accent is British rather than American.
    """

    def __init__(self, knows: Callable[[str], bool], *, is_british: bool) -> None:
        from hibari.g2p import G2P

        self._is_british = is_british
        self._knows = knows
        self._g2p: Any = G2P(british=is_british)

    def can_say(self, ipa: str) -> bool:
        """Whether it has a sound for each symbol of a pronunciation in IPA."""
        return phonemes_of(ipa, is_british=self._is_british) is not None

    def phonemes(self, said: Said) -> Phonemes:
        """Read a text; empty if there is nothing to say.

        If the package fails for it, it is read word by word, without the word that it cannot read:
        a listener misses a word, and not the rest of the turn.
        """
        try:
            return self._read(said)
        except Exception as error:  # whatever its rules raise for texts that nobody has thought of
            _logger.error("a text is read word by word: hibari raised %s", type(error).__name__)
        text, offsets = "", ()
        for match in _RUN.finditer(said.text):
            with contextlib.suppress(Exception):
                word = self._read(Said(match.group(), said.offsets[match.start() : match.end()]))
                text += word.text + " "
                offsets += (*word.offsets, said.offsets[match.start()])
        return Phonemes(text, offsets)

    def _read(self, said: Said) -> Phonemes:
        tokens: list[Any] = []
        offsets: list[int] = []
        at = 0
        for place, ipa in said.ipa:
            self._add_text(said, at, place.start, tokens, offsets)
            self._add_ipa(said, place, ipa, tokens, offsets)
            at = place.stop
        self._add_text(said, at, len(said.text), tokens, offsets)
        return self._joined(tokens, offsets)

    def _add_text(
        self, said: Said, start: int, end: int, tokens: list[Any], offsets: list[int]
    ) -> None:
        """Append the tokens of a range of a text, and the offset of each of its runs."""
        text = said.text[start:end]
        if text[:1].isspace():
            _end_run(tokens)
        runs = [_Run(m.group(), said.offsets[start + m.start()]) for m in _RUN.finditer(text)]
        runs = [part for run in normalized(runs) for part in _readable(run)]
        if not runs:
            return
        offsets += (run.offset for run in (runs[1:] if _is_in_run(tokens) else runs))
        tokens += self._g2p.tokenize(" ".join(run.text for run in runs))
        if text[-1:].isspace():
            _end_run(tokens)

    def _add_ipa(
        self, said: Said, place: range, ipa: str, tokens: list[Any], offsets: list[int]
    ) -> None:
        phonemes = phonemes_of(ipa, is_british=self._is_british)
        if phonemes is None:
            self._add_text(said, place.start, place.stop, tokens, offsets)
            return
        if not _is_in_run(tokens):
            offsets.append(said.offsets[place.start])
        tokens += self._g2p.tokenize(f"[_](/{phonemes}/)")

    def _joined(self, tokens: list[Any], offsets: Sequence[int]) -> Phonemes:
        text: list[str] = []
        places: list[int] = []
        run = 0
        for token in self._g2p.phonemize_tokens(tokens) if tokens else ():
            known = [phoneme for phoneme in token.phonemes or "" if self._knows(phoneme)]
            if token.whitespace and (known or text[-1:] not in ([], [" "])):
                known.append(" ")
            text += known
            places += [offsets[run]] * len(known)
            run += bool(token.whitespace)
        return Phonemes("".join(text), tuple(places))


def _is_in_run(tokens: Sequence[Any]) -> bool:
    """Whether the next token belongs to the run of the last one."""
    return bool(tokens) and not tokens[-1].whitespace


def _end_run(tokens: Sequence[Any]) -> None:
    if tokens:
        tokens[-1].whitespace = " "


def _readable(run: _Run) -> list[_Run]:
    """A run without what makes the package fail: endless numbers, and digits in circles."""
    text = run.text
    if not text.isascii():
        text = "".join(map(_plain_digit, text))
    if len(text) >= _ENDLESS_DIGITS:
        text = _ENDLESS_NUMBER.sub(lambda number: f" {' '.join(number.group())} ", text)
    return [_Run(part, run.offset) for part in text.split()]


def _plain_digit(character: str) -> str:
    if character.isdigit() and not character.isdecimal():
        return str(unicodedata.digit(character))
    return character


def normalized(runs: Sequence[_Run]) -> list[_Run]:
    """Write numbers, dates, units and abbreviations as words, each for the run that it says."""
    written = [run.text for run in runs]
    read = _normalize(written)
    if read == written:
        return list(runs)
    matcher = SequenceMatcher(None, written, read, autojunk=False)
    found: list[_Run] = []
    for kind, start, end, first, last in matcher.get_opcodes():
        words = read[first:last]
        if kind == "equal":
            found += runs[start:end]
        elif kind == "insert":  # such as "dollars", which belongs to the amount before it
            found += (_Run(word, runs[max(0, start - 1)].offset) for word in words)
        elif kind == "replace":
            owners = _owners(written[start:end], words)
            found += (
                _Run(word, runs[start + owner].offset)
                for word, owner in zip(words, owners, strict=True)
            )
    return found


def _owners(written: Sequence[str], read: Sequence[str]) -> list[int]:
    """For each word that is read, the index of the written one that it says."""
    owners: list[int] = []
    for index in range(len(written)):
        is_last = index == len(written) - 1
        border = len(read) if is_last else _border(written, read, index + 1)
        owners += [index] * (border - len(owners))
    return owners


def _border(written: Sequence[str], read: Sequence[str], count: int) -> int:
    """Number of words that are read for the first `count` written ones."""
    before, after = _normalize(written[:count]), _normalize(written[count:])
    common = _common(before, read)
    if common == len(before):
        return common
    ending = _common(after[::-1], read[::-1])
    return len(read) - ending if ending == len(after) else common


def _common(some: Sequence[str], others: Sequence[str]) -> int:
    """Number of words with which both begin, without regard to marks and letter case."""
    count = 0
    for one, other in zip(some, others, strict=False):
        if one.strip(_MARKS).casefold() != other.strip(_MARKS).casefold():
            break
        count += 1
    return count


def _normalize(words: Sequence[str]) -> list[str]:
    from hibari.g2p.normalize import normalize

    return normalize(" ".join(words)).split()
