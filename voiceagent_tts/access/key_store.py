"""Where keys are kept: a JSON file, or one string in Redis; both have the same document."""

import asyncio
import contextlib
import fcntl
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from voiceagent_tts.access.keys import KeyDocument
from voiceagent_tts.access.redis_server import PREFIX, away_errors, connect, shown
from voiceagent_tts.errors import ErrorCode, InvalidRequestError, OverloadedError
from voiceagent_tts.settings.access import is_redis

Change = Callable[[KeyDocument], KeyDocument]

_REDIS_KEY = f"{PREFIX}:keys"
_MAX_BYTES = 16 << 20


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
