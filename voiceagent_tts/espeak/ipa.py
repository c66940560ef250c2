"""IPA to espeak's phoneme names.

espeak reads phonemes between double brackets, but by names of its own that differ between languages
(`[[t@m'A:toU]]`). It can also print the IPA of any name in the phonemes of a voice, so the table of
a voice is the inverse of that: for each IPA spelling the shortest name that prints it.

Source: `phontab` of espeak-ng 1.52: a byte with the number of tables, three bytes of padding; each
table has a header of 36 bytes, which begins with the number of its phonemes, and 16 bytes for each
phoneme, which begin with its name in four bytes and have its kind at byte 11.
"""

import struct
import unicodedata
from collections.abc import Callable, Iterable
from pathlib import Path

_HEADER_BYTES, _PHONEME_BYTES, _NAME_BYTES, _KIND_BYTE = 36, 16, 4, 11
_FIRST_SPOKEN_KIND = 2  # kinds 0 and 1 are pauses and stress
_STRESS = {"ˈ": "'", "ˌ": ","}
_SILENT = frozenset("\u0361\u035c.‿|/")  # ties, syllable borders and slashes
_WRITTEN = str.maketrans({"g": "ɡ", ":": "ː", "'": "ˈ", "’": "ˈ", ",": "ˌ"})
_SIMILAR = "ɹrɾʁʀɻ aɑɐæʌ eɛ oɔɒ iɪ uʊ yʏ øœ əɐɜ lɫ nŋɲ xχç hɦ vʋβ ʃɕʂ ʒʑʐ".split()
"""Sounds that replace each other where a language lacks one, the nearest first."""


def phoneme_names(phontab: Path) -> list[str]:
    """Names of all phonemes of espeak's data that are spoken, each once, the shortest first."""
    data = phontab.read_bytes()
    (tables,) = struct.unpack_from("<B", data)
    names: dict[str, None] = {}
    place = 4
    for _ in range(tables):
        count = data[place]
        place += _HEADER_BYTES
        for start in range(place, place + count * _PHONEME_BYTES, _PHONEME_BYTES):
            name = data[start : start + _NAME_BYTES].rstrip(b"\0").decode("latin-1")
            if data[start + _KIND_BYTE] >= _FIRST_SPOKEN_KIND and name.isprintable() and name:
                names[name] = None
        place += count * _PHONEME_BYTES
    return sorted(names, key=len)


class IpaTable:
    """The IPA that one voice can say.

    Args:
        names: espeak's names of phonemes, the preferred ones first.
        ipa_of: prints the IPA of a name; empty if the voice does not have it.
    """

    def __init__(self, names: Iterable[str], ipa_of: Callable[[str], str]) -> None:
        self._names: dict[str, str] = {}
        for name in names:
            ipa = unicodedata.normalize("NFD", ipa_of(name))
            if ipa:
                self._names.setdefault(ipa, name)
        self._longest = max(map(len, self._names), default=0)

    def names_of(self, ipa: str) -> str | None:
        """Return espeak's names for a pronunciation, words in brackets of their own.

        None if the voice has no sound like one of its symbols.
        """
        words = [self._word(word) for word in _normalized(ipa).split()]
        if not words or None in words:
            return None
        return " ".join(f"[[{word}]]" for word in words)

    def _word(self, ipa: str) -> str | None:
        names: list[str] = []
        stress = ""
        at = 0
        while at < len(ipa):
            if ipa[at] in _STRESS:
                stress = _STRESS[ipa[at]]
                at += 1
                continue
            found = self._found(ipa, at)
            if found is None:
                return None
            length, name = found
            names.append(stress + name if _is_vowel(ipa[at]) else name)
            stress = "" if _is_vowel(ipa[at]) else stress
            at += length
        return "|".join(names) if names else None

    def _found(self, ipa: str, at: int) -> tuple[int, str] | None:
        for length in range(min(self._longest, len(ipa) - at), 0, -1):
            if name := self._names.get(ipa[at : at + length]):
                return length, name
        length = 1 + _marks(ipa, at + 1)
        bases = [ipa[at], *(c for group in _SIMILAR if ipa[at] in group for c in group)]
        for base in bases:
            for suffix in (ipa[at + 1 : at + length], ""):
                if name := self._names.get(base + suffix):
                    return length, name
        return None


def _normalized(ipa: str) -> str:
    decomposed = unicodedata.normalize("NFD", ipa.translate(_WRITTEN))
    return "".join(character for character in decomposed if character not in _SILENT)


def _marks(ipa: str, at: int) -> int:
    """Number of combining marks, length marks and modifier letters from `at` on."""
    end = at
    while end < len(ipa) and ipa[end] not in _STRESS and _is_mark(ipa[end]):
        end += 1
    return end - at


def _is_mark(character: str) -> bool:
    return unicodedata.category(character) in ("Mn", "Lm", "Sk") or character.isdigit()


def _is_vowel(character: str) -> bool:
    return character in "aeiouyæøœɐɑɒɔəɘɛɜɞɤɨɪɯɵɶʉʊʌʏɚɝᵻ"
