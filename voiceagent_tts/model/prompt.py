"""A voice, a language and a text become a prompt: two aligned columns of ids, text and codec.

Every position of a prompt is the sum of a text embedding and, mostly, a codec embedding. Two
layouts exist, as the model was trained on both. In the streaming layout the prompt holds the first
text token, and each frame takes one more: the text may still be arriving. In the other the prompt
holds the whole text. Both end where the model continues with codes. This module knows ids, not
weights; a cloned voice's reference frames and speaker embedding are carried along.

Source: qwen-tts 0.1.1, `Qwen3TTSForConditionalGeneration.generate` and `generate_icl_prompt`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from voiceagent_tts.errors import ErrorCode, InvalidRequestError
from voiceagent_tts.model.config import ModelConfig, TalkerConfig
from voiceagent_tts.model.tokenizer import ROLE_TOKENS, Tokenizer

NO_CODEC = -1
"""In a codec column: nothing is added to the text embedding here."""
SPEAKER = -2
"""In a codec column: the speaker embedding is added here."""

LANGUAGE_CODES = {
    "zh": "chinese",
    "en": "english",
    "ja": "japanese",
    "ko": "korean",
    "de": "german",
    "fr": "french",
    "ru": "russian",
    "pt": "portuguese",
    "es": "spanish",
    "it": "italian",
}
"""ISO 639-1 code -> name of a language in `codec_language_id`."""


@dataclass(frozen=True, slots=True)
class Preset:
    """A speaker that a CustomVoice model has learnt; any case."""

    speaker: str


@dataclass(frozen=True, slots=True)
class Designed:
    """A voice that a VoiceDesign model makes from the description in `instruct`."""


@dataclass(frozen=True, slots=True, eq=False)
class Cloned:
    """A voice of a Base model, from reference audio.

    Attributes:
        speaker_embedding: [D] float32, by the speaker encoder of the same checkpoint.
        reference_codes: [F, K] int64, the reference audio; None clones by the embedding alone.
        reference_text: what the reference audio says; given with `reference_codes`.
    """

    speaker_embedding: Tensor
    reference_codes: Tensor | None = None
    reference_text: str = ""

    def to_bytes(self) -> bytes:
        """As safetensors, to be stored."""
        tensors = {"speaker_embedding": self.speaker_embedding.float().cpu().contiguous()}
        if self.reference_codes is not None:
            tensors["reference_codes"] = self.reference_codes.to("cpu", torch.int32).contiguous()
            tensors["reference_text"] = torch.tensor(list(self.reference_text.encode()))
        return save(tensors)

    @classmethod
    def from_bytes(cls, stored: bytes) -> "Cloned":
        """Read what `to_bytes` made.

        Raises:
            InvalidRequestError: not a clone prompt.
        """
        try:
            tensors = load(stored)
            embedding, codes = tensors["speaker_embedding"], tensors.get("reference_codes")
            text = bytes(tensors["reference_text"].tolist()).decode() if codes is not None else ""
        except (SafetensorError, KeyError, ValueError) as error:
            raise InvalidRequestError(
                f"expected a clone prompt (safetensors with speaker_embedding); {error}",
                code=ErrorCode.INVALID_VOICE,
            ) from error
        if not embedding.isfinite().all():
            # Its row would leave the same in pages that others take: a mask does not hide it.
            raise InvalidRequestError(
                "expected a clone prompt; its speaker_embedding is not finite",
                code=ErrorCode.INVALID_VOICE,
            )
        return cls(embedding.float(), None if codes is None else codes.long(), text)


Voice = Preset | Designed | Cloned


@dataclass(frozen=True, slots=True, eq=False)
class Prompt:
    """What the talker sees before frame 0, and the text that it is fed afterwards.

    Attributes:
        text_ids: text token of each position.
        codec_ids: codec id of each position, `NO_CODEC` or `SPEAKER`. Reference frames stand at the
            end, by their codes of codebook 0.
        reference_codes: [F, K], all codes of the last F positions, or None.
        speaker_embedding: [D] of the `SPEAKER` position, or None.
        trailing_text_ids: one for each frame from frame 0 on; then padding, for ever, or, where the
            text is still open, nothing: the row waits.
    """

    text_ids: tuple[int, ...]
    codec_ids: tuple[int, ...]
    trailing_text_ids: tuple[int, ...] = ()
    reference_codes: Tensor | None = None
    speaker_embedding: Tensor | None = None

    def __len__(self) -> int:
        return len(self.text_ids)


@dataclass(slots=True)
class _Columns:
    """Two columns that grow together."""

    text: list[int] = field(default_factory=list[int])
    codec: list[int] = field(default_factory=list[int])

    def add(self, text: Sequence[int], codec: Sequence[int]) -> None:
        assert len(text) == len(codec), (len(text), len(codec))
        self.text += text
        self.codec += codec


class PromptBuilder:
    """Makes the prompts of one checkpoint.

    Args:
        config: the checkpoint's.
        tokenizer: the checkpoint's.
    """

    def __init__(self, config: ModelConfig, tokenizer: Tokenizer) -> None:
        self._config = config
        self._talker: TalkerConfig = config.talker_config
        self._tokenizer = tokenizer

    def build(
        self,
        text: str,
        voice: Voice,
        language: str | None = None,
        instruct: str = "",
        *,
        is_streaming: bool = False,
    ) -> Prompt:
        """The prompt of a whole text.

        Args:
            text: to be spoken.
            voice: of the kind that this model makes.
            language: a name, a code with or without a region, or None to leave it to the model.
            instruct: how to speak, or for `Designed` who speaks.
            is_streaming: the streaming layout, in which frames take the text token by token.

        Raises:
            InvalidRequestError: the model has no such voice or language, or takes no `instruct`;
                the message lists what it has.
        """
        turn = self._tokenizer.encode_turn("assistant", text)
        return self.build_turn(
            turn, voice, language, instruct, is_streaming=is_streaming, is_open=False
        )

    def build_turn(
        self,
        turn: Sequence[int],
        voice: Voice,
        language: str | None = None,
        instruct: str = "",
        *,
        is_streaming: bool,
        is_open: bool,
    ) -> Prompt:
        """The prompt of a turn's ids (`Tokenizer.open_turn`), of which more may follow.

        Args:
            turn: the ids so far; at least `ids_to_start` of them where more follow.
            voice: as for `build`.
            language: as for `build`.
            instruct: as for `build`.
            is_streaming: as for `build`; always where more follow.
            is_open: more ids follow: no end is put behind the text.

        Raises:
            InvalidRequestError: as for `build`, or the text has no ids.
        """
        assert is_streaming or not is_open, "an open text needs the streaming layout"
        if len(turn) <= ROLE_TOKENS:
            raise InvalidRequestError("the text is empty", code=ErrorCode.TEXT_UNSPEAKABLE)
        columns = self._beginning(turn[:ROLE_TOKENS], voice, language, instruct)
        text = [*self._reference_ids(voice), *turn[ROLE_TOKENS:]]
        if not is_open:
            text.append(self._config.tts_eos_token_id)
        trailing = self._add_text(columns, text, self._reference(voice), is_streaming)
        return Prompt(
            tuple(columns.text),
            tuple(columns.codec),
            tuple(trailing),
            self._reference(voice),
            voice.speaker_embedding if isinstance(voice, Cloned) else None,
        )

    def build_prefix(
        self,
        voice: Voice,
        language: str | None = None,
        instruct: str = "",
        *,
        is_streaming: bool,
    ) -> Prompt:
        """What all prompts of this voice, language, instruct and layout begin with.

        Raises:
            InvalidRequestError: as for `build`.
        """
        role = self._tokenizer.encode_turn("assistant", "")
        columns = self._beginning(role, voice, language, instruct)
        reference, text = self._reference(voice), self._reference_ids(voice)
        frames = 0
        if not is_streaming:
            columns.add(text, [self._talker.codec_pad_id] * len(text))
        elif reference is not None:
            # The last position of a prompt is never part of its beginning.
            speech = [self._talker.codec_bos_id, *reference[:-1, 0].tolist()]
            text = text[: len(speech)]
            columns.add(text, speech[: len(text)])
            frames = max(0, len(text) - 1)
        return Prompt(
            tuple(columns.text),
            tuple(columns.codec),
            reference_codes=None if reference is None else reference[:frames],
            speaker_embedding=voice.speaker_embedding if isinstance(voice, Cloned) else None,
        )

    def ids_to_start(self, voice: Voice) -> int:
        """How many ids of an open turn a prompt in the streaming layout needs.

        One of the text; more with a reference, whose frames stand beside as many text ids.
        """
        reference = self._reference(voice)
        if reference is None:
            return ROLE_TOKENS + 1
        beside_frames = len(reference) + 1 - len(self._reference_ids(voice))
        return ROLE_TOKENS + max(1, beside_frames)

    def _beginning(
        self, role: Sequence[int], voice: Voice, language: str | None, instruct: str
    ) -> _Columns:
        """What stands before the text."""
        columns = _Columns()
        self._add_instruct(columns, instruct)
        columns.add(role, [NO_CODEC] * ROLE_TOKENS)
        self._add_control(columns, voice, self._language_id(voice, language))
        return columns

    def _add_instruct(self, columns: _Columns, instruct: str) -> None:
        if not instruct:
            return
        if not self._config.takes_instruct:
            raise InvalidRequestError(
                f"this model ({self._config.tts_model_type}, {self._config.tts_model_size}) "
                "takes no instruct: 1.7B CustomVoice and VoiceDesign do",
                code=ErrorCode.INVALID_PARAM,
            )
        ids = self._tokenizer.encode_closed_turn("user", instruct)
        columns.add(ids, [NO_CODEC] * len(ids))

    def _add_control(self, columns: _Columns, voice: Voice, language_id: int | None) -> None:
        """Language and speaker, beside padding; the last text id says that text begins."""
        talker = self._talker
        codec = (
            [talker.codec_nothink_id, talker.codec_think_bos_id]
            if language_id is None
            else [talker.codec_think_id, talker.codec_think_bos_id, language_id]
        )
        codec += [talker.codec_think_eos_id, *self._speaker(voice), talker.codec_pad_id]
        padding = [self._config.tts_pad_token_id] * (len(codec) - 1)
        columns.add([*padding, self._config.tts_bos_token_id], codec)

    def _add_text(
        self, columns: _Columns, text: list[int], reference: Tensor | None, is_streaming: bool
    ) -> list[int]:
        """Text and the start of speech, in one of the layouts; returns the text left over."""
        pad = self._config.tts_pad_token_id
        frames = [] if reference is None else reference[:, 0].tolist()
        speech = [self._talker.codec_bos_id, *frames]
        if not is_streaming:
            columns.add(text, [self._talker.codec_pad_id] * len(text))
            columns.add([pad] * len(speech), speech)
            return []
        beside, left = text[: len(speech)], text[len(speech) :]
        columns.add([*beside, *[pad] * (len(speech) - len(beside))], speech)
        return left

    def _speaker(self, voice: Voice) -> list[int]:
        """The codec column's part for the voice, after checking that this model makes it."""
        kind = self._config.tts_model_type
        expected = {"custom_voice": Preset, "voice_design": Designed, "base": Cloned}[kind]
        if not isinstance(voice, expected):
            raise InvalidRequestError(
                f"this {kind} model speaks {expected.__name__.lower()} voices; "
                f"came a {type(voice).__name__.lower()} voice",
                code=ErrorCode.INVALID_VOICE,
            )
        if isinstance(voice, Preset):
            return [self._lookup(self._talker.spk_id, voice.speaker, "speaker")]
        return [] if isinstance(voice, Designed) else [SPEAKER]

    def _language_id(self, voice: Voice, language: str | None) -> int | None:
        """The codec id of the language; a speaker of a dialect speaks it for Chinese."""
        name = language_name(language)
        if name in (None, "chinese") and isinstance(voice, Preset):
            name = self._talker.spk_is_dialect.get(voice.speaker.lower()) or name
        if name is None:
            return None
        return self._lookup(self._talker.codec_language_id, name, "language")

    def _lookup(self, known: dict[str, int], name: str, kind: str) -> int:
        found = known.get(name.lower())
        if found is None:
            code = ErrorCode.INVALID_VOICE if kind == "speaker" else ErrorCode.INVALID_LANGUAGE
            raise InvalidRequestError(
                f"{kind} {name!r} is not known to this model; known are {', '.join(sorted(known))}",
                code=code,
            )
        return found

    def _reference(self, voice: Voice) -> Tensor | None:
        return voice.reference_codes if isinstance(voice, Cloned) else None

    def _reference_ids(self, voice: Voice) -> list[int]:
        if not isinstance(voice, Cloned) or voice.reference_codes is None:
            return []
        if not voice.reference_text:
            raise InvalidRequestError(
                "a voice with reference codes needs the text of its reference audio",
                code=ErrorCode.INVALID_VOICE,
            )
        return self._tokenizer.encode_turn("assistant", voice.reference_text)[ROLE_TOKENS:]


def language_name(language: str | None) -> str | None:
    """Name of a language as the checkpoint has it: lower case; None where it is left open.

    Takes names ("English"), codes ("en", "pt-BR", "zh_CN"), "auto" and None.
    """
    if language is None or language.lower() in ("", "auto"):
        return None
    code = language.lower().replace("_", "-").split("-")[0]
    return LANGUAGE_CODES.get(code, language.lower())
