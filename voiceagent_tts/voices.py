"""Map voice names to the workers that speak them.

A name that no voice has is an `InvalidRequestError`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches

from voiceagent_tts.errors import ErrorCode, InvalidRequestError
from voiceagent_tts.seam.events import Capabilities, Gender, VoiceDetails
from voiceagent_tts.text.language import nearest_accent, normalize_language

DESIGNED_VOICE = "designed"
"""Name of the only voice of a VoiceDesign model; `instruct` describes who speaks."""
_NAMES_IN_A_MESSAGE = 10
_NEAR_NAMES = 5

_NAMES_BY_GENDER: dict[Gender | None, str] = {
    None: "default",
    "female": "alloy coral fable nova sage shimmer marin vivian serena ono_anna sohee",
    "male": "ash ballad echo onyx verse cedar uncle_fu dylan eric ryan aiden",
}
ALIASES: dict[str, Gender | None] = {
    name: gender for gender, names in _NAMES_BY_GENDER.items() for name in names.split()
}
"""Names that every server accepts: `default`, and the voices of OpenAI's API and of Qwen3-TTS with
their gender."""


@dataclass(frozen=True, slots=True)
class Voice:
    """A voice that a user can choose, and the worker that speaks it."""

    name: str  # as its user knows it
    worker: str
    stored: str = field(default="", compare=False)
    """Name of a clone's file; empty for a voice of the worker's own."""
    version: tuple[int, ...] = field(default=(), compare=False)
    """`VoiceFolder.version` of a clone when it was chosen; empty for other voices."""

    @property
    def engine_name(self) -> str:
        """The name by which the worker knows it."""
        return self.stored or self.name

    @property
    def recording(self) -> str:
        """A name for what the voice sounds like now, new whenever it is replaced."""
        return f"{self.stored} {self.version}" if self.stored else self.name


class VoiceBook:
    """Finds the worker for a voice name. If two workers offer a name, the first one gets it."""

    read_clones: Callable[[], object] | None = None
    """Reads the names of clones, which takes long, where the first one is the default voice."""

    def __init__(self, workers: Mapping[str, Capabilities]) -> None:
        self._voices: dict[str, Voice] = {}
        self._monolingual = {n for n, each in workers.items() if each.has_monolingual_voices}
        self._describing = {name for name, each in workers.items() if each.needs_instruct}
        self._languages = {name: each.languages for name, each in workers.items()}
        self._details: dict[str, VoiceDetails] = {}
        for worker, capabilities in workers.items():
            for name in capabilities.voices:
                self._voices.setdefault(name.casefold(), Voice(name, worker))
            self._details |= {each.name: each for each in capabilities.voice_details}

    def seen_by(self, owner: str | None) -> "VoiceBook":
        """The book of a caller, who may know of some clones only; None for all of them."""
        return self

    def is_built_in(self, name: str) -> bool:
        """Whether a name in lower case is that of a worker's own voice, or stands for one."""
        return name in self._voices or name in ALIASES

    def __contains__(self, name: str) -> bool:
        """Whether a voice has this name, in any letter case; reads no names of other clones."""
        return name.casefold() in self._voices

    def names(self) -> list[str]:
        """Return the names of all voices, the default first; without aliases.

        Voices that are made from a description come last: a client that names no voice, or an
        alias, sends no description.
        """
        return list(self._ordered(()))

    def _ordered(self, clones: Iterable[str]) -> Iterator[str]:
        yield from self._ready_names()
        yield from (name for name in clones if name not in self._voices)
        yield from (each.name for each in self._voices.values() if each.worker in self._describing)

    def _ready_names(self) -> Iterator[str]:
        for voice in self._voices.values():
            if voice.worker not in self._describing and not self._is_alias(voice.name.casefold()):
                yield voice.name

    def for_language(self, name: str | None, language: str) -> Voice:
        """Return the voice `name`, or in its place one that speaks `language`.

        A client that names a voice of its own gets it; one that names none, or one of `ALIASES`,
        has left the choice.
        """
        voice = self.resolve(name)
        if not leaves_choice(name):
            return voice
        if self._speaks(voice.worker, language):
            return self._sibling(voice, language)
        others = (worker for worker in self._languages if self._speaks(worker, language))
        return next((self._voice_of(worker, name, language) for worker in others), voice)

    def languages(self, voice: Voice, capabilities: Capabilities) -> tuple[str, ...]:
        """Return the codes that a voice speaks; `capabilities` are those of its worker."""
        made_for = self._made_for(voice)
        if not (capabilities.has_monolingual_voices and made_for):
            return capabilities.languages
        own = (made_for, made_for.partition("-")[0])
        return tuple(code for code in capabilities.languages if code in own)

    def _speaks(self, worker: str, language: str) -> bool:
        return nearest_accent(language, self._languages[worker])[0] is not None

    def _voice_of(self, worker: str, name: str | None, language: str) -> Voice:
        """A worker's voice of this name, else one made for the language, else its first one."""
        voices = [voice for voice in self._voices.values() if voice.worker == worker]
        named = [voice for voice in voices if voice.name.casefold() == (name or "").casefold()]
        fits_all = [voice for voice in voices if not self._made_for(voice)]
        if named or fits_all:
            return (named or fits_all)[0]
        gender = ALIASES.get((name or "").casefold())
        return min(voices, key=lambda each: self._mismatch(each, language, gender))

    def _sibling(self, voice: Voice, language: str) -> Voice:
        """`voice`, or one of its worker's that is made for the language, if that one is not."""
        if voice.worker not in self._monolingual:
            return voice
        others = [each for each in self._voices.values() if each.worker == voice.worker]
        gender = self.details_of(voice).gender
        return min([voice, *others], key=lambda each: self._mismatch(each, language, gender))

    def _mismatch(self, voice: Voice, language: str, gender: Gender | None) -> tuple[bool, ...]:
        made_for = self._made_for(voice)
        code = language.partition("-")[0]
        is_other_accent = language not in (made_for, code)
        is_other_gender = gender not in (None, self.details_of(voice).gender)
        return made_for.partition("-")[0] != code, is_other_accent, is_other_gender

    def _made_for(self, voice: Voice) -> str:
        """Code of the language that a voice is made for; empty for a voice of any."""
        return self.details_of(voice).language or ""

    def stand_in(self, alias: str) -> Voice:
        """The default voice for `default`, else one of its worker's with the alias's gender."""
        default = self._default()
        gender = ALIASES[alias]
        of_worker = [each for each in self._voices.values() if each.worker == default.worker]
        matching = [each for each in of_worker if self.details_of(each).gender == gender]
        if gender is None or not matching:
            return default
        siblings = _NAMES_BY_GENDER[gender].split()
        return matching[siblings.index(alias) % len(matching)]

    def _is_alias(self, name: str) -> bool:
        """Whether a name of `ALIASES` stands for a voice of the default voice's worker.

        That worker may have a voice of this name, and another one a speaker. But a client that
        knows the name from other servers does not want a named timbre of another worker.
        """
        if name not in ALIASES:
            return False
        if (known := self._voices.get(name)) is None:
            return True
        is_default = known.worker == next(iter(self._voices.values())).worker
        return not is_default and self.details_of(known).kind == "preset"

    def details_of(self, voice: Voice) -> VoiceDetails:
        """What its worker knows of a voice that is not a clone."""
        return self._details.get(voice.name) or VoiceDetails(voice.name, "speaker")

    def resolve(self, name: str | None) -> Voice:
        """Return the voice `name`, in any letter case; the default voice for None.

        A name of `ALIASES` that no voice has stands for one of the voices.
        `base+variant` (espeak's notation) is a voice if both parts are voices.

        Raises:
            InvalidRequestError: with code `invalid_voice` and the names that exist.
        """
        if name is None:
            return self._default()
        base, plus, variant = name.casefold().partition("+")
        known = self._voices.get(base)
        if base in ALIASES and not plus and self._is_alias(base):
            return self.stand_in(base)
        if known is None or (plus and variant not in self._voices):
            raise InvalidRequestError(
                f"expected the name of a voice, got {name[:64]!r}; {self._hint(name)}",
                code=ErrorCode.INVALID_VOICE,
            )
        return Voice(name, known.worker) if plus else known

    def _hint(self, name: str) -> str:
        return name_hint(name, [voice.name for voice in self._voices.values()], ALIASES)

    def _first_name(self) -> str | None:
        return next(self._ordered(()), None)

    def _default(self) -> Voice:
        if (name := self._first_name()) is None:
            raise InvalidRequestError(f"there is {_NO_VOICE}", code=ErrorCode.INVALID_VOICE)
        return self.resolve(name)


