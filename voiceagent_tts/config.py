"""Settings of the server: the only reader of environment variables and configuration files.

Sources, highest priority first: command-line arguments, `VOICEAGENT_TTS_*` in the environment,
`voiceagent-tts.toml` in the working directory (or the file that `VOICEAGENT_TTS_CONFIG` names), the
defaults. The settings of each subject, with what they mean, are in the room `settings/`.
"""

import os
from difflib import get_close_matches
from pathlib import Path

from pydantic import model_validator
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from voiceagent_tts.settings.access import AccessSettings
from voiceagent_tts.settings.aligner import AlignerSettings
from voiceagent_tts.settings.cache import CacheSettings
from voiceagent_tts.settings.engine import EngineSettings
from voiceagent_tts.settings.jobs import JobSettings
from voiceagent_tts.settings.limits import LimitSettings
from voiceagent_tts.settings.logs import LogSettings
from voiceagent_tts.settings.network import NetworkSettings
from voiceagent_tts.settings.provenance import ProvenanceSettings
from voiceagent_tts.settings.upstream import UpstreamSettings
from voiceagent_tts.settings.voices import VoiceSettings

_ENV_PREFIX = "VOICEAGENT_TTS_"
UPSTREAM_KEY = f"{_ENV_PREFIX}UPSTREAM_KEY"
"""The variable with the key for the upstream, which the server's worker reads, too."""
_OTHER_VARIABLES = ("CONFIG", "URL", "API_KEY")
"""Variables that are no settings of the server: its file, and a client's server and key."""


class Settings(  # pyright: ignore[reportIncompatibleVariableOverride] # `model_config`, as below
    BaseSettings,
    NetworkSettings,
    EngineSettings,
    UpstreamSettings,
    VoiceSettings,
    AlignerSettings,
    AccessSettings,
    CacheSettings,
    LogSettings,
    JobSettings,
    ProvenanceSettings,
    LimitSettings,
):
    """All settings of the server, by flat names. Unknown names are refused.

    A function that needs the settings of one subject takes their class. The checks here are those
    of settings of several subjects, which must fit together.
    """

    model_config = SettingsConfigDict(env_prefix=_ENV_PREFIX)

    @property
    def clones_folder(self) -> Path:
        """Folder of the engine's clones; clones of one engine mean nothing to another."""
        folder = self.voices_folder.expanduser()
        return folder / "pocket" if self.engine == "pocket" else folder

    @model_validator(mode="after")
    def _check_upstream(self) -> "Settings":
        if self.engine == "openai" and self.upstream is None:
            raise ValueError(
                "engine openai: expected the address of a server in upstream, got none; set "
                "VOICEAGENT_TTS_UPSTREAM or --upstream, such as http://127.0.0.1:8880/v1"
            )
        if self.overflow and (self.upstream is None or self.upstream_chars_per_day is None):
            raise ValueError(
                "overflow: expected upstream, and upstream_chars_per_day, which bounds its cost; "
                "set both"
            )
        if self.overflow and self.engine == "openai":
            raise ValueError("expected engine openai or overflow, got both; keep one")
        return self

    @model_validator(mode="after")
    def _check_cache(self) -> "Settings":
        if self.cache_redis_mb and (self.redis is None or not self.cache_mb):
            raise ValueError(
                "cache_redis_mb: expected redis and a cache_mb above 0 with it; set "
                "VOICEAGENT_TTS_REDIS, such as redis://127.0.0.1:6379/0"
            )
        return self

    @model_validator(mode="after")
    def _check_access(self) -> "Settings":
        if not self.is_loopback and not self.needs_key and not self.allow_anonymous:
            raise ValueError(
                f"expected keys where others can reach the server (host {self.host}); set "
                "VOICEAGENT_TTS_KEYS or VOICEAGENT_TTS_API_KEYS, or "
                "VOICEAGENT_TTS_ALLOW_ANONYMOUS=true to serve anyone"
            )
        return self

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Return the sources in order of priority: arguments, environment, file.

        Raises:
            ValueError: the environment names a file that does not exist.
        """
        named = os.environ.get("VOICEAGENT_TTS_CONFIG")
        path = Path(named or "voiceagent-tts.toml")
        if named and not path.is_file():
            raise ValueError(
                f"VOICEAGENT_TTS_CONFIG: there is no file {named!r}; name an existing TOML file"
            )
        return init_settings, env_settings, TomlConfigSettingsSource(settings_cls, path)


def misspelt_variables() -> dict[str, str]:
    """Variables of the environment that look like a misspelt setting, and the setting's variable.

    Others are left alone: Kubernetes sets `VOICEAGENT_TTS_SERVICE_HOST` for a service of that name.
    """
    names = [*(name.upper() for name in Settings.model_fields), *_OTHER_VARIABLES]
    known = [_ENV_PREFIX + name for name in names]
    misspelt: dict[str, str] = {}
    for name in os.environ:
        if name.startswith(_ENV_PREFIX.removesuffix("_")) and name.upper() not in known:
            for near in get_close_matches(name.upper(), known, n=1, cutoff=0.9):
                misspelt[name] = near
    return misspelt


def upstream_key() -> str | None:
    """Return the API key for the upstream, in a worker; the server's settings put it there."""
    return os.environ.get(UPSTREAM_KEY) or None


def huggingface_home() -> Path:
    """Return the folder of downloaded model files."""
    return Path(os.environ.get("HF_HOME", Path.home() / ".cache" / "huggingface"))
