"""Where keys are kept, and those that a running server accepts.

Keys are in a JSON file or in one string in Redis, which have the same document. A store that cannot
be read, or that is malformed, changes nothing: the keys of the last good reading stay, and the log
says so once.
"""

import asyncio
import contextlib
import fcntl
import hmac
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import structlog

from voiceagent_tts.errors import ErrorCode, InvalidRequestError, OverloadedError, VoiceAgentError
from voiceagent_tts.plugins.keys.keys import Key, KeyDocument, key_of_settings
from voiceagent_tts.plugins.redis.connection import PREFIX, away_errors, connect, shown
from voiceagent_tts.settings.access import AccessSettings, hash_key, is_redis

Change = Callable[[KeyDocument], KeyDocument]

_REDIS_KEY = f"{PREFIX}:keys"
_MAX_BYTES = 16 << 20

_log = structlog.get_logger(__name__)


class KeyStore(Protocol):
    """Stores a document of keys: a file, or Redis."""

    @property
    def location(self) -> str:
        """Where the keys are, for messages; without secrets."""
        ...

    async def read(self) -> str | None:
        """Return the text of the document; None if there is none.

        Raises:
            InvalidRequestError: the location cannot be read.
            OverloadedError: Redis cannot be reached.
        """
        ...

    async def change(self, change: Change) -> None:
        """Apply `change` to the document. Concurrent changes of two programs both take effect.

        Raises:
            InvalidRequestError: the document is malformed, or cannot be read or written.
            OverloadedError: Redis cannot be reached.
        """
        ...

    async def close(self) -> None:
        """Close connections."""
        ...


def open_store(location: str) -> KeyStore:
    """Return the store at a path or a Redis address."""
    return RedisKeys(location) if is_redis(location) else KeyFile(Path(location).expanduser())


async def read_document(store: KeyStore) -> KeyDocument:
    """The keys of a store; none where it has no document.

    Raises:
        InvalidRequestError: the document is malformed, or cannot be read.
        OverloadedError: Redis cannot be reached.
    """
    return KeyDocument.parse(await store.read() or "{}", store.location)


