"""Voice name → what the prompt needs: speakers, designed voices, and clones from their folder.

A clone prompt is read once and kept, the least used forgotten first, and read again when its file
changes. Knows no audio and no rows.
"""

from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path

from voiceagent_tts.errors import ErrorCode, InvalidRequestError
from voiceagent_tts.model.config import ModelConfig
from voiceagent_tts.model.prompt import Cloned, Designed, Preset, Voice

CLONE_SUFFIX = ".safetensors"
DESIGNED_VOICE = "designed"
"""The one voice of a VoiceDesign model; `instruct` describes who speaks."""


@dataclass(slots=True)
class CacheCounts:
    """How often a clone prompt was at hand."""

    hits: int = 0
    misses: int = 0


class VoiceShelf:
    """The voices that one model speaks.

    Args:
        config: the model's.
        folder: where clone prompts lie, one file a voice; only of Base models.
        max_clones: how many are kept in memory.
    """

    def __init__(self, config: ModelConfig, folder: Path | None, max_clones: int = 256) -> None:
        self._config = config
        self._folder = folder
        self._max_clones = max_clones
        self._clones: OrderedDict[str, tuple[int, Cloned]] = OrderedDict()
        self.counts = CacheCounts()

    def names(self) -> tuple[str, ...]:
        """Voices there are now."""
        match self._config.tts_model_type:
            case "custom_voice":
                return tuple(self._config.talker_config.spk_id)
            case "voice_design":
                return (DESIGNED_VOICE,)
            case "base":
                files = self._folder.glob(f"*{CLONE_SUFFIX}") if self._folder else ()
                return tuple(sorted(path.stem for path in files))

    def find(self, name: str, instruct: str | None) -> Voice:
        """The voice called `name`.

        Raises:
            InvalidRequestError: there is none, or a designed voice has no description.
        """
        match self._config.tts_model_type:
            case "custom_voice":
                return Preset(name)
            case "voice_design":
                if not instruct:
                    raise InvalidRequestError(
                        "a designed voice needs `instruct`: a description of who speaks",
                        code=ErrorCode.INVALID_PARAM,
                    )
                return Designed()
            case "base":
                return self._clone(name)

    def _clone(self, name: str) -> Cloned:
        path = self._path(name)
        changed_ns = path.stat().st_mtime_ns
        kept = self._clones.get(name)
        if kept is not None and kept[0] == changed_ns:
            self.counts.hits += 1
            self._clones.move_to_end(name)
            return kept[1]
        self.counts.misses += 1
        clone = Cloned.from_bytes(path.read_bytes())
        self._clones[name] = (changed_ns, clone)
        if len(self._clones) > self._max_clones:
            self._clones.popitem(last=False)
        return clone

    def _path(self, name: str) -> Path:
        if self._folder is not None and name in self.names():  # a name is never a path
            return self._folder / f"{name}{CLONE_SUFFIX}"
        known = ", ".join(self.names()) or "none yet: `voiceagent-tts voices add NAME ref.wav`"
        raise InvalidRequestError(
            f"there is no cloned voice {name[:64]!r}; there are: {known}",
            code=ErrorCode.INVALID_VOICE,
        )
