"""Voice names to espeak voices: the espeak voice, variant and pitch for a name and a language.

A voice name is a preset (`default`, `alloy`), an espeak variant (`f3`), a language voice (`de`), or
a language voice with a preset or variant (`en-gb+f3`). If the name has no language voice, the
language of the text selects it. Names are not case-sensitive.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from voiceagent_tts.errors import ErrorCode, InvalidRequestError
from voiceagent_tts.espeak.library import DEFAULT_PITCH, InstalledVariant, InstalledVoice
from voiceagent_tts.seam.events import Gender, VoiceDetails
from voiceagent_tts.voices import ALIASES, name_hint

LANGUAGES = {
    "zh": "cmn", "zh-cn": "cmn", "zh-hk": "yue", "cmn": "cmn", "yue": "yue", "en": "en-us",
    "en-us": "en-us", "en-gb": "en-gb", "en-029": "en-029", "ja": "ja", "ko": "ko", "de": "de",
    "fr": "fr-fr", "fr-fr": "fr-fr", "fr-be": "fr-be", "fr-ch": "fr-ch", "ru": "ru", "pt": "pt",
    "pt-pt": "pt", "pt-br": "pt-br", "es": "es", "es-es": "es", "es-419": "es-419",
    "es-mx": "es-419", "it": "it", "nl": "nl",
}  # fmt: skip
"""espeak voice code for the language of a text; the server finds the nearest for other regions."""
OTHER_LANGUAGES = ("hi",)
"""Languages of other engines; the embedded voice speaks them only where a client names a voice."""


@dataclass(frozen=True, slots=True)
class Preset:
    """A named timbre: an espeak variant ("" for none) and a pitch from 0 to 99."""

    variant: str
    pitch: int = DEFAULT_PITCH


PRESETS = {
    "default": Preset(""), "alloy": Preset("f3", 34), "ash": Preset("adam"),
    "ballad": Preset("marcelo", 70), "coral": Preset("Annie"), "echo": Preset("pablo", 54),
    "fable": Preset("m5", 75), "nova": Preset("f2", 58), "onyx": Preset("m8", 35),
    "sage": Preset("f4", 40), "shimmer": Preset("f5", 72), "verse": Preset("Michael", 58),
    "marin": Preset("linda", 40), "cedar": Preset("m1", 38),
}  # fmt: skip
"""`default`, and the voice names of OpenAI's API, each with a timbre of its own."""


_UNSAFE_LANGUAGES = {"si"}
"""Languages that are not offered: Sinhala writes beyond a buffer where a text has other letters."""


@dataclass(frozen=True, slots=True)
class EspeakVoice:
    """A voice as espeak-ng takes it.

    Attributes:
        identifier: espeak's identifier, with `+variant` if there is one.
        reads_kana_only: whether kanji must be replaced by their readings.
    """

    identifier: str
    pitch: int
    reads_kana_only: bool = False

    @property
    def language(self) -> str:
        """Code of its language in small letters, with a region where espeak names one."""
        return self.identifier.rpartition("/")[2].partition("+")[0].lower()

    @property
    def is_english(self) -> bool:
        """Whether its language is English, of any region."""
        return self.language.partition("-")[0] == "en"


class VoiceCatalogue:
    """The voices of one espeak installation, and the variants whose names may follow `+`."""

    languages = tuple(LANGUAGES)

    def __init__(
        self, installed: Iterable[InstalledVoice], variants: Iterable[InstalledVariant]
    ) -> None:
        self._identifiers: dict[str, str] = {}
        for voice in installed:  # the first voice of a language is its main one
            if voice.language not in _UNSAFE_LANGUAGES:
                self._identifiers.setdefault(voice.language, voice.identifier)
        for language, code in LANGUAGES.items():
            self._identifiers.setdefault(language, self._identifiers[code])
        self._genders: dict[str, Gender | None] = {"": None}
        self._genders.update((each.name, each.gender) for each in variants)
        own = {name.lower(): Preset(name) for name in self._genders if name}
        self._presets = own | PRESETS

    @property
    def names(self) -> tuple[str, ...]:
        """Presets, variants and language voices; `+` joins a language voice and a variant."""
        variants = sorted(self._presets.keys() - PRESETS.keys())
        return (*PRESETS, *variants, *sorted(self._identifiers))

    @property
    def details(self) -> tuple[VoiceDetails, ...]:
        """Kind, language and gender of each voice."""
        timbres = [
            VoiceDetails(
                name,
                "preset" if name in PRESETS else "variant",
                gender=self._genders[preset.variant] or ALIASES.get(name),
            )
            for name, preset in self._presets.items()
        ]
        return (*timbres, *(VoiceDetails(code, "language", code) for code in self._identifiers))

    def resolve(self, name: str, language: str) -> EspeakVoice:
        """Find the voice called `name` for a text in `language`.

        Raises:
            InvalidRequestError: unknown voice (INVALID_VOICE) or language (INVALID_LANGUAGE); the
                message lists the known ones.
        """
        wanted = name.lower()
        if wanted in self._presets:
            identifier, preset = self._for_text(language), self._presets[wanted]
        else:
            speaker, plus, variant = wanted.partition("+")
            identifier = self._identifiers.get(speaker)
            preset = self._presets.get(variant if plus else "default")
        if identifier is None or preset is None:
            raise InvalidRequestError(
                f"expected the name of a voice, or of a language voice and a variant joined by "
                f"'+', got {name!r}; {name_hint(name, self.names)}",
                code=ErrorCode.INVALID_VOICE,
            )
        suffix = f"+{preset.variant}" if preset.variant else ""
        is_japanese = identifier == self._identifiers["ja"]
        return EspeakVoice(identifier + suffix, preset.pitch, reads_kana_only=is_japanese)

    def _for_text(self, language: str) -> str:
        code = language.lower().replace("_", "-")
        for candidate in (code, code.partition("-")[0]):
            if candidate in LANGUAGES:
                return self._identifiers[LANGUAGES[candidate]]
        raise InvalidRequestError(
            f"expected a language, got {language!r}; known are {', '.join(LANGUAGES)}",
            code=ErrorCode.INVALID_LANGUAGE,
        )
