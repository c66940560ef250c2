"""IPA to hibari's phonemes, which are those of English; a sound that it lacks becomes a near one.

hibari writes a diphthong or an affricate as one character, and stress before the vowel instead of
before the syllable.
"""

import unicodedata

_SAME = frozenset("bdfhjklmnpstvwzðŋɡɹʃʒθiuæɑɔəɛɜɪʊʌ")
_SIMILAR = {
    "eɪ": "A", "aɪ": "I", "oʊ": "O", "əʊ": "O", "aʊ": "W", "ɔɪ": "Y", "tʃ": "ʧ", "dʒ": "ʤ",
    "ts": "ts", "ɚ": "əɹ", "ɝ": "ɜɹ",
    "a": "ɑ", "ɐ": "ə", "ɒ": "ɑ", "e": "ɛ", "o": "O", "y": "u", "ʏ": "ʊ", "ø": "ɜ", "œ": "ɜ",
    "ɨ": "ɪ", "ʉ": "u", "ɯ": "u", "ɤ": "ʌ", "ɘ": "ə", "ɵ": "ə", "ᵻ": "ɪ",
    "r": "ɹ", "ɾ": "T", "ʁ": "ɹ", "ʀ": "ɹ", "ɻ": "ɹ", "ɽ": "ɹ", "ɫ": "l", "ɭ": "l", "ɬ": "l",
    "ʎ": "lj", "ɲ": "nj", "ɳ": "n", "ɱ": "m", "x": "k", "χ": "k", "ç": "h", "ɦ": "h", "ħ": "h",
    "ʋ": "v", "β": "v", "ɸ": "f", "ɣ": "ɡ", "ɟ": "ɡ", "q": "k", "c": "k", "ʈ": "t", "ɖ": "d",
    "ʔ": "t", "ɕ": "ʃ", "ʂ": "ʃ", "ʑ": "ʒ", "ʐ": "ʒ", "ɥ": "j", "ɰ": "w", "ʍ": "w",
}  # fmt: skip
_BRITISH = {"əʊ": "Q", "oʊ": "Q", "o": "Q", "ɒ": "ɒ", "a": "a", "ɾ": "t"}
_VOWELS = frozenset("AIOQWYaiuæɑɒɔəɛɜɪʊʌ")
_STRESS = frozenset("ˈˌ")
_WRITTEN = str.maketrans({"g": "ɡ", ":": "ː", "'": "ˈ", "’": "ˈ", ",": "ˌ", "ʧ": "tʃ", "ʤ": "dʒ"})
_SILENT = frozenset(".‿|/-")
_LONG = "ː"


def phonemes_of(ipa: str, *, is_british: bool) -> str | None:
    """Return hibari's phonemes for a pronunciation; None if a symbol is none of a sound."""
    sounds = _SIMILAR | _BRITISH if is_british else _SIMILAR
    letters = _plain(ipa, keeps_length=is_british)
    phonemes, stress, at = "", "", 0
    while at < len(letters):
        character = letters[at]
        pair = sounds.get(letters[at : at + 2]) if len(letters) > at + 1 else None
        one = character if character in _SAME or character in " ː" else sounds.get(character)
        sound = pair or one
        if character in _STRESS:
            stress = character
        elif sound is None:
            return None
        else:
            has_vowel = not _VOWELS.isdisjoint(sound)
            phonemes += stress + sound if has_vowel else sound
            stress = "" if has_vowel else stress
        at += 2 if pair else 1
    return phonemes.strip() or None


def _plain(ipa: str, *, keeps_length: bool) -> str:
    """The symbols of sounds, stress and length, without what modifies a sound or ties two."""
    decomposed = unicodedata.normalize("NFD", ipa.translate(_WRITTEN))
    return "".join(
        character
        for character in decomposed
        if character in _STRESS
        or (character == _LONG and keeps_length)
        or (character not in _SILENT and unicodedata.category(character) in ("Ll", "Zs"))
    )
