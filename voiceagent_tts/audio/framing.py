"""A context's encoded audio, cut into messages.

The first bytes are sent at once; bytes that queue until the next message are merged, up to a
maximum. This module knows no sockets and no pacing, and never waits.
"""

from collections import deque

from voiceagent_tts.core import MAX_MESSAGE_PCM_BYTES


class MessageQueue:
    """Queues whole samples and returns them in messages of whole samples, in order.

    The cost of `push` and `pop` depends on the bytes that they move, not on the queue's length.

    Args:
        max_bytes: maximum size of a message; a multiple of the size of a sample.
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
        """Queue whole samples without copying them."""
        if data:
            self._pieces.append(memoryview(data))
            self._queued_bytes += len(data)

    def pop(self) -> bytes | None:
        """Remove and return the next message: the queue up to `max_bytes`; None if it is empty."""
        if not self._pieces:
            return None
        message = b"".join(self._pop_pieces(min(self._queued_bytes, self._max_bytes)))
        self._queued_bytes -= len(message)
        return message

    def _pop_pieces(self, size: int) -> list[memoryview]:
        taken: list[memoryview] = []
        while size:
            piece = self._pieces.popleft()
            if len(piece) > size:
                self._pieces.appendleft(piece[size:])
                piece = piece[:size]
            taken.append(piece)
            size -= len(piece)
        return taken
