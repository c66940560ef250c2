"""Logs, and requests that are stored with their text."""

from pathlib import Path

from pydantic import Field, SecretStr

from voiceagent_tts.settings.group import SettingsGroup


class LogSettings(SettingsGroup):
    """What the server writes down, and where.

    Attributes:
        request_log: File for the request log: one JSON line for each context, without its text.
        hash_secret: Secret of the text hashes in the request log. Default: random at every start,
            so that hashes cannot be compared across starts or servers.
        sample_folder: Folder for requests with their text: those that failed, and
            `sample_share` of the others. Default: no text is stored.
        sample_share: Share of successful contexts that `sample_folder` stores, from 0 to 1.
        sample_folder_mb: Maximum size of `sample_folder`, in units of 10^6 bytes; the oldest
            requests are deleted.
        log_json: Write logs as JSON lines instead of coloured text.
    """

    request_log: Path | None = None
    hash_secret: SecretStr | None = None
    sample_folder: Path | None = None
    sample_share: float = Field(default=0.0, ge=0, le=1)
    sample_folder_mb: float = Field(default=100.0, gt=0)
    log_json: bool = False
