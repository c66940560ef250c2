"""A context's encoded bytes, cut into messages.

The first bytes go out at once; what has queued up by the time of the next message is merged, up
to the cap. The room knows nothing of sockets and pacing: it never waits, it is asked.
"""

from collections import deque

from voiceagent_tts.core import MAX_MESSAGE_PCM_BYTES


class MessageQueue:
    """Whole samples in, messages of whole samples out, in order.

    `push` and `pop` cost no more than the bytes that they move, however much is queued.

    Args:
        max_bytes: most bytes in a message; a multiple of the size of a sample.
    """

    def __init__(self, max_bytes: int = MAX_MESSAGE_PCM_BYTES) -> None:
        self._max_bytes = max_bytes
        self._pieces: deque[memoryview] = deque()
        self._queued_bytes = 0

    @property
    def queued_bytes(self) -> int:
        """Bytes pushed and not yet popped."""
        return self._queued_bytes

    def push(self, data: bytes) -> None:
        """Queue whole samples; they are kept as they are until they are popped."""
        if data:
            self._pieces.append(memoryview(data))
            self._queued_bytes += len(data)

    def pop(self) -> bytes | None:
        """Take the next message: all that is queued, up to the cap; None where nothing is."""
        if not self._pieces:
            return None
        message = b"".join(self._take(min(self._queued_bytes, self._max_bytes)))
        self._queued_bytes -= len(message)
        return message

    def _take(self, size: int) -> list[memoryview]:
        taken: list[memoryview] = []
        while size:
            piece = self._pieces.popleft()
            if len(piece) > size:
                self._pieces.appendleft(piece[size:])
                piece = piece[:size]
            taken.append(piece)
            size -= len(piece)
        return taken
