"""Cloned voices, the consent that they need, and pronunciations."""

from pathlib import Path
from typing import Literal

from voiceagent_tts.settings.group import Count, SettingsGroup, UserPath


class VoiceSettings(SettingsGroup):
    """Where clones are kept, who may add them, and how words are pronounced.

    Attributes:
        voices_folder: Folder of cloned voices, and of the voices' lexicons; servers may share it.
            The clones of Pocket TTS are in its subfolder `pocket`.
        consent_mode: What a clone over HTTP needs: `statement` (a line that says who agreed, or a
            consent) or `recording` (a consent with a recording of its phrase).
        voices_per_key: Most clones that one key may have added. Default: no limit.
        lexicon: TOML file of pronunciations for all contexts: `written = "said"`, one entry a line.
    """

    voices_folder: UserPath = Path("~/.local/share/voiceagent-tts/voices")
    consent_mode: Literal["statement", "recording"] = "statement"
    voices_per_key: Count | None = None
    lexicon: UserPath | None = None
