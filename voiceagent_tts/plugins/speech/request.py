"""The body of `POST /v1/audio/speech`, shared by batches and jobs."""

import re
from collections.abc import Container
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AliasChoices,
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    StringConstraints,
    ValidationError,
    model_validator,
)

from voiceagent_tts.core import SAMPLE_RATE_HZ
from voiceagent_tts.errors import ErrorCode, InvalidRequestError
from voiceagent_tts.mistakes import mistake_in
from voiceagent_tts.plugins.speech.containers import ContainerFormat
from voiceagent_tts.plugins.speech.models import Task, language_of, task_of
from voiceagent_tts.protocol.messages import Name, SampleRate, SpeechFields
from voiceagent_tts.server.admission import options_of
from voiceagent_tts.server.state import ServerState
from voiceagent_tts.synthesizer.options import ContextOptions
from voiceagent_tts.voices import DESIGNED_VOICE

_VOICE_NAMES = ("voice", "speaker", "voice_id", "speaker_id", "voice_name", "speaker_name")
_OF_A_VOICE = re.compile(
    r"voice|speaker|timbre|clon[ei]|prompt|embedding|(^|_)(ref(erence)?s?|spk|audio|wav)(_|$)"
)
_OF_A_MANNER = re.compile(r"_(emotion|encoding|format|pitch|quality|rate|settings|speed|volume)$")
_KOKORO = "a:en-us b:en-gb e:es f:fr h:hi i:it j:ja p:pt-br z:zh"
_KOKORO_LANGUAGES = {each[0]: each[2:] for each in _KOKORO.split()}


def _voice_of_others(field: str, value: object) -> str | None:
    """`voice` if a field that is not one of ours decides, elsewhere, whose voice speaks."""
    if value in _BLANK or value is False:
        return None
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|\W+", "_", field).lower()
    return "voice" if _OF_A_VOICE.search(words) and not _OF_A_MANNER.search(words) else None


_BLANK: tuple[object, ...] = (None, "", [], {})
_MOST_NAMES, _MAX_NAME_CHARS = 256, 64
"""Of the fields of a body: each unknown name is searched for words of a voice."""
_TEXTS = ("input", "text")
"""Fields that may be empty."""
_OPUS_RATES = (8000, 16000, 24000, 48000)
"""Source: RFC 6716, 2."""


@dataclass(frozen=True, slots=True)
class Served:
    """The models and voices that requests may name on this server.

    Args:
        models: names of its models.
        clones: names of the cloned voices visible to the caller.
    """

    models: tuple[str, ...] = ()
    clones: Container[str] = field(default=())

    @classmethod
    def to(cls, state: ServerState, key_id: str | None) -> Self:
        """What requests of a key may name."""
        return cls(state.models, state.clones_of(key_id))


class VoiceId(BaseModel):
    """A voice in the form of newer OpenAI clients."""

    id: Name


