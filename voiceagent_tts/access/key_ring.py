"""The keys that a running server accepts, from its settings and from a store that may change.

A store that cannot be read, or that is malformed, changes nothing: the keys of the last good
reading stay, and the log says so once.
"""

import hmac
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

from voiceagent_tts.access.keys import Key, KeyDocument, key_of_settings
from voiceagent_tts.errors import InvalidRequestError, VoiceAgentError
from voiceagent_tts.settings.access import AccessSettings, hash_key

if TYPE_CHECKING:
    from voiceagent_tts.access.key_store import KeyStore

_log = structlog.get_logger(__name__)


def _store_of(settings: AccessSettings) -> "KeyStore | None":
    """Where the settings say that keys are; None for those in the settings alone."""
    if settings.keys is None:
        return None
    from voiceagent_tts.access.key_store import open_store

    return open_store(settings.keys)


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
        self._store = _store_of(settings)
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

    async def _read(self, store: "KeyStore") -> dict[str, Key] | None:
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
