"""Logs."""

from pydantic import SecretStr

from voiceagent_tts.settings.group import SettingsGroup, UserPath


class LogSettings(SettingsGroup):
    """What the server writes down, and where.

    Attributes:
        request_log: File for the request log: one JSON line for each context, without its text.
        hash_secret: Secret of the text hashes in the request log. Default: random at every start,
            so that hashes cannot be compared across starts or servers.
        log_json: Write logs as JSON lines instead of coloured text.
    """

    request_log: UserPath | None = None
    hash_secret: SecretStr | None = None
    log_json: bool = False