class SpeechRequest(SpeechFields):
    """The body: OpenAI's fields, `language`, and those of `SpeechFields`."""

    model_config = ConfigDict(extra="ignore", strict=True)

    model: str = Field(
        "qwen3-tts",
        max_length=256,
        description="A name of `GET /v1/models`; may end with a language code: `tts-1-hd-zh`.",
    )
    input: str = Field(
        description="The text to speak; also as `text`.",
        validation_alias=AliasChoices("input", "text"),
    )
    voice: Name | VoiceId | None = Field(
        None,
        description="Also as `speaker`, and either with `_id` or `_name`.",
        validation_alias=AliasChoices(*_VOICE_NAMES),
    )
    task_type: Task | None = Field(
        None,
        description="Where the voice comes from: `CustomVoice`, `VoiceDesign` for one that is made "
        "from `instructions`, `Base` for a clone that `voice` names.",
    )
    instructions: Annotated[str, StringConstraints(max_length=4096)] | None = Field(
        None,
        description="How to speak; also as `instruct`.",
        validation_alias=AliasChoices("instructions", "instruct"),
    )
    response_format: ContainerFormat | None = Field(
        None, description="`mp3` by default; `pcm` if the request accepts `audio/L16`."
    )
    stream: bool = Field(
        True,
        description="Whether audio is sent while it is generated. If false, the answer is sent "
        "when it is complete, with its length: WAV and FLAC files have an exact header.",
    )
    stream_format: Literal["audio", "sse", "ndjson"] = Field(
        "audio",
        description="`audio`: the body is the file. `sse`: server-sent events with OpenAI's names. "
        "`ndjson`: one JSON object in each line, with the words and their times.",
    )
    priority: Literal["live", "batch"] | None = Field(
        None,
        description="`live` for audio that is played on arrival, `batch` for files, which never "
        "delay a listener. By default `live`, and `batch` if `stream` is false.",
    )
    language: Name | None = Field(
        None,
        description="Also as `language_type`, and as Kokoro's `lang_code`.",
        validation_alias=AliasChoices("language", "language_type", "lang_code"),
    )
    sample_rate: SampleRate = Field(SAMPLE_RATE_HZ, description="Sample rate of the audio, in Hz.")
    lexicon: dict[str, JsonValue] | None = Field(
        None, description=SpeechFields.model_fields["lexicon"].description
    )
    """Not checked here: `options` checks it, and twice would be long for its largest size."""

    @classmethod
    @cache
    def _field_of(cls) -> dict[str, str]:
        """The names in a body, each with its field."""
        fields = cls.model_fields.items()
        choices = {name: getattr(each.validation_alias, "choices", ()) for name, each in fields}
        return {each: name for name in choices for each in (name, *choices[name])}

    @classmethod
    def meant(cls, given: dict[str, Any]) -> dict[str, str]:
        """The names in a body that mean something, each with its field; others are ignored.

        Raises:
            InvalidRequestError: there are too many names, or one is too long.
        """
        if len(given) > _MOST_NAMES or max(map(len, given), default=0) > _MAX_NAME_CHARS:
            raise InvalidRequestError(
                f"the body: expected at most {_MOST_NAMES} fields, with names of at most "
                f"{_MAX_NAME_CHARS} characters, got more",
                code=ErrorCode.INVALID_PARAM,
            )
        fields = cls._field_of()
        meant = {name: fields.get(name) or _voice_of_others(name, given[name]) for name in given}
        return {name: field for name, field in meant.items() if field}

    @model_validator(mode="before")
    @classmethod
    def _without_blanks(cls, given: Any) -> Any:
        """Leave out fields that are null or empty: many clients send all fields that they know."""
        if not isinstance(given, dict):
            return given
        fields = {k: given[k] for k in cls.meant(given) if k in _TEXTS or given[k] not in _BLANK}
        cls._check_one_voice(fields)
        return fields

    @classmethod
    def _check_one_voice(cls, fields: dict[str, object]) -> None:
        if others := sorted(fields.keys() - cls._field_of()):
            raise InvalidRequestError(
                f"{others[0][:64]}: expected the name of a voice as `voice`; add a recording with "
                "POST /v1/audio/voices, and send the name that you gave it",
                code=ErrorCode.NOT_SUPPORTED,
            )
        first, *others = [name for name in _VOICE_NAMES if name in fields] or [""]
        for name in others:
            if fields[name] != fields[first]:
                problem = f"{name}: expected the same voice as in `{first}`, or only one of the two"
                raise InvalidRequestError(problem, code=ErrorCode.INVALID_VOICE)

    @property
    def is_streamed(self) -> bool:
        """Whether audio is sent while it is generated."""
        return self.stream or self.stream_format != "audio"

    @property
    def is_batch(self) -> bool:
        """Whether the audio has no listener while it is generated."""
        return self.priority == "batch" or (self.priority is None and not self.is_streamed)

    @classmethod
    def parse(cls, fields: dict[str, Any], place: str, served: Served) -> Self:
        """Check the fields of one of several requests.

        Args:
            fields: as in the body of one request.
            place: the request among the others, for the message.
            served: what the request may name.

        Raises:
            InvalidRequestError: a field is wrong; the message names it, without its value.
        """
        try:
            request = cls.model_validate(fields)
            request.options(served)
        except ValidationError as error:
            path, mistake = mistake_in(error)
            sentence = f"{place}.{path}: {mistake}"
            raise InvalidRequestError(sentence, code=ErrorCode.INVALID_PARAM) from None
        except InvalidRequestError as error:
            raise InvalidRequestError(f"{place}.{error.message}", code=error.code) from None
        return request

    def file_options(self, served: Served) -> ContextOptions:
        """As `options`, for a context without a listener."""
        options = self.options(served)
        return replace(options, speech=replace(options.speech, is_batch=True), wants_words=False)

    def options(self, served: Served) -> ContextOptions:
        """Options of the context for this request."""
        language = language_of(self.model, served.models)
        options = self._general_options
        if self.response_format == "opus" and self.sample_rate not in _OPUS_RATES:
            raise InvalidRequestError(
                f"sample_rate: expected one of {', '.join(map(str, _OPUS_RATES))} for opus, got "
                f"{self.sample_rate}; choose one of them, or another response_format",
                code=ErrorCode.INVALID_PARAM,
            )
        return replace(
            options,
            voice=self._voice(served),
            language=_KOKORO_LANGUAGES.get(self.language or "", self.language) or language,
            speech=replace(options.speech, instruct=self.instructions, is_batch=self.is_batch),
            max_lead_s=0,
            text_feeding="segment",  # the whole text is here
            wants_words=self.stream_format == "ndjson",
        )

    @cached_property
    def _general_options(self) -> ContextOptions:
        """Options that all routes share, made once: a lexicon takes a millisecond."""
        return options_of(self)

    def _voice(self, served: Served) -> str | None:
        name = self.voice.id if isinstance(self.voice, VoiceId) else self.voice
        of_model = None if self.model in served.models else task_of(self.model)
        match self.task_type or of_model:
            case "VoiceDesign":
                if name not in (None, DESIGNED_VOICE):
                    raise InvalidRequestError(
                        f"voice: expected {DESIGNED_VOICE!r} or none for the task VoiceDesign, got "
                        f"{name[:64]!r}",
                        code=ErrorCode.INVALID_VOICE,
                    )
                return DESIGNED_VOICE
            case "Base":
                if name is None or name not in served.clones:
                    raise InvalidRequestError(
                        "voice: expected a cloned voice for the task Base; add a recording with "
                        "POST /v1/audio/voices, and send the name that you gave it",
                        code=ErrorCode.INVALID_VOICE,
                    )
        return name
