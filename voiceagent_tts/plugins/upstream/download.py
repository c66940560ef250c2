"""The audio of one text on its way from the upstream to the engine's thread.

Audio that the engine does not take is not read: the connection's own buffers then stop the
upstream.
"""

import asyncio
import threading
from concurrent.futures import Future

from voiceagent_tts.core import BYTES_PER_SAMPLE, SAMPLE_RATE_HZ
from voiceagent_tts.errors import VoiceAgentError

_MOST_BUFFERED_BYTES = 10 * SAMPLE_RATE_HZ * BYTES_PER_SAMPLE
_FULL_POLL_S = 0.05


class Download:
    """The audio of one text, on its way. Made by `Upstream.speak`.

    Attributes:
        error: why it ended early; None without an error.
        has_begun: whether any audio has arrived.
    """

    def __init__(self) -> None:
        self.error: VoiceAgentError | None = None
        self._lock = threading.Lock()
        self._pcm = bytearray()
        self.has_begun = False
        self._is_complete = False
        self._task: Future[None] | None = None

    # For the engine's thread.

    @property
    def has_arrived(self) -> bool:
        """Whether nothing more will arrive."""
        return self._is_complete

    @property
    def is_spent(self) -> bool:
        """Whether all of it has arrived and was taken; half a sample at its end is dropped."""
        return self._is_complete and len(self._pcm) < BYTES_PER_SAMPLE

    def take(self, max_samples: int) -> bytes:
        """Remove and return at most `max_samples` of what has arrived."""
        with self._lock:
            size = min(len(self._pcm) // BYTES_PER_SAMPLE, max_samples) * BYTES_PER_SAMPLE
            taken = bytes(self._pcm[:size])
            del self._pcm[:size]
        return taken

    def cancel(self) -> None:
        """Close the connection; idempotent."""
        if self._task is not None:
            self._task.cancel()

    # For the thread of the requests.

    @property
    def is_full(self) -> bool:
        """Whether the engine must take audio before more is read."""
        return len(self._pcm) >= _MOST_BUFFERED_BYTES

    async def wait_for_room(self) -> None:
        """Return when the engine has taken enough of what has arrived."""
        while self.is_full:
            await asyncio.sleep(_FULL_POLL_S)

    def follow(self, task: "Future[None]") -> None:
        """Remember the request, so that it can be cancelled."""
        self._task = task

    def push(self, data: bytes) -> None:
        """Append PCM16 at 24 kHz; a sample may be cut in two."""
        self.has_begun = True
        with self._lock:
            self._pcm += data

    def complete(self, error: VoiceAgentError | None = None) -> None:
        """End the audio, after an error or without one."""
        self.error = error
        self._is_complete = True
