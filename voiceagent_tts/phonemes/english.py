"""English to phonemes, each with the place in the client's text that it says.

Numbers, signs and abbreviations are words before the package `hibari` reads them, by our own rules,
which keep the place of each word in the text. The package keeps no places, but reads run by run,
the characters between two spaces.
"""

import contextlib
import logging
import unicodedata
from collections.abc import Callable, Sequence
from typing import Any

from voiceagent_tts.phonemes.ipa import phonemes_of
from voiceagent_tts.phonemes.reading import RUN, Phonemes, place_of
from voiceagent_tts.text.normalizer import normalize
from voiceagent_tts.text.readings import Said

_logger = logging.getLogger(__name__)


class EnglishPronouncer:
    """Reads English in a British or an American accent. Threads may share it."""

    def __init__(self, knows: Callable[[str], bool], *, is_british: bool) -> None:
        from hibari.g2p import G2P

        self._is_british = is_british
        self._language = "en-gb" if is_british else "en-us"
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
        said = normalize(said, self._language, reads_digits=False)
        try:
            return self._read(said)
        except Exception as error:  # the package's rules may raise anything for unusual texts
            _logger.error("a text is read word by word: hibari raised %s", type(error).__name__)
        text, offsets = "", ()
        for match in RUN.finditer(said.text):
            with contextlib.suppress(Exception):
                word = self._read(Said(match.group(), said.offsets[match.start() : match.end()]))
                text += word.text + " "
                offsets += (*word.offsets, said.offsets[match.end() - 1])
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
        runs = list(RUN.finditer(said.text, start, end))
        if not runs:
            return
        places = [place_of(run, said) for run in runs]
        offsets += places[1:] if _is_in_run(tokens) else places
        tokens += self._g2p.tokenize(" ".join(_readable(run.group()) for run in runs))
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
    return bool(tokens) and not tokens[-1].whitespace


def _end_run(tokens: Sequence[Any]) -> None:
    if tokens:
        tokens[-1].whitespace = " "


def _readable(run: str) -> str:
    """Return a run with circled digits as plain ones; circled digits make the package fail."""
    return run if run.isascii() else "".join(map(_plain_digit, run))


def _plain_digit(character: str) -> str:
    if character.isdigit() and not character.isdecimal():
        return str(unicodedata.digit(character))
    return character
