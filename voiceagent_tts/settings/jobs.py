"""Jobs: texts that are spoken later."""

from pathlib import Path

from pydantic import SecretStr

from voiceagent_tts.settings.group import SettingsGroup, UserPath


class JobSettings(SettingsGroup):
    """Jobs, their files, and the webhooks that report them.

    Attributes:
        jobs_storage: Folder for the files of jobs, which all servers share. Jobs need `redis`.
        webhook_secret: Secret that signs the news of jobs. Default: no webhooks are sent.
        webhook_private: Allow webhooks to http and to addresses of private networks. Only for
            clients that may reach everything that the server can reach.
    """

    jobs_storage: UserPath = Path("~/.local/share/voiceagent-tts/jobs")
    webhook_secret: SecretStr | None = None
    webhook_private: bool = False
