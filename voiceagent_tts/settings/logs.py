"""Logs."""

from voiceagent_tts.settings.group import SettingsGroup, UserPath


class LogSettings(SettingsGroup):
    """What the server writes down, and where.

    Attributes:
        request_log: File for the request log: one JSON line for each context, without its text.
        log_json: Write logs as JSON lines instead of coloured text.
    """

    request_log: UserPath | None = None
    log_json: bool = False
