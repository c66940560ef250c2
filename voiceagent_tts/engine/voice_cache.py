"""Finds the voice that a context asks for: presets, designed voices, and clones from their folder.

A clone is loaded once and kept together with the codec's state after its reference audio. It is
loaded again when its file changes.
"""

from dataclasses import dataclass

from voiceagent_tts.clones import VoiceFolder
from voiceagent_tts.engine.codec_stream import Priming
from voiceagent_tts.errors import ErrorCode, InvalidRequestError
from voiceagent_tts.lru import LRUCache
from voiceagent_tts.model.config import ModelConfig
from voiceagent_tts.model.prompt import Cloned, Designed, Preset, Voice
from voiceagent_tts.seam.events import Gender, VoiceDetails
from voiceagent_tts.voices import DESIGNED_VOICE

MAX_CLONES = 64
"""With the published codec each clone takes about 5 MB of device memory, most of it codec state."""


@dataclass(slots=True, eq=False)
class LoadedVoice:
    """A voice, ready for a prompt.

    Attributes:
        priming: codec state of one row after the reference audio, computed in parts; None until it
            is needed.
    """

    voice: Voice
    priming: Priming | None = None


@dataclass(slots=True)
class CacheCounts:
    """Hits and misses of a cache."""

    hits: int = 0
    misses: int = 0

    def metrics(self, name: str) -> dict[str, float]:
        """Return them under their names in the metrics."""
        return {f"{name}_cache_hits_total": self.hits, f"{name}_cache_misses_total": self.misses}


_SPEAKERS: dict[str, tuple[str, Gender]] = {
    "aiden": ("en", "male"),
    "dylan": ("zh", "male"),
    "eric": ("zh", "male"),
    "ono_anna": ("ja", "female"),
    "ryan": ("en", "male"),
    "serena": ("zh", "female"),
    "sohee": ("ko", "female"),
    "uncle_fu": ("zh", "male"),
    "vivian": ("zh", "female"),
}
"""Native language and gender of the speakers of Qwen's CustomVoice models.

Source: the model card of Qwen3-TTS-12Hz-1.7B-CustomVoice."""


class VoiceCache:
    """The voices of one model."""

    def __init__(
        self, config: ModelConfig, folder: VoiceFolder | None, max_clones: int = MAX_CLONES
    ) -> None:
        self._config = config
        self._folder = folder
        self._clones = LRUCache[str, tuple[tuple[int, ...], LoadedVoice]](max_clones)
        self.counts = CacheCounts()

    def names(self) -> tuple[str, ...]:
        """Return the names of the voices that the model itself contains."""
        match self._config.tts_model_type:
            case "custom_voice":
                return tuple(self._config.talker_config.spk_id)
            case "voice_design":
                return (DESIGNED_VOICE,)
            case "base":
                return ()

    def details(self) -> tuple[VoiceDetails, ...]:
        """Return language and gender of the voices that the model itself contains."""
        if self._config.tts_model_type == "voice_design":
            return (VoiceDetails(DESIGNED_VOICE, "designed"),)
        return tuple(
            VoiceDetails(name, "speaker", *_SPEAKERS.get(name.casefold(), (None, None)))
            for name in self.names()
        )

    @property
    def clone_width(self) -> int | None:
        """Width of the speaker embeddings of clones; None for models that speak no clones."""
        is_base = self._config.tts_model_type == "base"
        return self._config.speaker_encoder_config.enc_dim if is_base else None

    def find(self, name: str, instruct: str | None, version: tuple[int, ...] = ()) -> LoadedVoice:
        """Return the voice called `name`; `version` is as in `Submit`.

        Raises:
            InvalidRequestError: there is no such voice, it was replaced, it belongs to another
                model, or a designed voice has no description.
        """
        match self._config.tts_model_type:
            case "custom_voice":
                return LoadedVoice(Preset(name))
            case "voice_design":
                if not instruct:
                    raise InvalidRequestError(
                        f"voice {name!r}: expected `instruct`, a description of the voice, got "
                        "none; describe it, or clone a voice (`voiceagent-tts voices add` or "
                        "`voices design`), which is the default from then on",
                        code=ErrorCode.INVALID_PARAM,
                    )
                return LoadedVoice(Designed())
            case "base":
                return self._clone(name, version)

    def _clone(self, name: str, expected: tuple[int, ...]) -> LoadedVoice:
        if self._folder is None:
            raise InvalidRequestError(
                "this engine has no folder of cloned voices", code=ErrorCode.INVALID_VOICE
            )
        version = self._folder.version(name, expected)
        kept = self._clones.get(name)
        if kept is not None and kept[0] == version:
            self.counts.hits += 1
            return kept[1]
        self.counts.misses += 1
        clone = Cloned.from_bytes(self._folder.read(name, version))
        self._check_fits(name, clone)
        loaded = LoadedVoice(clone)
        self._clones.put(name, (version, loaded))
        return loaded

    def _check_fits(self, name: str, clone: Cloned) -> None:
        if not clone.fits(self.clone_width, self._config.talker_config):
            raise InvalidRequestError(
                f"the voice {name!r} was cloned for another model than this one "
                f"({self._config.tts_model_size}): add it again with `voices add --model`",
                code=ErrorCode.INVALID_VOICE,
            )
