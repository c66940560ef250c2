"""Names to voices: which espeak voice, variant and pitch speak for a voice name and a language.

A voice name is a preset (`default`, `alloy`), an espeak variant (`f3`), a language voice (`de`), or
a language voice with one of the former (`en-gb+f3`). Without a language voice the language of the
text chooses it. Names are compared without regard to case. This module knows no library call; it
is given what is installed.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from voiceagent_tts.errors import ErrorCode, InvalidRequestError
from voiceagent_tts.espeak.library import DEFAULT_PITCH, InstalledVoice

LANGUAGES = {
    "zh": "cmn",
    "zh-cn": "cmn",
    "zh-tw": "cmn",
    "zh-hk": "yue",
    "cmn": "cmn",
    "yue": "yue",
    "en": "en-us",
    "en-us": "en-us",
    "en-gb": "en-gb",
    "ja": "ja",
    "ko": "ko",
    "de": "de",
    "fr": "fr-fr",
    "fr-fr": "fr-fr",
    "fr-be": "fr-be",
    "fr-ch": "fr-ch",
    "ru": "ru",
    "pt": "pt",
    "pt-pt": "pt",
    "pt-br": "pt-br",
    "es": "es",
    "es-es": "es",
    "es-419": "es-419",
    "es-mx": "es-419",
    "it": "it",
}
"""Language of a text -> code of the espeak voice. Other regions speak as their language does."""


@dataclass(frozen=True, slots=True)
class Preset:
    """A named timbre: an espeak variant ("" for none) and a pitch from 0 to 99."""

    variant: str
    pitch: int = DEFAULT_PITCH


PRESETS = {
    "default": Preset(""),
    "alloy": Preset("f3", 34),
    "ash": Preset("adam"),
    "ballad": Preset("marcelo", 70),
    "coral": Preset("Annie"),
    "echo": Preset("pablo", 54),
    "fable": Preset("m5", 75),
    "nova": Preset("f2", 58),
    "onyx": Preset("m8", 35),
    "sage": Preset("f4", 40),
    "shimmer": Preset("f5", 72),
    "verse": Preset("Michael", 58),
    "marin": Preset("linda", 40),
    "cedar": Preset("m1", 38),
}
"""`default`, and the names that clients of OpenAI's API send, each with a sound of its own."""


@dataclass(frozen=True, slots=True)
class EspeakVoice:
    """What the library needs to know.

    Attributes:
        identifier: espeak's own, with `+variant`.
        pitch: 0 to 99.
        reads_kana_only: whether kanji must be replaced by their readings.
    """

    identifier: str
    pitch: int
    reads_kana_only: bool = False


class VoiceCatalogue:
    """The voices of one espeak installation.

    Args:
        installed: its language voices.
        variants: the names that may follow `+`.
    """

    def __init__(self, installed: Iterable[InstalledVoice], variants: Iterable[str]) -> None:
        self._identifiers: dict[str, str] = {}
        for voice in installed:  # a language's first voice is its main one
            self._identifiers.setdefault(voice.language, voice.identifier)
        for language, code in LANGUAGES.items():
            self._identifiers.setdefault(language, self._identifiers[code])
        self._presets = {variant.lower(): Preset(variant) for variant in variants} | PRESETS

    @property
    def languages(self) -> tuple[str, ...]:
        """Codes of the languages that a text may have."""
        return tuple(LANGUAGES)

    @property
    def names(self) -> tuple[str, ...]:
        """Presets, variants and language voices; a language voice and a variant join with `+`."""
        variants = sorted(self._presets.keys() - PRESETS.keys())
        return (*PRESETS, *variants, *sorted(self._identifiers))

    def resolve(self, name: str, language: str) -> EspeakVoice:
        """Find the voice called `name` for a text in `language`.

        Raises:
            InvalidRequestError: INVALID_VOICE or INVALID_LANGUAGE; the message lists the known.
        """
        wanted = name.lower()
        if wanted in self._presets:
            identifier, preset = self._for_text(language), self._presets[wanted]
        else:
            speaker, plus, variant = wanted.partition("+")
            identifier = self._identifiers.get(speaker)
            preset = self._presets.get(variant if plus else "default")
        if identifier is None or preset is None:
            raise self._unknown_voice(name)
        suffix = f"+{preset.variant}" if preset.variant else ""
        is_japanese = identifier == self._identifiers["ja"]
        return EspeakVoice(identifier + suffix, preset.pitch, reads_kana_only=is_japanese)

    def _for_text(self, language: str) -> str:
        code = language.lower().replace("_", "-")
        for candidate in (code, code.partition("-")[0]):
            if candidate in LANGUAGES:
                return self._identifiers[LANGUAGES[candidate]]
        raise InvalidRequestError(
            f"language {language!r} is not known; known are {', '.join(LANGUAGES)}",
            code=ErrorCode.INVALID_LANGUAGE,
        )

    def _unknown_voice(self, name: str) -> InvalidRequestError:
        return InvalidRequestError(
            f"voice {name!r} is not known; a voice is a name, or a language voice and a variant "
            f"joined by '+', of {', '.join(self.names)}",
            code=ErrorCode.INVALID_VOICE,
        )
