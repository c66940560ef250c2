"""Jobs: texts that are spoken later."""

from pathlib import Path

from pydantic import Field, SecretStr

from voiceagent_tts.settings.group import SettingsGroup, UserPath


class JobSettings(SettingsGroup):
    """Jobs, their files, and the webhooks that report them.

    Attributes:
        jobs_storage: Folder for the files of jobs, which all servers share. Jobs need `redis`.
        jobs_at_once: Jobs that this server speaks at the same time. Raise it if rows are free while
            jobs wait; 0 leaves them to other servers.
        jobs_keep_h: Hours after which a job and its file are deleted.
        webhook_secret: Secret that signs the news of jobs. Default: no webhooks are sent.
        webhook_private: Allow webhooks to http and to addresses of private networks. Only for
            clients that may reach everything that the server can reach.
    """

    jobs_storage: UserPath = Path("~/.local/share/voiceagent-tts/jobs")
    jobs_at_once: int = Field(default=2, ge=0, le=1000)
    jobs_keep_h: float = Field(default=24.0, gt=0, le=87_600)
    webhook_secret: SecretStr | None = None
    webhook_private: bool = False
