"""Languages: codes of language names, and detection of the language of a text.

The codes are those of the ten languages that Qwen3-TTS speaks, and of Cantonese, Dutch and Hindi. A
code keeps its region, which asks for an accent: `es-mx`.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Collection
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from voiceagent_tts.errors import ErrorCode, InvalidRequestError

NAMES = {
    "zh": ("chinese", "mandarin", "中文", "汉语", "漢語", "普通话", "cmn", "zho"),
    "en": ("english", "eng"),
    "ja": ("japanese", "日本語", "jpn"),
    "ko": ("korean", "한국어", "kor"),
    "de": ("german", "deutsch", "deu"),
    "fr": ("french", "français", "fra"),
    "ru": ("russian", "русский", "rus"),
    "pt": ("portuguese", "português", "por"),
    "es": ("spanish", "español", "castellano", "spa"),
    "it": ("italian", "italiano", "ita"),
    "nl": ("dutch", "nederlands", "nld"),
    "hi": ("hindi", "हिन्दी", "हिंदी", "hin"),
    "yue": ("cantonese", "粤语", "粵語", "廣東話", "zh-yue", "zh-hk", "zh-mo"),
}
"""Other names of each language, by its code."""

CODES = tuple(NAMES)

_CODE_OF = {alias: code for code, aliases in NAMES.items() for alias in (code, *aliases)}
_REGION = re.compile(r"[a-z]{2}|[0-9]{3}")
_HOME = frozenset(
    "en-us de-de fr-fr es-es it-it nl-nl ru-ru hi-in ja-jp ko-kr zh-cn yue-hk".split()
)
"""Accents of languages without a region. Portuguese is missing, as it has two."""
_AREAS = {
    "es-419": "ar bo cl co cr cu do ec gt hn mx ni pa pe pr py sv us uy ve",
    "en-029": "ag bb bs dm gd jm kn lc tt vc",
}
"""Regions of an accent that has the code of a larger area."""
_SIMILAR = {
    "en-gb": "au gg gh gi hk ie im in je ke mt ng nz pk sg za zw",
    "en-us": "ca ph",
    "fr-be": "lu",
    "pt-pt": "ao cv gw mo mz st tl",
}
"""Regions whose accent is less unlike this one than unlike the language's others."""
_AREA_OF, _SIMILAR_TO = (
    {
        f"{accent[:2]}-{region}": accent
        for accent, regions in table.items()
        for region in regions.split()
    }
    for table in (_AREAS, _SIMILAR)
)
LATIN = ("en", "de", "fr", "pt", "es", "it", "nl")  # languages that are detected in Latin text
LATIN_MODEL = Path(__file__).parent / "latin_languages.npz.xz"
"""py3langid's model of these languages, made by `scripts/latin-languages`."""
_DEFAULT = "en"

_LIKELY = 0.5  # probability from which the first detected language is used instead of English
_CERTAIN = 0.6  # probability from which the language may change within a context
_ALONE = 0.9  # probability from which a first segment decides without the text that follows it

_CANTONESE = frozenset("嘅咗喺佢哋冇嚟啲嗰嘢噉畀攞諗瞓攰")
"""Characters of words that Cantonese has and written Chinese has not."""

_LETTERS_PER_SYLLABLE = 3  # weight of a Han, Kana or Hangul character, in Latin letters


def normalize_language(name: str) -> str:
    """Code of a language given by name, code or region code: "German", "en", "pt_BR", "zh-Hans-CN".

    Returns:
        A lower-case code, with its region if one is named: `en-gb`, `es-419`.

    Raises:
        InvalidRequestError: the language is not supported; `invalid_language`.
    """
    whole = name.strip().casefold().replace("_", "-")
    language, *subtags = whole.split("-")
    region = f"{language}-{subtags[-1]}" if subtags else language
    code = _CODE_OF.get(whole) or _CODE_OF.get(region) or _CODE_OF.get(language)
    if code is None:
        raise InvalidRequestError(
            f"expected a language among {', '.join(CODES)} (or its English name, or with a region "
            f"as in en-GB); got {name[:40]!r}",
            code=ErrorCode.INVALID_LANGUAGE,
        )
    if region in _CODE_OF or not subtags or _REGION.fullmatch(subtags[-1]) is None:
        return code
    return f"{code}-{subtags[-1]}"


