"""Build a prompt from a voice, a language and a text: two aligned columns of ids, text and codec.

The input at each position is the sum of a text embedding and, at most positions, a codec embedding.
The model was trained on two layouts. In the streaming layout the prompt contains the first text
token, and each frame adds one more, so text may still be arriving. In the other layout the prompt
contains the whole text. Both end where the model continues with codes. This module knows ids, not
weights; a prompt also carries a cloned voice's reference frames and speaker embedding.

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

_FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
_INTEGERS = (torch.int64, torch.int32)
NO_CODEC = -1
"""Codec-column value: add nothing to the text embedding at this position."""
SPEAKER = -2
"""Codec-column value: add the speaker embedding at this position."""

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
"""Map from ISO 639-1 codes to the names in `codec_language_id`."""


@dataclass(frozen=True, slots=True)
class Preset:
    """A built-in speaker of a CustomVoice model, in any letter case."""

    speaker: str


@dataclass(frozen=True, slots=True)
class Designed:
    """A voice that a VoiceDesign model creates from the description in `instruct`."""


@dataclass(frozen=True, slots=True, eq=False)
class Cloned:
    """A voice of a Base model, cloned from reference audio.

    Attributes:
        speaker_embedding: [D] float32, from the speaker encoder of this checkpoint.
        reference_codes: [F, K] int64, the encoded reference; None clones by the embedding alone.
        reference_text: transcript of the reference, required with `reference_codes`.
    """

    speaker_embedding: Tensor
    reference_codes: Tensor | None = None
    reference_text: str = ""

    def to_bytes(self) -> bytes:
        """Serialise the voice as safetensors."""
        tensors = {"speaker_embedding": self.speaker_embedding.float().cpu().contiguous()}
        if self.reference_codes is not None:
            tensors["reference_codes"] = self.reference_codes.to("cpu", torch.int32).contiguous()
            tensors["reference_text"] = torch.tensor(
                list(self.reference_text.encode()), dtype=torch.int64
            )
        return save(tensors)

    @classmethod
    def from_bytes(cls, stored: bytes) -> "Cloned":
        """Parse the output of `to_bytes`.

        Raises:
            InvalidRequestError: the bytes are not a voice file.
        """
        try:
            tensors = load(stored)
            embedding, codes = tensors["speaker_embedding"], tensors.get("reference_codes")
            _check_type("speaker_embedding", embedding, _FLOATS)
            text = ""
            if codes is not None:
                _check_type("reference_codes", codes, _INTEGERS)
                _check_type("reference_text", tensors["reference_text"], _INTEGERS)
                # A list, because `bytes` of a number would be as many zeros.
                text = bytes(tensors["reference_text"].flatten().tolist()).decode()
        except (SafetensorError, KeyError, ValueError) as error:
            raise InvalidRequestError(
                f"expected a voice file (safetensors with speaker_embedding); {error}",
                code=ErrorCode.INVALID_VOICE,
            ) from error
        embedding = embedding.float()
        if not embedding.isfinite().all():
            # Every text in this voice would become NaN.
            raise InvalidRequestError(
                "expected a voice file with finite values; its speaker_embedding is not finite",
                code=ErrorCode.INVALID_VOICE,
            )
        return cls(embedding, None if codes is None else codes.long(), text)

    def fits(self, width: int | None, config: TalkerConfig) -> bool:
        """Whether the voice was made with the encoders of a model.

        `width` is that of the model's speaker embeddings, None if it speaks no clones.
        """
        codes = self.reference_codes
        return self.speaker_embedding.shape == (width,) and (
            codes is None
            or codes.ndim == 2
            and codes.shape[1] == config.num_code_groups
            and 0 < len(codes)
            and 0 <= int(codes.min())
            and int(codes.max()) < config.code_predictor_config.vocab_size
        )


def _check_type(name: str, tensor: Tensor, types: Sequence[torch.dtype]) -> None:
    if tensor.dtype not in types:
        raise ValueError(f"{name}: expected {types[0]}, got {tensor.dtype}")


Voice = Preset | Designed | Cloned


def reference_codes(voice: Voice) -> Tensor | None:
    """Return the frames that a voice continues, [F, K] int64; None for one without a reference."""
    return voice.reference_codes if isinstance(voice, Cloned) else None


@dataclass(frozen=True, slots=True, eq=False)
class Prompt:
    """The talker's input before frame 0, and the text that follows frame by frame.

    Attributes:
        text_ids: text token of each position.
        codec_ids: codec id of each position, `NO_CODEC` or `SPEAKER`. Reference frames are at the
            end, represented by their codes of codebook 0.
        reference_codes: [F, K], all codes of the last F positions, or None.
        speaker_embedding: [D], embedding at the `SPEAKER` position, or None.
        trailing_text_ids: text id of each frame from frame 0 on. After the last one, a finished
            text continues with padding; with an open text the row waits for more ids.
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
    """Two id columns of equal length, extended together."""

    text: list[int] = field(default_factory=list[int])
    codec: list[int] = field(default_factory=list[int])

    def add(self, text: Sequence[int], codec: Sequence[int]) -> None:
        assert len(text) == len(codec), (len(text), len(codec))
        self.text += text
        self.codec += codec


