"""What the forced aligner reads: places for the sound, then each word with places for its times.

    <|audio_start|> <|audio_pad|>… <|audio_end|> word <timestamp><timestamp> word <timestamp>…

There is no chat template around it: the model was trained on this alone, and three tokens in front
would shift the times that it tells. Words are the client's own, so that their times go back to
where they came from. This module knows no network and no audio.

Source: `encode_timestamp` of qwen-asr 0.0.6; the chat template of Qwen3-ForcedAligner-0.6B-hf,
whose whole output this is.
"""

import logging
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from voiceagent_tts.core import Word
from voiceagent_tts.errors import ErrorCode, InvalidRequestError

LANGUAGES = frozenset(("zh", "yue", "en", "de", "es", "fr", "it", "ja", "ko", "pt", "ru"))
"""Codes of what Qwen3-ForcedAligner-0.6B was trained on."""

Unit = tuple[Word, ...]
"""Words that share one pair of times."""

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Clip:
    """Sound, and the words that are spoken in it.

    Attributes:
        words: in order. What the model says of a word depends on the sound and on the words up to
            it, so that words which are not yet spoken do no harm to those that are.
        pcm: PCM16, mono, 24 kHz. It may end in the middle of the words.
        language: code of one of the aligner's languages, with or without a region.
    """

    words: tuple[Word, ...]
    pcm: bytes
    language: str


@dataclass(frozen=True, slots=True)
class PromptTokens:
    """Ids of the control tokens."""

    audio_start: int
    audio_pad: int
    audio_end: int
    timestamp: int


def build_prompt(
    units: Sequence[Unit],
    audio_tokens: int,
    tokens: PromptTokens,
    encode: Callable[[str], list[int]],
) -> list[int]:
    """Ids of the prompt of one clip.

    Args:
        units: what gets a pair of times, in order.
        audio_tokens: places for the sound.
        tokens: the control tokens.
        encode: a word's text to its ids, without any control token.

    Returns:
        Ids, among them `tokens.timestamp` twice for each unit: its start and its end.
    """
    ids = [tokens.audio_start, *[tokens.audio_pad] * audio_tokens, tokens.audio_end]
    for unit in units:
        ids += encode("".join(written(word) for word in unit))
        ids += [tokens.timestamp] * 2
    return ids


def written(word: Word) -> str:
    """A word as the aligner knows it: its letters, digits and apostrophes, nothing between.

    Source: `clean_token` of qwen-asr 0.0.6.
    """
    return "".join(filter(_is_kept, unicodedata.normalize("NFC", word.text)))


def _is_kept(character: str) -> bool:
    return character == "'" or unicodedata.category(character)[0] in "LN"


def check_language(language: str) -> str:
    """The code without its region.

    Raises:
        InvalidRequestError: it is none of the aligner's languages; `invalid_language`.
    """
    code = language.partition("-")[0]
    if code not in LANGUAGES:
        raise InvalidRequestError(
            f"expected a language that the forced aligner knows ({', '.join(sorted(LANGUAGES))}); "
            f"got {language[:40]!r}",
            code=ErrorCode.INVALID_LANGUAGE,
        )
    return code


def units_of(words: Sequence[Word], language: str) -> list[Unit]:
    """What gets a pair of times: a word, but in Japanese a morpheme.

    Our words of Japanese are single kana and kanji; the model learnt it by morphemes. They come
    from janome (extra `japanese`), without which every character is asked for.
    """
    split = _japanese() if language == "ja" else None
    if split is None:
        return [(word,) for word in words]
    texts = [written(word) for word in words]
    return list(_between_borders(words, texts, _borders(split("".join(texts)))))


def load_japanese() -> None:
    """Load the morphemes now; the first Japanese clip would otherwise wait for them."""
    _japanese()


def _between_borders(
    words: Sequence[Word], texts: Sequence[str], borders: frozenset[int]
) -> Iterator[Unit]:
    """Runs of words that end where a morpheme ends."""
    unit: list[Word] = []
    end = 0
    for word, text in zip(words, texts, strict=True):
        unit.append(word)
        end += len(text)
        if end in borders:
            yield tuple(unit)
            unit = []
    if unit:
        yield tuple(unit)


def _borders(morphemes: Sequence[str]) -> frozenset[int]:
    """Where morphemes end, in characters of the text that they are."""
    ends: list[int] = []
    for morpheme in morphemes:
        ends.append(len(morpheme) + (ends[-1] if ends else 0))
    return frozenset(ends)


@cache
def _japanese() -> Callable[[str], list[str]] | None:
    """Load janome once; it takes 0.2 s."""
    try:
        from janome.tokenizer import Tokenizer
    except ImportError:
        _logger.warning(
            "Japanese is aligned by characters, not words: pip install 'voiceagent-tts[japanese]'"
        )
        return None
    tokenizer: Any = Tokenizer()
    return lambda text: list(tokenizer.tokenize(text, wakati=True))