class KeyFile:
    """Keys in a JSON file, which only its owner may read."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @property
    def location(self) -> str:
        """Where the keys are, for messages; without secrets."""
        return str(self._path)

    async def read(self) -> str | None:
        """Return the text of the document; arguments and errors as for `KeyStore`."""
        return await asyncio.to_thread(self._read)

    def _read(self) -> str | None:
        try:
            with self._path.open("rb") as file:
                data = file.read(_MAX_BYTES + 1)
            if len(data) > _MAX_BYTES:
                raise InvalidRequestError(f"{self.location}: expected a file of at most 16 MiB")
            return data.decode("utf-8")
        except FileNotFoundError:
            return None
        except UnicodeDecodeError:
            raise InvalidRequestError(
                f"{self.location} has no valid keys: it is not UTF-8"
            ) from None
        except (OSError, ValueError) as error:  # ValueError: a path with NUL
            reason = error.strerror if isinstance(error, OSError) else error
            raise InvalidRequestError(f"{self.location}: cannot read the keys: {reason}") from None

    async def change(self, change: Change) -> None:
        """Replace the document, at once for its readers."""
        await asyncio.to_thread(self._change, change)

    def _change(self, change: Change) -> None:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            # Of two programs that change the file, the second waits for the first.
            with open(f"{self._path}.lock", "w", opener=_private) as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                document = change(KeyDocument.parse(self._read() or "{}", self.location))
                self._write(document.dump())
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            raise InvalidRequestError(f"{self.location}: cannot write the keys: {reason}") from None

    def _write(self, text: str) -> None:
        """Replace the file: a reader sees the old keys or the new ones, also after a crash."""
        descriptor, name = tempfile.mkstemp(dir=self._path.parent, prefix=f".{self._path.name}.")
        try:
            with open(descriptor, "w", encoding="utf-8") as file:
                self._keep_owner(descriptor)
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.replace(name, self._path)
        except BaseException:
            os.unlink(name)
            raise

    def _keep_owner(self, descriptor: int) -> None:
        """Give the new file to the owner of the old one: root may have been asked to change it."""
        with contextlib.suppress(FileNotFoundError, PermissionError):
            status = self._path.stat()
            os.fchown(descriptor, status.st_uid, status.st_gid)

    async def close(self) -> None:
        """Nothing stays open."""


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


class RedisKeys:
    """Keys in one string of a Redis server, which all servers read."""

    def __init__(self, address: str) -> None:
        self._redis = connect(address)
        self.location = shown(address)

    async def read(self) -> str | None:
        """Return the text of the document; arguments and errors as for `KeyStore`."""
        try:
            return _text(await self._redis.get(_REDIS_KEY), self.location)
        except away_errors() as error:
            raise _away(self.location, error) from None

    async def change(self, change: Change) -> None:
        """Replace the document, unless another program does so first; then try again."""
        try:
            await self._redis.transaction(lambda pipe: self._replace(pipe, change), _REDIS_KEY)
        except away_errors() as error:
            raise _away(self.location, error) from None

    async def _replace(self, pipe: Any, change: Change) -> None:
        text = _text(await pipe.get(_REDIS_KEY), self.location)
        document = change(KeyDocument.parse(text or "{}", self.location))
        pipe.multi()
        pipe.set(_REDIS_KEY, document.dump())

    async def close(self) -> None:
        """Close the connections."""
        await self._redis.aclose()


def _text(data: bytes | str | None, location: str) -> str | None:
    try:
        return data.decode() if isinstance(data, bytes) else data
    except UnicodeDecodeError:
        raise InvalidRequestError(f"{location} has no valid keys: they are not UTF-8") from None


def _away(location: str, error: Exception) -> OverloadedError:
    return OverloadedError(
        f"cannot reach Redis at {location} ({type(error).__name__}); check that it runs and "
        "accepts this user",
        code=ErrorCode.OVERLOADED,
    )


@dataclass(frozen=True, slots=True)
class KeyChange:
    """What a reading of the store has changed.

    Attributes:
        added: keys with a new id, or a new secret.
        removed: keys whose secret is not accepted any more.
        changed: keys with other scopes, limits or names, as they are now.
    """

    added: tuple[Key, ...]
    removed: tuple[Key, ...]
    changed: tuple[Key, ...]


class KeyRing:
    """The keys of a server; `start` reads them, and `reload` reads them again.

    Args:
        settings: `api_keys`, which never change, and `keys`, the location of the others.
    """

    def __init__(
        self, settings: AccessSettings, on_change: Callable[[KeyChange], None] = lambda change: None
    ) -> None:
        self.problem: str | None = None
        """Why the store could not be read last time; None if it could."""
        self._own = {key.id: key for key in map(key_of_settings, settings.api_keys)}
        self._stored: dict[str, Key] = {}
        self._store = None if settings.keys is None else open_store(settings.keys)
        self._text: str | None = None
        self._on_change = on_change

    def __len__(self) -> int:
        return len(self._own) + len(self._stored)

    def get(self, key_id: str) -> Key | None:
        """Return a key by its id; None if it was revoked or never existed."""
        return self._own.get(key_id) or self._stored.get(key_id)

    @property
    def ids(self) -> list[str]:
        """The ids of all keys."""
        return [*self._own, *self._stored]

    def find(self, offered: str) -> Key | None:
        """Return the key that a client has sent, or None.

        The time that this takes tells nothing about the keys: the hash is compared with that of
        every key, without an early exit.
        """
        hashed, found = hash_key(offered), None
        for keys in (self._own, self._stored):
            for key in keys.values():
                if hmac.compare_digest(hashed, key.hash):
                    found = key
        return found

    async def start(self) -> None:
        """Read the store.

        Raises:
            InvalidRequestError: there are no keys at the location, or they are malformed.
            OverloadedError: Redis cannot be reached.
        """
        if self._store is not None:
            self._stored = await self._read(self._store) or {}

    async def reload(self) -> None:
        """Read the store again, and report what has changed."""
        if self._store is None:
            return
        try:
            stored = await self._read(self._store)
        except VoiceAgentError as error:
            if error.message != self.problem:
                _log.error("keys_not_read", problem=error.message, keeps=len(self._stored))
            self.problem = error.message
            return
        if self.problem is not None:
            _log.info("keys_read_again", place=self._store.location)
        self.problem = None
        if stored is not None:
            before, self._stored = self._stored, stored
            self._report(before, stored)

    async def _read(self, store: KeyStore) -> dict[str, Key] | None:
        """Return the keys of the store, or None if its text is that of the last reading."""
        text = await store.read()
        if text is None:
            raise InvalidRequestError(
                f"there are no keys at {store.location}; set VOICEAGENT_TTS_KEYS to it, and make "
                "one with `voiceagent-tts keys create NAME`"
            )
        if text == self._text:
            return None
        document = KeyDocument.parse(text, store.location)
        self._text = text
        return {key.id: key for key in document.keys}

    def _report(self, before: dict[str, Key], now: dict[str, Key]) -> None:
        kept = {
            key_id
            for key_id in before.keys() & now.keys()
            if before[key_id].hash == now[key_id].hash
        }
        change = KeyChange(
            added=tuple(now[key_id] for key_id in now if key_id not in kept),
            removed=tuple(before[key_id] for key_id in before if key_id not in kept),
            changed=tuple(
                now[key_id] for key_id in now if key_id in kept and before[key_id] != now[key_id]
            ),
        )
        _log.info(
            "keys_changed",
            added=[key.id for key in change.added],
            removed=[key.id for key in change.removed],
            changed=[key.id for key in change.changed],
        )
        self._on_change(change)

    async def close(self) -> None:
        """Close the store."""
        if self._store is not None:
            await self._store.close()
