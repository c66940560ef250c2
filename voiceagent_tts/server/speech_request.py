"""The body of `POST /v1/audio/speech`, which batches and jobs have too."""

from dataclasses import replace
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AliasChoices,
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
)

from voiceagent_tts.audio.containers import ContainerFormat
from voiceagent_tts.errors import ErrorCode, InvalidRequestError
from voiceagent_tts.lexicon import check_entries
from voiceagent_tts.protocol.messages import LexiconEntries, Speed
from voiceagent_tts.seam.commands import SpeechOptions
from voiceagent_tts.synthesizer.options import ContextOptions

MODELS = ("qwen3-tts", "qwen-tts", "tts-1", "tts-1-hd", "gpt-4o-mini-tts")
"""Names of models, with aliases for programs that were written for other services."""


class VoiceId(BaseModel):
    """A voice in the form of newer OpenAI clients."""

    id: Annotated[str, StringConstraints(min_length=1, max_length=256)]


class SpeechRequest(BaseModel):
    """The body: OpenAI's fields, and `language`, `seed` and `leading_silence`."""

    model_config = ConfigDict(extra="ignore", strict=True)

    model: str = Field(
        "qwen3-tts",
        description="One of `qwen3-tts`, `tts-1`, `tts-1-hd`; may end with a language code: "
        "`tts-1-hd-zh`.",
    )
    input: str = Field(
        description="The text to speak; also as `text`.",
        validation_alias=AliasChoices("input", "text"),
    )
    voice: str | VoiceId | None = Field(
        None, description="Also as `speaker`.", validation_alias=AliasChoices("voice", "speaker")
    )
    instructions: Annotated[str, StringConstraints(max_length=4096)] | None = Field(
        None,
        description="How to speak; also as `instruct`.",
        validation_alias=AliasChoices("instructions", "instruct"),
    )
    response_format: ContainerFormat | None = Field(
        None, description="`mp3` by default; `pcm` if the request accepts `audio/L16`."
    )
    leading_silence: bool = Field(
        False, description="Whether the silence before the first sound is sent."
    )
    speed: Speed = 1.0
    stream: bool = Field(
        True,
        description="Whether audio is sent while it is generated. If false, the answer comes when "
        "all audio is there, with its length: WAV and FLAC files have an exact header.",
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
    language: str | None = None
    lexicon: LexiconEntries | None = Field(
        None,
        description="How written words are said: a respelling, IPA between slashes, or an object "
        "with `say`, `ipa` or both.",
    )
    markup: bool = Field(
        False, description='Whether tags in the text have an effect: `<break time="300ms"/>`.'
    )
    seed: Annotated[int, Field(ge=0, lt=2**53)] | None = None
    cache: bool = Field(
        True, description="Whether phrases that were spoken before may come from the cache."
    )

    @property
    def is_streamed(self) -> bool:
        """Whether audio is sent while it is generated."""
        return self.stream or self.stream_format != "audio"

    @property
    def is_batch(self) -> bool:
        """Whether the audio has no listener while it is generated."""
        return self.priority == "batch" or (self.priority is None and not self.is_streamed)

    @classmethod
    def parse(cls, fields: dict[str, Any], place: str) -> Self:
        """Check the fields of one of several requests.

        Args:
            fields: as in the body of one request.
            place: the request among the others, for the message.

        Raises:
            InvalidRequestError: a field is wrong; the message names it, without its value.
        """
        try:
            request = cls.model_validate(fields)
        except ValidationError as error:
            first = error.errors(include_input=False, include_url=False)[0]
            field = ".".join(str(part) for part in first["loc"])
            raise InvalidRequestError(
                f"{place}.{field}: {first['msg']}", code=ErrorCode.INVALID_PARAM
            ) from None
        request.options()
        return request

    def file_options(self) -> ContextOptions:
        """Options of a context that no listener waits for; raises as `options` does."""
        options = self.options()
        return replace(options, speech=replace(options.speech, is_batch=True), wants_words=False)

    def options(self) -> ContextOptions:
        """Options of the context for this request.

        Raises:
            InvalidRequestError: the model is unknown.
        """
        voice = self.voice.id if isinstance(self.voice, VoiceId) else self.voice
        return ContextOptions(
            voice=voice,
            language=self.language or language_of(self.model),
            speech=SpeechOptions(
                instruct=self.instructions,
                speed=self.speed,
                seed=self.seed,
                keeps_silence=self.leading_silence,
                is_batch=self.is_batch,
            ),
            max_lead_s=0,
            text_feeding="segment",  # the whole text is here
            wants_words=self.stream_format == "ndjson",
            lexicon=check_entries(self.lexicon or {}),
            has_markup=self.markup,
            cache="use" if self.cache else "off",
        )


def language_of(model: str) -> str | None:
    """The language at the end of a model's name: `zh` for `tts-1-hd-zh`.

    Raises:
        InvalidRequestError: there is no such model.
    """
    for name in sorted(MODELS, key=len, reverse=True):
        if model == name:
            return None
        if model.startswith(f"{name}-"):
            return model.removeprefix(f"{name}-")
    raise InvalidRequestError(
        f"model: expected one of {', '.join(MODELS)}, optionally with a language code "
        f"(tts-1-hd-zh), got {model[:64]!r}",
        code=ErrorCode.INVALID_PARAM,
    )
