"""Clones over HTTP, and the consent that they need."""

from typing import Literal

from voiceagent_tts.settings.group import Count, SettingsGroup


class CloneSettings(SettingsGroup):
    """Who may add clones over HTTP.

    Attributes:
        consent_mode: What a clone over HTTP needs: `statement` (a line that says who agreed, or a
            consent) or `recording` (a consent with a recording of its phrase).
        voices_per_key: Most clones that one key may have added. Default: no limit.
    """

    consent_mode: Literal["statement", "recording"] = "statement"
    voices_per_key: Count | None = None
