"""A cache that drops the least recently used value."""

from collections import OrderedDict
from typing import Generic, TypeVar

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


class LRUCache(Generic[_Key, _Value]):
    """Keeps the most recently used values."""

    def __init__(self, max_entries: int) -> None:
        self._max_entries = max_entries
        self._entries: OrderedDict[_Key, _Value] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: _Key) -> bool:
        return key in self._entries

    def get(self, key: _Key) -> _Value | None:
        """Return the value of `key` and mark it as used; None without one."""
        if key not in self._entries:
            return None
        self._entries.move_to_end(key)
        return self._entries[key]

    def peek(self, key: _Key) -> _Value | None:
        """Return the value of `key` without marking it as used; None without one."""
        return self._entries.get(key)

    def put(self, key: _Key, value: _Value) -> None:
        """Store a value as the most recently used one; drop others beyond the maximum."""
        self._entries[key] = value
        self._entries.move_to_end(key)
        while len(self._entries) > self._max_entries:
            self.drop_oldest()

    def drop_oldest(self) -> None:
        """Drop the value that was used least recently."""
        self._entries.popitem(last=False)
