"""Compares what was heard with what was to be said: errors in words, or in characters.

Texts are normalised as `run_wer.py` of Seed-TTS's test set does: punctuation other than apostrophes
is removed, letters are lower case; Chinese, Japanese and Korean are compared by characters. The
figure of a set is the mean of its utterances' rates, as there. Traditional characters stay as they
are. jiwer aligns.

A recogniser writes "$5" for what was said as "five dollars", which that counts as errors.
`said_errors` compares what a speaker says for both texts: numbers, signs and abbreviations in
words.

Source: Anastassiou et al., "Seed-TTS" (2024), BytedanceSpeech/seed-tts-eval, `run_wer.py`.
"""

import unicodedata
from dataclasses import dataclass

import jiwer

from voiceagent_tts.text.normalizer import normalize
from voiceagent_tts.text.readings import said
from voiceagent_tts.text.words import split_words

CHARACTER_LANGUAGES = ("zh", "ja", "ko")
_APOSTROPHES = str.maketrans({"’": "'", "‘": "'"})


@dataclass(frozen=True, slots=True)
class SaidWord:
    """A word that a speaker says, and the index in the text of the word that it is said for."""

    text: str
    owner: int


@dataclass(frozen=True, slots=True)
class WordErrors:
    """Errors of one utterance, in words or characters.

    Attributes:
        expected: number of words to be said.
        substituted: words heard as another.
        deleted: words not heard.
        inserted: words heard that are not in the text.
    """

    expected: int
    substituted: int
    deleted: int
    inserted: int

    @property
    def rate(self) -> float:
        """Errors for each expected word."""
        errors = self.substituted + self.deleted + self.inserted
        return errors / self.expected if self.expected else float(self.inserted > 0)

    @property
    def insertion_rate(self) -> float:
        """Inserted words for each expected word."""
        return self.inserted / max(1, self.expected)


def unit_of(language: str) -> str:
    """`CER` for languages compared by characters, `WER` for others."""
    return "CER" if language in CHARACTER_LANGUAGES else "WER"


def normalised(text: str, language: str) -> str:
    """The words, or the characters, of a text with a space between them."""
    plain = unicodedata.normalize("NFKC", text).translate(_APOSTROPHES).lower()
    kept = "".join(each for each in plain if each == "'" or not _is_punctuation(each))
    if language in CHARACTER_LANGUAGES:
        return " ".join("".join(kept.split()))
    return " ".join(kept.split())


def word_errors(expected: str, heard: str, language: str) -> WordErrors:
    """Compare a text with a transcript as the paper does."""
    return _errors(normalised(expected, language), normalised(heard, language))


def said_words(text: str, language: str) -> list[SaidWord]:
    """What a speaker says for a text: small letters without marks, numbers in words."""
    text = text.translate(_APOSTROPHES)
    spoken = normalize(said(text, 0, ()), language, reads_digits=False)
    words: list[SaidWord] = []
    owners = split_words(text)
    owner = 0
    for word in split_words(spoken.text):
        offset = spoken.offsets[word.char_start]
        while owner + 1 < len(owners) and owners[owner + 1].char_start <= offset:
            owner += 1
        parts = "".join(c if c.isalnum() or c == "'" else " " for c in word.text.casefold())
        words += (SaidWord(part.strip("'"), owner) for part in parts.split())
    return [word for word in words if word.text]


def said_errors(expected: str, heard: str, language: str) -> WordErrors:
    """Compare what is said for a text with what is said for a transcript of it."""
    return _errors(_said(expected, language), _said(heard, language))


def _said(text: str, language: str) -> str:
    words = [word.text for word in said_words(text, language)]
    return " ".join("".join(words) if language in CHARACTER_LANGUAGES else words)


def _errors(wanted: str, got: str) -> WordErrors:
    if not wanted:
        return WordErrors(0, 0, 0, len(got.split()))
    found = jiwer.process_words(wanted, got)
    return WordErrors(len(wanted.split()), found.substitutions, found.deletions, found.insertions)


def _is_punctuation(character: str) -> bool:
    return unicodedata.category(character)[0] in "PS"