def leaves_choice(name: str | None) -> bool:
    """Whether a client that sends this name of a voice has named none of its own."""
    return name is None or name.casefold() in ALIASES


def has_own_language(voice: Voice, capabilities: Capabilities) -> bool:
    """Whether a voice belongs to one language, so that its text is not checked for others."""
    name = voice.name.partition("+")[0]  # of espeak's "en-gb+f3"
    return name in [each.name for each in capabilities.voice_details if each.kind == "language"]


def spoken_language(name: str, voice: Voice, languages: Sequence[str]) -> tuple[str, str]:
    """Return the code that a voice speaks for a language, and a sentence if the accent differs.

    Raises:
        InvalidRequestError: with code `invalid_language`, if it is none of its `languages`.
    """
    wanted = normalize_language(name)
    language, is_wanted = nearest_accent(wanted, languages)
    known = ", ".join(languages)
    if language is None:
        raise InvalidRequestError(
            f"expected a language of voice {voice.name!r} ({known}), got {wanted!r}",
            code=ErrorCode.INVALID_LANGUAGE,
        )
    return language, "" if is_wanted else (
        f"voice {voice.name!r} has no accent of its own for {wanted} and speaks {language}; its "
        f"languages are {known}"
    )


_NO_VOICE = "no voice yet: `voiceagent-tts voices add NAME ref.wav` clones one"


def name_hint(wanted: str, names: Iterable[str], aliases: Iterable[str] = ()) -> str:
    """Say which names a client may have meant: all if they are few, else those alike, or usual."""
    known = list(names)
    if not known:
        return f"there is {_NO_VOICE}"
    if len(known) <= _NAMES_IN_A_MESSAGE:
        return f"known are {', '.join(known)}"
    spelling = {name.casefold(): name for name in (*known, *aliases)}
    near = get_close_matches(wanted[:64].casefold(), spelling, _NEAR_NAMES, cutoff=0.7)
    tried = [spelling[each] for each in near] or list(dict.fromkeys((known[0], *aliases)))[:3]
    return f"try {', '.join(tried)}; `voiceagent-tts voices list` shows all {len(spelling)}"
