"""Cloned voices, the consent that they need, and pronunciations."""

from pathlib import Path
from typing import Literal

from pydantic import Field, field_validator

from voiceagent_tts.settings.group import SettingsGroup


class VoiceSettings(SettingsGroup):
    """Where clones are kept, who may add them, and how words are pronounced.

    Attributes:
        voices_folder: Folder of cloned voices, and of the voices' lexicons, or `s3://BUCKET/PREFIX`
            (extra `s3`). The clones of Pocket TTS are in its subfolder `pocket`.
        voices_cache: Folder of the copies of voices in a bucket, from which engines read them.
        voices_cache_mb: Maximum size of the voices in a bucket, and so of their copies, in units of
            10^6 bytes. All servers of a bucket need the same.
        consent_mode: What a clone over HTTP needs: `statement` (a line that says who agreed, or a
            consent) or `recording` (a consent with a recording of its phrase).
        consent_similarity: Least similarity (cosine, -1 to 1) of the speakers of a consent's
            recording and of the voice made with it. The default was never tried on published
            weights: compare a few pairs of recordings before relying on it.
        voices_per_key: Most clones that one key may have added. Default: no limit.
        lexicon: TOML file of pronunciations for all contexts: `written = "said"`, one entry a line.
    """

    voices_folder: str = "~/.local/share/voiceagent-tts/voices"
    voices_cache: Path = Path("~/.cache/voiceagent-tts/voices")
    voices_cache_mb: float = Field(default=1000.0, gt=0)
    consent_mode: Literal["statement", "recording"] = "statement"
    consent_similarity: float = Field(default=0.5, ge=-1, le=1)
    voices_per_key: int | None = Field(default=None, ge=1)
    lexicon: Path | None = None

    @field_validator("voices_folder", mode="before")
    @classmethod
    def _as_address(cls, value: object) -> object:
        return str(value) if isinstance(value, Path) else value
