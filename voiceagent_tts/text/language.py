"""Languages: their names as codes, and which one a text is written in."""

import unicodedata
from functools import cache
from typing import Any

from voiceagent_tts.errors import ErrorCode, InvalidRequestError

NAMES = {
    "chinese": "zh", "english": "en", "japanese": "ja", "korean": "ko", "german": "de",
    "french": "fr", "russian": "ru", "portuguese": "pt", "spanish": "es", "italian": "it",
    "cantonese": "yue",
}  # fmt: skip
CODES = tuple(NAMES.values())
_LATIN = ("en", "de", "fr", "pt", "es", "it")
_DEFAULT = "en"
_MIN_LETTERS = 12


def normalize_language(name: str) -> str:
    """Lower-case code of a language name, code or region code.

    Raises:
        InvalidRequestError: with code `invalid_language` and the languages that are known.
    """
    lowered = name.strip().lower().replace("_", "-")
    code, _, region = NAMES.get(lowered, lowered).partition("-")
    if code not in CODES:
        raise InvalidRequestError(
            f"expected one of {', '.join(CODES)}; got {name[:32]!r}",
            code=ErrorCode.INVALID_LANGUAGE,
        )
    return f"{code}-{region}" if region and "-" not in region else code


def detect_language(text: str, previous: str | None) -> str:
    """Code of the language that `text` is written in; `previous` where that is uncertain."""
    scripts = [unicodedata.name(char, "").partition(" ")[0] for char in text if char.isalpha()]
    if "HIRAGANA" in scripts or "KATAKANA" in scripts:
        return "ja"
    for script, code in (("HANGUL", "ko"), ("CJK", "zh"), ("CYRILLIC", "ru")):
        if scripts.count(script) * 3 > len(scripts):
            return code
    if len(scripts) < _MIN_LETTERS:
        return previous or _DEFAULT
    code, _ = _identifier().classify(text)
    return code


@cache
def _identifier() -> Any:
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    identifier = LanguageIdentifier.from_pickled_model(MODEL_FILE)
    identifier.set_languages(list(_LATIN))
    return identifier
