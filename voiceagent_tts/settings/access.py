"""Who may use the server, and how much of it."""

import contextlib
import hashlib
import json
import re
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Literal, cast

from pydantic import BaseModel, BeforeValidator, ConfigDict, field_validator, model_validator
from pydantic_settings import NoDecode

from voiceagent_tts.settings.group import (
    Count,
    Needs,
    SettingsGroup,
    Texts,
    allowed,
    regular,
    separated,
    split_list,
)

MIN_KEY_CHARS = 16
_HASH_PREFIX = "sha256:"
_HASH = re.compile(rf"{_HASH_PREFIX}[0-9a-f]{{64}}")
_ORIGIN = re.compile(r"([a-z][a-z0-9+.-]*)://([a-z0-9._-]+|\[[0-9a-f:.]+\])(:\d{1,5})?")
_OWN_PORTS = {"http": ":80", "https": ":443"}


def hash_key(key: str) -> str:
    """Hash an API key as settings and files store it: `sha256:` and the hex digest.

    Keys are random 256-bit strings, so a slow password hash would add no security.
    """
    return _HASH_PREFIX + hashlib.sha256(key.encode()).hexdigest()


def is_redis(address: str) -> bool:
    """Whether an address is that of a Redis server, and not a path."""
    return address.startswith(("redis://", "rediss://", "unix://"))


def _as_browsers_send_it(origin: str) -> str:
    """Return the `Origin` header of a page, given its address or host as people write it."""
    scheme, _, rest = origin.strip().lower().rpartition("://")
    host = rest.partition("/")[0]
    with contextlib.suppress(UnicodeError):
        host = host.encode("idna").decode() if not host.isascii() else host
    found = _ORIGIN.fullmatch(f"{scheme or 'https'}://{host}")
    if found is None:
        raise ValueError(f"expected an origin such as https://example.com, got {origin!r}")
    port = found[3] or ""
    return f"{found[1]}://{found[2]}{'' if _OWN_PORTS.get(found[1]) == port else port}"


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

    contexts: Count | None = None
    contexts_per_s: Count | None = None
    chars_per_minute: Count | None = None
    audio_s_per_day: Count | None = None

    @model_validator(mode="before")
    @classmethod
    def _parse(cls, value: object) -> object:
        """Accept JSON, or `name=number` separated by commas, for environment variables."""
        if not isinstance(value, str):
            return value
        if value.startswith("{"):
            return json.loads(value)
        if not value.strip():
            return {}
        parts = (part.partition("=") for part in separated(value))
        return {name.strip(): number for name, _, number in parts}

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


def _long_keys(value: object) -> object:
    """Refuse keys that could be guessed or not sent, where people write them: in texts and files.

    A program that makes its own settings passes a tuple, and knows what it does.
    """
    written = split_list(value)
    keys = cast("list[object]", written) if isinstance(written, list) else []
    if any(len(str(key)) < MIN_KEY_CHARS for key in keys):
        raise ValueError(
            f"expected keys of at least {MIN_KEY_CHARS} characters; make one with "
            "`openssl rand -hex 32`"
        )
    if not all(str(key).isascii() and str(key).isprintable() for key in keys):
        raise ValueError("expected keys of ASCII characters; no header carries others")
    return cast("object", written)


class AccessSettings(SettingsGroup):
    """Keys, origins and proxies; limits, and the Redis that counts for several servers.

    Attributes:
        keys: JSON file or Redis address (`redis://HOST:PORT/DB`) of the API keys that
            `voiceagent-tts keys` manages. Changes take effect within two seconds.
        api_keys: API keys with all scopes, of at least 16 characters, or their `sha256:` hashes,
            separated by commas. The server stores only hashes. Change them with a restart.
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
    api_keys: Annotated[Texts, BeforeValidator(_long_keys)] = ()
    allow_anonymous: bool = False
    allowed_origins: Texts = ()
    trusted_proxies: Texts = ("127.0.0.1", "::1")
    key_limits: Annotated[Quota, NoDecode, Needs("keys", "api_keys")] = Quota()
    ip_limits: Annotated[Quota, NoDecode] = Quota()
    redis: str | None = None
    without_redis: Annotated[Literal["local", "refuse"], Needs("redis")] = "local"

    @property
    def needs_key(self) -> bool:
        """Whether a request needs a key. A file of keys may be empty; then none is accepted."""
        return bool(self.api_keys) or self.keys is not None

    @field_validator("api_keys", mode="after")
    @classmethod
    def _hash(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if any(key.startswith(_HASH_PREFIX) and not _HASH.fullmatch(key) for key in value):
            raise ValueError(
                f"expected {_HASH_PREFIX} and 64 hex digits; try the key itself, or "
                "`voiceagent-tts keys create`"
            )
        return tuple(key if key.startswith(_HASH_PREFIX) else hash_key(key) for key in value)

    @field_validator("allowed_origins", mode="after")
    @classmethod
    def _check_origins(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for origin in value:
            if (sent := _as_browsers_send_it(origin)) != origin:
                raise ValueError(f"no browser sends the origin {origin!r}; write {sent}")
        return value

    @field_validator("keys", mode="after")
    @classmethod
    def _check_keys(cls, value: str | None) -> str | None:
        if value is not None and not is_redis(value):
            regular(allowed(Path(value)))
        return value

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
            for network in value:  # uvicorn silently skips values that are not networks
                _check_network(network)
        return value


def _check_network(network: str) -> None:
    with contextlib.suppress(ValueError):
        ip_network(network)
        return
    try:
        remedy = f"write {ip_network(network, strict=False)}"
    except ValueError:
        remedy = "write addresses, or networks such as 10.0.0.0/8"
    raise ValueError(f"{network!r} is no network; {remedy}")
