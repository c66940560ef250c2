"""Memory that requests hold: bodies that were received, and files that are being made.

It counts for the caller until the request is over, so that no caller can have all of it.
"""

import contextlib
from collections import Counter
from collections.abc import Iterator

from voiceagent_tts.errors import ErrorCode, OverloadedError

MAX_CALLER_BYTES = 192 << 20
"""Memory of one caller's requests: an hour of WAV, six of the largest uploads, or many files of a
minute. A caller that streams its audio holds almost none."""
_RETRY_MS = 1000


class Hold:
    """What one request holds; made by `HeldBytes.hold`."""

    def __init__(self, of_callers: "Counter[str]", owner: str) -> None:
        self._of_callers = of_callers
        self._owner = owner
        self.taken_bytes = 0

    def take(self, size_bytes: int) -> None:
        """Count bytes that the request holds from now on.

        Raises:
            OverloadedError: its caller has too many already (`rate_limited`).
        """
        if self._of_callers[self._owner] + size_bytes > MAX_CALLER_BYTES:
            raise OverloadedError(
                f"the requests of this caller hold its limit of {MAX_CALLER_BYTES >> 20} MiB; "
                "try again when some have ended, or stream the audio",
                code=ErrorCode.RATE_LIMITED,
                retry_after_ms=_RETRY_MS,
            )
        self._of_callers[self._owner] += size_bytes
        self.taken_bytes += size_bytes


class HeldBytes:
    """Counts what the requests of each caller hold."""

    def __init__(self) -> None:
        self._of_callers = Counter[str]()

    @contextlib.contextmanager
    def hold(self, owner: str) -> Iterator[Hold]:
        """Begin a request of a caller; at the end of the block it holds nothing."""
        hold = Hold(self._of_callers, owner)
        try:
            yield hold
        finally:
            self._of_callers[owner] -= hold.taken_bytes
            if not self._of_callers[owner]:
                del self._of_callers[owner]
