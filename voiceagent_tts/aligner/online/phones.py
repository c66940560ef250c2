"""The phones that the aligner tells apart, and espeak's phonemes in terms of them.

espeak has some 150 phonemes in the languages of the voices. Those that sound alike to a listener
who does not know the language are one phone here; a diphthong is two phones one after the other.
The network has learnt the phones of languages other than English from espeak alone, and natural
voices say some of them otherwise: such a sound is any one of several phones.

Source: the names of phonemes in espeak-ng's `docs/phonemes.md`, after Kirshenbaum (ASCII-IPA).
"""

import re
from collections.abc import Iterable, Iterator
from functools import cache

from voiceagent_tts.espeak.speech import Phoneme

SILENCE = "-"
"""The phone of a pause, a breath or a noise."""

VOWELS = ("i", "I", "e", "æ", "ɑ", "ʌ", "ə", "ɝ", "o", "u", "y")
CONSONANTS = tuple("pbtdkgɾɹxhfvθðszʃʒmnŋlwj")
PHONES = (SILENCE, *VOWELS, *CONSONANTS)
"""All phones; their places are the indices in the phone model's output."""

_OF_LETTERS = {
    "i": "i", "I": "I", "8": "I", "e": "e", "E": "e", "a": "æ", "&": "æ", "A": "ɑ", "0": "ɑ",
    "V": "ʌ", "6": "ʌ", "@": "ə", "3": "ɝ", "O": "o", "o": "o", "U": "u", "u": "u", "M": "u",
    "Y": "y", "y": "y", "W": "y",
    "p": "p", "b": "b", "t": "t", "d": "d", "k": "k", "c": "k", "g": "g", "q": "g", "Q": "g",
    "G": "g", "J": "d", "*": "ɾ", "R": "ɾ", "r": "ɹ", "X": "x", "x": "x", "C": "x", "h": "h",
    "H": "h",
    "f": "f", "v": "v", "B": "v", "T": "θ", "D": "ð", "s": "s", "z": "z", "S": "ʃ", "Z": "ʒ",
    "m": "m", "F": "m", "n": "n", "N": "ŋ", "l": "l", "L": "l", "w": "w", "j": "j",
}  # fmt: skip
"""Phones of the letters in espeak's names; other characters are stress, length or colour."""
_HEARD_AS = {
    "r": "ɾɹxh", "a": "æɑ", "e": "eI", "E": "eæ", "I": "Ii", "o": "ou", "y": "yi", "Y": "yəɝ",
    "W": "yəɝ", "D": "ðd", "B": "vb", "A~": "ɑo", "E~": "eæʌ", "O~": "ou", "W~": "yæʌə",
}  # fmt: skip
"""Sounds of letters and of nasal vowels outside English: first espeak's phone, then those as which
the network hears natural voices. French "r" is a fricative or an approximant, and its vowel in "un"
is today that in "vin"."""
_LETTER = re.compile(".~?")
SOUNDS = (*PHONES, *dict.fromkeys(_HEARD_AS.values()))
"""All sounds, each the phones that it may be: all of `PHONES`, then those of several."""
ESPEAK_PHONES = tuple(PHONES.index(sound[0]) for sound in SOUNDS)
"""For each sound, the index in `PHONES` of what espeak says for it."""
_ENGLISH_MARK = "(en)"
"""espeak's name of the language that the next phonemes are of."""


def sound_spans(
    phonemes: Iterable[Phoneme], *, is_english: bool
) -> Iterator[tuple[tuple[int, ...], Phoneme]]:
    """Each phoneme with the indices in `SOUNDS` of the sounds that it passes through.

    espeak marks a change from the voice's language to another between phonemes.
    """
    speaks_english = is_english
    for phoneme in phonemes:
        if phoneme.name.startswith("("):
            speaks_english = phoneme.name == _ENGLISH_MARK
        yield _sounds_of(phoneme.name, is_english=speaks_english), phoneme


@cache
def _sounds_of(phoneme: str, *, is_english: bool) -> tuple[int, ...]:
    """Indices in `SOUNDS` of the sounds that an espeak phoneme such as "aI" passes through.

    Of English the network knows the phones from other voices, too.
    """
    if phoneme.startswith(("_", "(")):  # a pause, or the name of another language
        return (SOUNDS.index(SILENCE),)
    letters = [letter for letter in _LETTER.findall(phoneme) if letter[0] in _OF_LETTERS]
    sounds = [_OF_LETTERS[letter[0]] if is_english else _heard_as(letter) for letter in letters]
    return tuple(map(SOUNDS.index, sounds or (SILENCE,)))


def _heard_as(letter: str) -> str:
    """The sound outside English of a letter, which has a tilde where it is nasal."""
    return _HEARD_AS.get(letter) or _HEARD_AS.get(letter[0]) or _OF_LETTERS[letter[0]]
