"""API keys: scopes, limits, and the document in which a file or Redis keeps them.

A key is shown once, when it is made; the document has its hash. This module reads and writes no
file.
"""

import secrets
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from voiceagent_tts.errors import ErrorCode, InvalidRequestError
from voiceagent_tts.mistakes import mistake_in
from voiceagent_tts.settings.access import Quota, hash_key

_ID_BYTES = 4
_SECRET_BYTES = 32
_PREFIX = "vatts"


class Scope(StrEnum):
    """What a key permits. Scopes are independent: none includes another."""

    SPEAK = "speak"
    """Contexts over sockets and HTTP, and the lists of voices and models."""
    VOICES_WRITE = "voices:write"
    """Add, design, download and remove voices."""
    ADMIN = "admin"
    """Metrics, and the usage of all keys."""


def _one_line(value: str) -> str:
    if not value.isprintable():
        raise ValueError("expected printable characters in one line")
    return value


class Key(BaseModel):
    """A key as it is stored.

    Attributes:
        id: name of the key in logs and usage; not secret.
        name: what the key is for.
        hash: `sha256:` and the digest of the key.
        scopes: what the key permits.
        limits: limits of this key; the server's `key_limits` apply where it has none.
        created_at: when it was made, in UTC.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: str = Field(pattern=r"^[\w:.-]{1,64}$")
    name: Annotated[str, Field(min_length=1, max_length=128), AfterValidator(_one_line)]
    hash: str = Field(pattern=r"^sha256:[0-9a-f]{64}$")
    scopes: frozenset[Scope] = Field(min_length=1)
    limits: Quota = Quota()
    created_at: datetime

    @property
    def is_admin(self) -> bool:
        """Whether it may see and do everything."""
        return Scope.ADMIN in self.scopes

    @property
    def listed_scopes(self) -> list[str]:
        """The scopes, in one order."""
        return sorted(self.scopes)


class KeyDocument(BaseModel):
    """All keys of one file or Redis server."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    keys: tuple[Key, ...] = ()

    @classmethod
    def parse(cls, text: str, location: str) -> "KeyDocument":
        """Parse the JSON of a document.

        Raises:
            InvalidRequestError: the document is malformed, or two keys share an id.
        """
        try:
            document = cls.model_validate_json(text)
        except ValidationError as error:
            place, mistake = mistake_in(error)
            raise InvalidRequestError(
                f"{location} has no valid keys: {place or 'the document'}: {mistake}; restore the "
                "document that `voiceagent-tts keys` wrote"
            ) from None
        ids = [key.id for key in document.keys]
        if len(set(ids)) < len(ids):
            raise InvalidRequestError(f"{location} has two keys with one id; remove one of them")
        return document

    def dump(self) -> str:
        """The JSON of this document, for people too."""
        return self.model_dump_json(indent=1, exclude_defaults=True) + "\n"

    def with_key(self, key: Key) -> "KeyDocument":
        """Return a document that also has `key`."""
        return KeyDocument(keys=(*self.keys, key))

    def without(self, key_id: str) -> "KeyDocument":
        """Return a document without a key.

        Raises:
            InvalidRequestError: there is no such key.
        """
        kept = tuple(key for key in self.keys if key.id != key_id)
        if len(kept) == len(self.keys):
            raise InvalidRequestError(
                f"there is no key {key_id[:64]!r}; `voiceagent-tts keys list` shows the ids",
                code=ErrorCode.NOT_FOUND,
            )
        return KeyDocument(keys=kept)


@dataclass(frozen=True, slots=True)
class NewKey:
    """A key that was just made; `secret` is what its client sends, and is kept nowhere."""

    key: Key
    secret: str


def make_key(name: str, scopes: frozenset[Scope], limits: Quota) -> NewKey:
    """Make a random key.

    Raises:
        InvalidRequestError: the name is empty, too long or not printable, or there is no scope.
    """
    key_id = secrets.token_hex(_ID_BYTES)
    secret = f"{_PREFIX}_{key_id}_{secrets.token_urlsafe(_SECRET_BYTES)}"
    now = datetime.now(UTC).replace(microsecond=0)
    try:
        key = Key(
            id=key_id, name=name, hash=hash_key(secret), scopes=scopes, limits=limits,
            created_at=now,
        )  # fmt: skip
    except ValidationError as error:
        sentence = ": ".join(mistake_in(error))
        raise InvalidRequestError(sentence, code=ErrorCode.INVALID_PARAM) from None
    return NewKey(key, secret)


def key_of_settings(hashed: str) -> Key:
    """Return a key of the setting `api_keys`: it has all scopes and the server's limits."""
    return Key(
        id=f"settings-{hashed.partition(':')[2][:8]}",
        name="api_keys",
        hash=hashed,
        scopes=frozenset(Scope),
        created_at=datetime.fromtimestamp(0, UTC),
    )
