"""Sentences to train on, from Debian's packages of quotations and translated manual pages.

None of them is in the repository, and none is a text of the benchmark. Debian has no such texts in
Korean: syllables are drawn at random.
"""

import gzip
import random
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

_FORTUNES = Path("/usr/share/games/fortunes")
_MANUALS = Path("/usr/share/man")
_QUOTATIONS = {
    "en": (
        "cookie", "definitions", "education", "food", "humorists", "kids", "literature", "love",
        "magic", "medicine", "men-women", "news", "people", "pets", "platitudes", "politics",
        "science", "songs-poems", "sports", "travel", "wisdom", "work",
    ),
    "de": ("de/*",),
    "es": ("es/*",),
    "it": ("it/*",),
    "ru": ("ru/*",),
    "pt-br": ("brasil",),
    "zh": ("tang300", "song100", "chinese"),
}  # fmt: skip
_TRANSLATED_MANUALS = {"fr": "fr", "ja": "ja"}
_MAX_MANUALS = 400
_CHARS, _DENSE_CHARS = (25, 140), (8, 60)
"""Lengths of sentences, in alphabets and in Chinese or Japanese."""
_MIN_SHARE_OF_LETTERS = 0.95
_SENTENCE_END = re.compile(r"(?<=[.!?。！？])\s*")
_KOREAN_SENTENCES = 600
_HANGUL, _FINALS, _VOWELS = 0xAC00, 28, 21
"""First syllable, and how many differ in the final consonant and in the vowel.
Source: The Unicode Standard, section 3.12."""
_COMMON_FINALS = (0, 0, 0, 1, 4, 8, 16, 17, 21)


def sentences(rng: random.Random) -> dict[str, list[str]]:
    """Sentences of each language in random order.

    Raises:
        FileNotFoundError: a package is missing.
    """
    found = {language: _quoted(language) for language in _QUOTATIONS}
    found |= {language: _in_manuals(name) for language, name in _TRANSLATED_MANUALS.items()}
    found["ko"] = [_korean(rng) for _ in range(_KOREAN_SENTENCES)]
    for language, texts in found.items():
        if not texts:
            raise FileNotFoundError(
                f"expected texts in {language!r}, found none; install the packages that "
                "tools/phone_training/__init__.py lists"
            )
        rng.shuffle(texts)
    return found


def _quoted(language: str) -> list[str]:
    paths = [path for name in _QUOTATIONS[language] for path in sorted(_FORTUNES.glob(name))]
    texts = (path.read_bytes() for path in paths if path.suffix != ".dat" and path.is_file())
    quotations = (quotation for text in texts for quotation in _decoded(text).split("\n%"))
    return list(_split(quotations, language))


def _in_manuals(language: str) -> list[str]:
    paths = sorted((_MANUALS / language).glob("man*/*.gz"))[:_MAX_MANUALS]
    pages = (gzip.decompress(path.read_bytes()).decode("utf-8", "ignore") for path in paths)
    requests = re.compile(r"^[.'].*$|\\f.|\\.", re.MULTILINE)
    return list(_split((requests.sub("", page) for page in pages), language))


def _split(texts: Iterable[str], language: str) -> Iterator[str]:
    """Sentences of plain words, of a length that a voice says in one breath."""
    is_dense = language in ("zh", "ja")
    shortest, longest = _DENSE_CHARS if is_dense else _CHARS
    for text in texts:
        plain = re.sub(r"\x1b\[[0-9;]*m|-{2,}.*", "", text)
        for sentence in _SENTENCE_END.split(re.sub(r"\s+", "" if is_dense else " ", plain)):
            said = sentence.strip(" \"'*-[]()")
            letters = sum(char.isalpha() or char in " ,.!?'，。！？、" for char in said)
            is_plain = letters > _MIN_SHARE_OF_LETTERS * len(said)
            is_plain &= not (is_dense and re.search(r"[A-Za-z]", said))
            if shortest <= len(said) <= longest and is_plain:
                yield said


def _decoded(text: bytes) -> str:
    try:
        return text.decode()
    except UnicodeDecodeError:
        return text.decode("latin-1")


def _korean(rng: random.Random) -> str:
    words = (
        "".join(_syllable(rng) for _ in range(rng.randint(1, 4))) for _ in range(rng.randint(4, 9))
    )
    return " ".join(words) + "."


def _syllable(rng: random.Random) -> str:
    initial, vowel = rng.randrange(19), rng.randrange(_VOWELS)
    return chr(_HANGUL + (initial * _VOWELS + vowel) * _FINALS + rng.choice(_COMMON_FINALS))
