"""Cloned voices, the consent that they need, and pronunciations."""

from pathlib import Path
from typing import Literal

from pydantic import Field

from voiceagent_tts.settings.group import Count, SettingsGroup, UserPath


class VoiceSettings(SettingsGroup):
    """Where clones are kept, who may add them, and how words are pronounced.

    Attributes:
        voices_folder: Folder of cloned voices, and of the voices' lexicons; servers may share it.
            The clones of Pocket TTS are in its subfolder `pocket`.
        consent_mode: What a clone over HTTP needs: `statement` (a line that says who agreed, or a
            consent) or `recording` (a consent with a recording of its phrase).
        consent_similarity: Least similarity (cosine, -1 to 1) of the speakers of a consent's
            recording and of the voice made with it. The default was never tried on published
            weights: compare a few pairs of recordings before relying on it.
        voices_per_key: Most clones that one key may have added. Default: no limit.
        lexicon: TOML file of pronunciations for all contexts: `written = "said"`, one entry a line.
    """

    voices_folder: UserPath = Path("~/.local/share/voiceagent-tts/voices")
    consent_mode: Literal["statement", "recording"] = "statement"
    consent_similarity: float = Field(default=0.5, ge=-1, le=1)
    voices_per_key: Count | None = None
    lexicon: UserPath | None = None