class PromptBuilder:
    """Builds prompts for one checkpoint."""

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
        """Build the prompt of a complete text.

        The `language` is a name, or a code with or without region; None lets the model decide.
        `instruct` is a speaking style, and for `Designed` the description of the voice. The
        streaming layout has one text token per frame.

        Raises:
            InvalidRequestError: the model does not support this voice, language or `instruct`; the
                message lists what it supports.
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
        """Build the prompt of a turn's ids (`Tokenizer.open_turn`), otherwise as `build` does.

        An open turn needs the streaming layout, and has at least `ids_to_start` of its ids; more
        will follow, so that no end-of-text id is appended.

        Raises:
            InvalidRequestError: see `build`; or the text has no ids.
        """
        assert is_streaming or not is_open, "an open text needs the streaming layout"
        if len(turn) <= ROLE_TOKENS:
            raise InvalidRequestError(
                "expected a text, got an empty one", code=ErrorCode.TEXT_UNSPEAKABLE
            )
        columns = self._head(turn[:ROLE_TOKENS], voice, language, instruct)
        text = [*self._reference_ids(voice), *turn[ROLE_TOKENS:]]
        if not is_open:
            text.append(self._config.tts_eos_token_id)
        trailing = self._add_text(columns, text, reference_codes(voice), is_streaming)
        return Prompt(
            tuple(columns.text),
            tuple(columns.codec),
            tuple(trailing),
            reference_codes(voice),
            voice.speaker_embedding if isinstance(voice, Cloned) else None,
        )

    def build_prefix(
        self, voice: Voice, language: str | None = None, instruct: str = "", *, is_streaming: bool
    ) -> Prompt:
        """Build the common start of all prompts with this voice, language, instruct and layout."""
        role = self._tokenizer.encode_turn("assistant", "")
        columns = self._head(role, voice, language, instruct)
        reference, text = reference_codes(voice), self._reference_ids(voice)
        frames = 0
        if not is_streaming:
            columns.add(text, [self._talker.codec_pad_id] * len(text))
        elif reference is not None:
            # The last position of a prompt is never part of its prefix.
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
        """Return how many ids of an open turn a prompt in the streaming layout needs.

        One text id; more with a reference, because each of its frames is paired with a text id.
        """
        reference = reference_codes(voice)
        if reference is None:
            return ROLE_TOKENS + 1
        beside_frames = len(reference) + 1 - len(self._reference_ids(voice))
        return ROLE_TOKENS + max(1, beside_frames)

    def _head(
        self, role: Sequence[int], voice: Voice, language: str | None, instruct: str
    ) -> _Columns:
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
                "accepts no instruct; try 1.7B CustomVoice or VoiceDesign",
                code=ErrorCode.INVALID_PARAM,
            )
        ids = self._tokenizer.encode_closed_turn("user", instruct)
        columns.add(ids, [NO_CODEC] * len(ids))

    def _add_control(self, columns: _Columns, voice: Voice, language_id: int | None) -> None:
        """Add language and speaker, paired with padding; the last text id starts the text."""
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
        """Add text and the start of speech in one of the layouts; return the remaining text."""
        pad = self._config.tts_pad_token_id
        frames = [] if reference is None else reference[:, 0].tolist()
        speech = [self._talker.codec_bos_id, *frames]
        if not is_streaming:
            columns.add(text, [self._talker.codec_pad_id] * len(text))
            columns.add([pad] * len(speech), speech)
            return []
        paired, remaining = text[: len(speech)], text[len(speech) :]
        columns.add([*paired, *[pad] * (len(speech) - len(paired))], speech)
        return remaining

    def _speaker(self, voice: Voice) -> list[int]:
        """Return the voice's ids in the codec column, after checking that the model supports it."""
        kind = self._config.tts_model_type
        expected = {"custom_voice": Preset, "voice_design": Designed, "base": Cloned}[kind]
        if not isinstance(voice, expected):
            raise InvalidRequestError(
                f"this {kind} model: expected a {expected.__name__.lower()} voice, got a "
                f"{type(voice).__name__.lower()} voice",
                code=ErrorCode.INVALID_VOICE,
            )
        if isinstance(voice, Preset):
            return [self._lookup(self._talker.spk_id, voice.speaker, "speaker")]
        return [] if isinstance(voice, Designed) else [SPEAKER]

    def _language_id(self, voice: Voice, language: str | None) -> int | None:
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

    def _reference_ids(self, voice: Voice) -> list[int]:
        if not isinstance(voice, Cloned) or voice.reference_codes is None:
            return []
        if not voice.reference_text:
            raise InvalidRequestError(
                "expected reference_text with reference_codes, got none",
                code=ErrorCode.INVALID_VOICE,
            )
        return self._tokenizer.encode_turn("assistant", voice.reference_text)[ROLE_TOKENS:]


def language_name(language: str | None) -> str | None:
    """Return the checkpoint's name of a language, in lower case; None if the model decides.

    Accepts names ("English"), codes ("en", "pt-BR", "zh_CN"), "auto" and None.
    """
    if language is None or language.lower() in ("", "auto"):
        return None
    code = language.lower().replace("_", "-").split("-")[0]
    return LANGUAGE_CODES.get(code, language.lower())
