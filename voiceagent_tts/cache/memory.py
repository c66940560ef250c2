"""The phrases in this server's memory: bounded in bytes, dropped when they are old or unused."""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from voiceagent_tts.cache.phrase import Phrase, Spoken


@dataclass(frozen=True, slots=True)
class _Entry:
    phrase: Phrase
    expires_at: float


class PhraseMemory:
    """Keeps the most recently used phrases.

    Args:
        max_bytes: maximum size of all phrases together.
        clock: seconds that never go back, such as `time.monotonic`.

    Attributes:
        size_bytes: memory in use.
        evicted: phrases that were dropped for lack of room.
    """

    def __init__(self, max_bytes: float, clock: Callable[[], float]) -> None:
        self.size_bytes = 0
        self.evicted = 0
        self._max_bytes = max_bytes
        self._clock = clock
        self._entries: OrderedDict[str, _Entry] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, digest: str) -> bool:
        return digest in self._entries

    def get(self, digest: str) -> Phrase | None:
        """Return a phrase and mark it as used; None without one that is young enough."""
        entry = self._entries.get(digest)
        if entry is None:
            return None
        if entry.expires_at <= self._clock():
            self.drop(digest)
            return None
        self._entries.move_to_end(digest)
        return entry.phrase

    def begins(self, text: str, spoken: Spoken) -> bool:
        """Whether a phrase of a voice begins with a text, or is that text."""
        phrases = (entry.phrase for entry in self._entries.values())
        return any(each.spoken == spoken and each.text.startswith(text) for each in phrases)

    def put(self, digest: str, phrase: Phrase, ttl_s: float) -> bool:
        """Keep a phrase for `ttl_s`; return whether it fits at all."""
        self.drop(digest)
        if phrase.size_bytes > self._max_bytes:
            return False
        self._entries[digest] = _Entry(phrase, self._clock() + ttl_s)
        self.size_bytes += phrase.size_bytes
        while self.size_bytes > self._max_bytes:
            self.drop(next(iter(self._entries)))
            self.evicted += 1
        return True

    def drop(self, digest: str) -> None:
        """Forget a phrase; idempotent."""
        entry = self._entries.pop(digest, None)
        if entry is not None:
            self.size_bytes -= entry.phrase.size_bytes

    def drop_expired(self) -> None:
        """Forget the phrases that are too old."""
        now = self._clock()
        self._drop_where(lambda entry: entry.expires_at <= now)

    def drop_voices(self, withdrawn: set[Spoken]) -> int:
        """Forget all phrases of some voices; return their number."""
        return self._drop_where(lambda entry: entry.phrase.spoken in withdrawn)

    def clear(self) -> None:
        """Forget all phrases."""
        self._drop_where(lambda entry: True)

    def digests(self) -> list[str]:
        """The keys of the phrases."""
        return list(self._entries)

    def _drop_where(self, is_dropped: Callable[[_Entry], bool]) -> int:
        digests = [digest for digest, each in self._entries.items() if is_dropped(each)]
        for digest in digests:
            self.drop(digest)
        return len(digests)