def nearest_accent(wanted: str, spoken: Collection[str]) -> tuple[str | None, bool]:
    """Find the accent that is nearest to the one wanted.

    Args:
        wanted: a code of `normalize_language`.
        spoken: codes that a voice speaks.

    Returns:
        One of `spoken`, or None if the voice does not speak the language; and whether the accent is
        the one wanted. Any is, where no region is named.
    """
    area, language = _AREA_OF.get(wanted), wanted.partition("-")[0]
    for code in (wanted, area):
        if code in spoken:
            return code, True
    similar = _SIMILAR_TO.get(wanted)
    if similar in spoken:
        return similar, False
    return (language if language in spoken else None), wanted in _HOME


def detect_language(text: str, previous: str | None, rest: str = "") -> str:
    """Detect the language that a segment is written in.

    The script decides where it can. Latin text and Han alone may belong to several languages: a
    short or ambiguous segment stays in the language of the segment before it. A first one is in
    that of the text that follows: "Voilà! Your order is complete." is English.

    Args:
        text: one segment.
        previous: code of the segment before it, None at the start of a context.
        rest: text that follows the segment, as far as it is known.
    """
    letters = Counter(_script(character) for character in text if character.isalpha())
    if not letters:
        return previous or _DEFAULT
    east_asian = letters["han"] + letters["kana"]
    weights = {
        "latin": letters["latin"],
        "ru": letters["ru"],
        "hi": letters["hi"],
        "ko": letters["ko"] * _LETTERS_PER_SYLLABLE,
        "east_asian": east_asian * _LETTERS_PER_SYLLABLE,
    }
    dominant = max(weights, key=weights.__getitem__)
    if not weights[dominant]:
        return previous or _DEFAULT
    if dominant == "latin":
        return _latin_language(text, previous, rest)
    if dominant == "east_asian":
        return "ja" if letters["kana"] else _han_language(text, previous)
    return _same_or(previous, dominant)


@lru_cache(maxsize=8192)
def script_name(letter: str) -> str:
    """First word of a letter's Unicode name, which is its script."""
    return unicodedata.name(letter, "").partition(" ")[0]


@lru_cache(maxsize=8192)
def _script(letter: str) -> str:
    return SCRIPTS.get(script_name(letter), "other")


SCRIPTS = {
    "LATIN": "latin",
    "CYRILLIC": "ru",
    "DEVANAGARI": "hi",
    "HANGUL": "ko",
    "CJK": "han",
    "IDEOGRAPHIC": "han",
    "HIRAGANA": "kana",
    "KATAKANA": "kana",
    "KATAKANA-HIRAGANA": "kana",
    "HALFWIDTH": "kana",
}


def _han_language(text: str, previous: str | None) -> str:
    """Han alone may be Chinese, Cantonese, or a Japanese segment without Kana."""
    if not _CANTONESE.isdisjoint(text):
        return _same_or(previous, "yue")
    return previous if previous and previous.partition("-")[0] in ("zh", "yue", "ja") else "zh"


def _same_or(previous: str | None, code: str) -> str:
    """`previous` if it is `code` with a region, else `code`."""
    return previous if previous and previous.partition("-")[0] == code else code


def _latin_language(text: str, previous: str | None, rest: str) -> str:
    code, probability = _likeliest(text)
    if previous is None and rest and probability < _ALONE:
        code, probability = _likeliest(text + rest)
    if probability < (_LIKELY if previous is None else _CERTAIN):
        return previous or _DEFAULT
    return _same_or(previous, code)


def _likeliest(text: str) -> tuple[str, float]:
    """The likeliest language of a Latin text, and its probability."""
    ranked = [each for each in rank_latin(text) if each[0] in LATIN]
    code, best = ranked[0]
    return code, best / sum(each for _, each in ranked)


@lru_cache(maxsize=1)  # a segment is ranked for its language, and then for the warning about it
def rank_latin(text: str) -> tuple[tuple[str, float], ...]:
    """Codes of the languages of a Latin text and their probabilities, the likeliest first."""
    return tuple(_identifier().rank(text))


@cache
def _identifier() -> Any:
    from py3langid import langid  # pyright: ignore[reportMissingTypeStubs]  # clients lack it

    return langid.LanguageIdentifier.from_model_file(LATIN_MODEL, norm_probs=True)  # pyright: ignore[reportUnknownMemberType]
