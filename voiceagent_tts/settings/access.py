"""Who may use the server, and how much of it."""

import hashlib
import json
from ipaddress import ip_network
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator
from pydantic_settings import NoDecode

from voiceagent_tts.settings.group import SettingsGroup, Texts

_HASH_PREFIX = "sha256:"


def hash_key(key: str) -> str:
    """Hash an API key as settings and files store it: `sha256:` and the hex digest.

    Keys are random 256-bit strings, so a slow password hash would add no security.
    """
    return _HASH_PREFIX + hashlib.sha256(key.encode()).hexdigest()


def is_redis(address: str) -> bool:
    """Whether an address is that of a Redis server, and not a path."""
    return address.startswith(("redis://", "rediss://", "unix://"))


class Quota(BaseModel):
    """Limits of one API key or one address. None is no limit.

    Written as text: `contexts=20,chars_per_minute=9000`.

    Attributes:
        contexts: contexts that are open at the same time.
        contexts_per_s: new contexts per second.
        chars_per_minute: characters of text per minute.
        audio_s_per_day: seconds of generated audio within 24 hours.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    contexts: int | None = Field(default=None, ge=1)
    contexts_per_s: int | None = Field(default=None, ge=1)
    chars_per_minute: int | None = Field(default=None, ge=1)
    audio_s_per_day: int | None = Field(default=None, ge=1)

    @model_validator(mode="before")
    @classmethod
    def _parse(cls, value: object) -> object:
        """Accept JSON, or `name=number` separated by commas, for environment variables."""
        if not isinstance(value, str):
            return value
        if value.startswith("{"):
            return json.loads(value)
        parts = [part.strip() for part in value.split(",") if part.strip()]
        return {name.strip(): number for name, _, number in (part.partition("=") for part in parts)}

    def over(self, general: "Quota") -> "Quota":
        """Return these limits, and those of `general` where there are none."""
        return general.model_copy(update=self.given)

    @property
    def given(self) -> dict[str, int]:
        """The limits that are set, by name."""
        return self.model_dump(exclude_none=True)

    def __str__(self) -> str:
        """The text form."""
        return ",".join(f"{name}={number}" for name, number in self.given.items())


class AccessSettings(SettingsGroup):
    """Keys, origins and proxies; limits, and the Redis that counts for several servers.

    Attributes:
        keys: JSON file or Redis address (`redis://HOST:PORT/DB`) of the API keys that
            `voiceagent-tts keys` manages. Changes take effect within two seconds. An empty value
            is none.
        api_keys: API keys with all scopes, or their `sha256:` hashes, separated by commas. The
            server stores only hashes. Change them with a restart.
        allow_anonymous: Serve without API keys on an address that other machines can reach.
        allowed_origins: Web origins that may connect, separated by commas. Other requests with an
            `Origin` header are refused, except those from the server's own origin.
        trusted_proxies: Addresses or networks of proxies, separated by commas. Only their
            `X-Forwarded-For` header names the client's address, which `ip_limits` counts by.
        key_limits: Limits of every API key that has none of its own, such as
            `contexts=20,contexts_per_s=5,chars_per_minute=20000,audio_s_per_day=36000`.
        ip_limits: The same limits for every client address; an IPv6 address counts as its /64.
        redis: Redis address (`redis://HOST:PORT/DB`) that shares limits and usage
            between servers. Default: each server counts in its own memory, until it ends.
        without_redis: What happens while Redis cannot be reached: `local` (each server applies the
            limits to its own contexts) or `refuse` (no new contexts of limited keys).
    """

    keys: str | None = None
    api_keys: Texts = ()
    allow_anonymous: bool = False
    allowed_origins: Texts = ()
    trusted_proxies: Texts = ("127.0.0.1", "::1")
    key_limits: Annotated[Quota, NoDecode] = Quota()
    ip_limits: Annotated[Quota, NoDecode] = Quota()
    redis: str | None = None
    without_redis: Literal["local", "refuse"] = "local"

    @property
    def needs_key(self) -> bool:
        """Whether a request needs a key. A file of keys may be empty; then none is accepted."""
        return bool(self.api_keys) or self.keys is not None

    @field_validator("keys", mode="after")
    @classmethod
    def _has_name(cls, value: str | None) -> str | None:
        return value or None  # so that the environment can take away what the settings file names

    @field_validator("api_keys", mode="after")
    @classmethod
    def _hash(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(key if key.startswith(_HASH_PREFIX) else hash_key(key) for key in value)

    @field_validator("redis", mode="after")
    @classmethod
    def _check_redis(cls, value: str | None) -> str | None:
        if value is not None and not is_redis(value):
            raise ValueError("expected a Redis address, such as redis://127.0.0.1:6379/0")
        return value

    @field_validator("trusted_proxies", mode="after")
    @classmethod
    def _check_networks(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if value != ("*",):
            for network in value:  # uvicorn ignores what is none, without a word
                ip_network(network)
        return value
