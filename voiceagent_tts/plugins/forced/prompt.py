"""The forced aligner's prompt: the audio, then each word with two timestamp tokens.

    <|audio_start|> <|audio_pad|>… <|audio_end|> word <timestamp><timestamp> word <timestamp>…

There is no chat template around it: the model was trained on this alone, and three more tokens in
front would shift its times. Words are the client's own, so that each time belongs to a span of the
client's text.

Source: `encode_timestamp` of qwen-asr 0.0.6; the chat template of Qwen3-ForcedAligner-0.6B-hf,
which renders exactly this.
"""

import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from voiceagent_tts.core import SAMPLE_RATE_HZ, Word
from voiceagent_tts.errors import ErrorCode, InvalidRequestError
from voiceagent_tts.text.morphemes import japanese_tokenizer

LANGUAGES = frozenset(("zh", "yue", "en", "de", "es", "fr", "it", "ja", "ko", "pt", "ru"))
"""Codes of the languages that Qwen3-ForcedAligner-0.6B was trained on."""

LONGEST_SAMPLES = 300 * SAMPLE_RATE_HZ
"""Longest audio that the model was trained on (arXiv 2601.21337, section 3)."""

Unit = tuple[Word, ...]
"""Words that share one pair of times."""


@dataclass(frozen=True, slots=True)
class Clip:
    """Audio and the words spoken in it.

    Attributes:
        words: in order. The times of a word depend on the audio and on the words up to it, so
            words that are not spoken yet do not change the times of those that are.
        pcm: PCM16, mono, 24 kHz; at most 300 s, which may end before the last word.
        language: code of one of the aligner's languages, with or without a region.
    """

    words: tuple[Word, ...]
    pcm: bytes
    language: str


@dataclass(frozen=True, slots=True)
class PromptTokens:
    """Token ids of the control tokens."""

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
    """Return the token ids of the prompt of one clip, which has so many audio tokens.

    `tokens.timestamp` comes twice after each unit: for its start and its end. `encode` turns the
    text of a word into ids, without control tokens.
    """
    ids = [tokens.audio_start, *[tokens.audio_pad] * audio_tokens, tokens.audio_end]
    for unit in units:
        ids += encode("".join(aligner_text(word) for word in unit))
        ids += [tokens.timestamp] * 2
    return ids


def aligner_text(word: Word) -> str:
    """A word as the aligner reads it: its letters, digits and apostrophes.

    Source: `clean_token` of qwen-asr 0.0.6.
    """
    return "".join(filter(_is_kept, unicodedata.normalize("NFC", word.text)))


def _is_kept(character: str) -> bool:
    return character == "'" or unicodedata.category(character)[0] in "LN"


def check_language(language: str) -> str:
    """The code of a language without its region.

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


def split_units(words: Sequence[Word], language: str) -> list[Unit]:
    """Group `words` into units: one word each, but in Japanese one morpheme each.

    Our Japanese words are single kana and kanji, whereas the model was trained on morphemes.
    Without janome every Japanese character is a unit.
    """
    tokenizer = japanese_tokenizer() if language == "ja" else None
    if tokenizer is None:
        return [(word,) for word in words]
    texts = [aligner_text(word) for word in words]
    morphemes: list[str] = list(tokenizer.tokenize("".join(texts), wakati=True))
    return list(_group_words(words, texts, frozenset(accumulate(map(len, morphemes)))))


def _group_words(
    words: Sequence[Word], texts: Sequence[str], borders: frozenset[int]
) -> Iterator[Unit]:
    """Yield runs of words that end where a morpheme ends, in characters of the joined `texts`."""
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
