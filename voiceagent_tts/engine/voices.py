"""Voice name → what a row needs of it: speakers, designed voices, and clones from their folder.

A clone is read once and kept, together with the codec's state after its reference, the least used
forgotten first; it is read again when its file changes. Knows no audio and no rows.
"""

from collections import OrderedDict
from dataclasses import dataclass

from voiceagent_tts.errors import ErrorCode, InvalidRequestError
from voiceagent_tts.model.codec_state import CodecState
from voiceagent_tts.model.config import ModelConfig
from voiceagent_tts.model.prompt import Cloned, Designed, Preset, Voice
from voiceagent_tts.voices import VoiceFolder

DESIGNED_VOICE = "designed"
"""The one voice of a VoiceDesign model; `instruct` describes who speaks."""
MAX_CLONES = 64
"""With the published codec each takes about 5 MB of the device's memory, most of it the state."""


@dataclass(slots=True, eq=False)
class Shelved:
    """A voice as the engine uses it.

    Attributes:
        voice: what the prompt needs.
        primed: the codec's state of one row after the reference, once a row has needed it.
    """

    voice: Voice
    primed: CodecState | None = None


@dataclass(slots=True)
class CacheCounts:
    """How often a clone was at hand."""

    hits: int = 0
    misses: int = 0


class VoiceShelf:
    """The voices that one model speaks.

    Args:
        config: the model's.
        folder: where clones are kept; only of Base models.
        max_clones: how many are kept in memory.
    """

    def __init__(
        self, config: ModelConfig, folder: VoiceFolder | None, max_clones: int = MAX_CLONES
    ) -> None:
        self._config = config
        self._folder = folder
        self._max_clones = max_clones
        self._clones: OrderedDict[str, tuple[tuple[int, ...], Shelved]] = OrderedDict()
        self.counts = CacheCounts()

    def names(self) -> tuple[str, ...]:
        """The voices that the model itself has."""
        match self._config.tts_model_type:
            case "custom_voice":
                return tuple(self._config.talker_config.spk_id)
            case "voice_design":
                return (DESIGNED_VOICE,)
            case "base":
                return ()

    @property
    def clone_width(self) -> int | None:
        """Numbers in the embeddings of the clones that the model speaks; None for other models."""
        is_base = self._config.tts_model_type == "base"
        return self._config.speaker_encoder_config.enc_dim if is_base else None

    def find(self, name: str, instruct: str | None) -> Shelved:
        """The voice called `name`.

        Raises:
            InvalidRequestError: there is none, it is another model's, or a designed voice has no
                description.
        """
        match self._config.tts_model_type:
            case "custom_voice":
                return Shelved(Preset(name))
            case "voice_design":
                if not instruct:
                    raise InvalidRequestError(
                        "a designed voice needs `instruct`: a description of who speaks",
                        code=ErrorCode.INVALID_PARAM,
                    )
                return Shelved(Designed())
            case "base":
                return self._clone(name)

    def _clone(self, name: str) -> Shelved:
        if self._folder is None:
            raise InvalidRequestError(
                "this engine has no folder of cloned voices", code=ErrorCode.INVALID_VOICE
            )
        version = self._folder.version(name)
        kept = self._clones.get(name)
        if kept is not None and kept[0] == version:
            self.counts.hits += 1
            self._clones.move_to_end(name)
            return kept[1]
        self.counts.misses += 1
        clone = Cloned.from_bytes(self._folder.read(name))
        self._check_fits(name, clone)
        self._clones[name] = version, Shelved(clone)
        self._clones.move_to_end(name)
        if len(self._clones) > self._max_clones:
            self._clones.popitem(last=False)
        return self._clones[name][1]

    def _check_fits(self, name: str, clone: Cloned) -> None:
        """Refuse what another model's encoders have heard."""
        talker = self._config.talker_config
        codes = clone.reference_codes
        is_ours = clone.speaker_embedding.shape == (self.clone_width,) and (
            codes is None
            or codes.ndim == 2
            and codes.shape[1] == talker.num_code_groups
            and 0 < len(codes)
            and 0 <= codes.min() <= codes.max() < talker.code_predictor_config.vocab_size
        )
        if not is_ours:
            raise InvalidRequestError(
                f"the voice {name!r} was cloned for another model than this one "
                f"({self._config.tts_model_size}): add it again with `voices add --model`",
                code=ErrorCode.INVALID_VOICE,
            )
