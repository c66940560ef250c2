"""Settings of the server, from its arguments, the environment and a file.

Sources, highest priority first: command-line arguments, `VOICEAGENT_TTS_*` in the environment,
`voiceagent-tts.toml` in the working directory (or the file that `VOICEAGENT_TTS_CONFIG` names), the
defaults. An empty value, wherever it is written, is the default. The settings of each subject, with
what they mean, are in the room `settings/`.
"""

import errno
import os
import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path

from pydantic import model_validator
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from voiceagent_tts.settings.access import AccessSettings
from voiceagent_tts.settings.engine import AlignerSettings, EngineSettings, VoiceSettings
from voiceagent_tts.settings.group import refused
from voiceagent_tts.settings.network import LimitSettings, LogSettings, NetworkSettings
from voiceagent_tts.settings.plugins import (
    CacheSettings,
    CloneSettings,
    JobSettings,
    ProvenanceSettings,
    UpstreamSettings,
)

_ENV_PREFIX = "VOICEAGENT_TTS_"
_OTHER_VARIABLES = ("CONFIG", "URL", "API_KEY", "WORKER_RUNG", "JUDGE_KEY", "WHISPER_KEY")
"""Variables that are not settings of the server: its file, the address and the key that clients
use, what a worker passes to its successor, and keys for other servers that commands use."""
_SERVICE_LINK = re.compile(
    r"\w+_SERVICE_(HOST|PORT(_\w+)?)|\w+_PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?"
)
_LIKE_PREFIX = re.compile("VOICE_?AGENT", re.IGNORECASE)
_SERVICE_ADDRESS = re.compile(r"(tcp|udp|sctp)://")


class Settings(  # pyright: ignore[reportIncompatibleVariableOverride] # `model_config`, as below
    BaseSettings,
    NetworkSettings,
    EngineSettings,
    UpstreamSettings,
    VoiceSettings,
    CloneSettings,
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

    model_config = SettingsConfigDict(env_prefix=_ENV_PREFIX, validate_default=False)

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
        """Return the sources in order of priority: arguments, environment, file."""
        named = os.environ.get("VOICEAGENT_TTS_CONFIG")
        path = Path(named or "voiceagent-tts.toml")
        try:
            if named and not path.is_file():
                raise FileNotFoundError(errno.ENOENT, "no file")
            file = TomlConfigSettingsSource(settings_cls, path)
        except OSError as error:
            name = "VOICEAGENT_TTS_CONFIG" if named else "the settings file"
            raise ValueError(f"{name}: {refused(path, error, 'TOML file')}") from None
        return init_settings, _Environment(settings_cls), file


class _Environment(EnvSettingsSource):
    """The variables of the environment that are settings; a misspelt one is refused."""

    def _load_env_vars(self) -> Mapping[str, str | None]:
        """Return the variables without those that Kubernetes sets for services."""
        links = {name.lower() for name, value in os.environ.items() if _is_link(name, value)}
        _refuse_unknown(name for name in os.environ if name.lower() not in links)
        variables = super()._load_env_vars()
        return {name: value for name, value in variables.items() if name not in links}


def _is_link(name: str, value: str) -> bool:
    """Whether Kubernetes sets this variable for a service.

    A service called `voiceagent-tts` gives each pod `VOICEAGENT_TTS_PORT=tcp://10.0.0.1:80`.
    """
    is_address = name.upper().endswith("_PORT") and _SERVICE_ADDRESS.match(value)
    return bool(is_address or _SERVICE_LINK.fullmatch(name.upper()))


def _refuse_unknown(names: Iterable[str]) -> None:
    """Refuse a variable with the settings' prefix, or nearly so, that is no setting."""
    known = {_ENV_PREFIX + each for each in (*_setting_names(), *_OTHER_VARIABLES)}
    for name in sorted(names):
        is_ours = name.upper().startswith(_ENV_PREFIX)
        if name.upper() in known or not (is_ours or _LIKE_PREFIX.match(name)):
            continue
        near = _near(name.upper())
        if near is not None or is_ours:
            remedy = f"did you mean {near}?" if near else "docs/settings.md lists all settings"
            raise ValueError(f"{name} is no setting; {remedy}")


def _near(name: str) -> str | None:
    """The setting's variable that a name was meant to be; None if it resembles none."""
    known = {_ENV_PREFIX + each: each for each in _setting_names()}
    ending = name.removeprefix(_ENV_PREFIX)
    if ending == name:  # the prefix itself is misspelt, or it is another program's
        return next(iter(get_close_matches(name, list(known), n=1, cutoff=0.85)), None)
    near = get_close_matches(ending, list(known.values()), n=1, cutoff=0.5)
    return _ENV_PREFIX + near[0] if near else None


def _setting_names() -> list[str]:
    return [name.upper() for name in Settings.model_fields]
