"""Stored voices, and pronunciations."""

from pathlib import Path

from voiceagent_tts.settings.group import SettingsGroup, UserPath


class VoiceSettings(SettingsGroup):
    """Where voices are kept, and how words are pronounced.

    Attributes:
        voices_folder: Folder of cloned voices, and of the voices' lexicons; servers may share it.
            The clones of Pocket TTS are in its subfolder `pocket`.
        lexicon: TOML file of pronunciations for all contexts: `written = "said"`, one entry a line.
    """

    voices_folder: UserPath = Path("~/.local/share/voiceagent-tts/voices")
    lexicon: UserPath | None = None
