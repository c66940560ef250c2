"""Places for uploads that wait to be worked on, with a share for each key."""

import contextlib
from collections import Counter
from collections.abc import Iterator

from voiceagent_tts.errors import OverloadedError

MAX_PLACES = 16
_SHARES = 4
"""A key may have one of as many parts of the places."""
_RETRY_MS = 10_000


class Places:
    """The places for one kind of work.

    Args:
        busy: what they are taken for, as in "16 voices are being made".
    """

    def __init__(self, busy: str) -> None:
        self._busy = busy
        self._used = Counter[str | None]()

    @contextlib.contextmanager
    def take(self, key_id: str | None) -> Iterator[None]:
        """Have a place among the requests that wait, or are being served.

        Args:
            key_id: the key, which may have a quarter of the places; None on a server without keys.

        Raises:
            OverloadedError: all places are taken, or those of the key.
        """
        most_of_key = MAX_PLACES if key_id is None else MAX_PLACES // _SHARES
        if self._used.total() >= MAX_PLACES or self._used[key_id] >= most_of_key:
            raise OverloadedError(
                f"{self._used.total()} {self._busy}; try again later", retry_after_ms=_RETRY_MS
            )
        self._used[key_id] += 1
        try:
            yield
        finally:
            self._used[key_id] -= 1
            self._used += Counter()  # keeps no key that has none
