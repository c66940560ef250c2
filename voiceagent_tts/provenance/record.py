"""Marks the audio of one context, and describes where it comes from.

`Marking` marks the audio of several contexts of a server at once. A GPU makes frames of many
contexts in one step, and they arrive together. Marked one by one, they took more of the event
loop's time than everything else that a server does with a frame. A thread beside the loop was tried
on an H200 and was slower: both waited for Python's global lock.
"""

import asyncio
import datetime
import hashlib
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass

from voiceagent_tts.provenance.keys import WatermarkKey
from voiceagent_tts.provenance.watermark import Marker, Unmarked, mark_together

_MOST_TOGETHER = 8
"""Contexts in one computation, and in one turn of the event loop: more leave a processor's caches,
and take up to ten times as long."""


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where audio comes from.

    Attributes:
        sha256: hex digest of the audio; None where it is not complete yet.
        model: model that generated the audio.
        time: when it was generated, as ISO 8601 in UTC.
        key_id: id of the key of its watermark; None if it is not marked.
    """

    sha256: str | None
    model: str
    time: str
    key_id: str | None

    def as_json(self) -> dict[str, str | None]:
        """The fields by name."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class _Waiting:
    audio: Unmarked
    on_marked: Callable[[bytes], None]


class Marking:
    """Marks audio with one key.

    Args:
        key: selects the watermark.
    """

    def __init__(self, key: WatermarkKey) -> None:
        self.key = key
        self._waiting: deque[_Waiting] = deque()

    def mark(self, marker: Marker, pcm: bytes, on_marked: Callable[[bytes], None]) -> None:
        """Mark the next PCM16 samples of a context; `on_marked` receives as many, soon.

        Args:
            marker: the context's; its samples are marked in the order of the calls.
            pcm: whole samples at 24 kHz.
            on_marked: called in one of the next turns of the event loop.
        """
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self._mark_some)
        self._waiting.append(_Waiting(marker.take(pcm), on_marked))

    def _mark_some(self) -> None:
        loop = asyncio.get_running_loop()
        some = [self._waiting.popleft() for _ in range(min(len(self._waiting), _MOST_TOGETHER))]
        if self._waiting:
            loop.call_soon(self._mark_some)
        marked = mark_together(self.key, [each.audio for each in some])
        for each, pcm in zip(some, marked, strict=True):
            loop.call_soon(each.on_marked, pcm)  # one that fails is no other context's loss


class AudioRecord:
    """Marks one context's audio while it is sent, and describes it.

    Args:
        model: names the model that generates the audio; asked once there is audio, as the language
            of the text may choose it.
        marking: marks the audio; None for unmarked audio.
    """

    def __init__(self, model: Callable[[], str], marking: Marking | None) -> None:
        self._model = model
        self._marking = marking
        self._marker: Marker | None = None  # from the first audio on
        self._digest = hashlib.sha256()

    def mark(self, pcm: bytes, on_marked: Callable[[bytes], None]) -> None:
        """Mark whole PCM16 samples at 24 kHz, the next ones of the context.

        `on_marked` receives as many, in order: now where audio is not marked, otherwise soon.
        """
        if self._marking is None:
            on_marked(pcm)
            return
        if self._marker is None:
            self._marker = Marker(self._marking.key)
        self._marking.mark(self._marker, pcm, on_marked)

    async def marked(self, pcm: bytes) -> bytes:
        """Return `pcm` marked, as `mark` does."""
        marked: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self.mark(pcm, lambda data: None if marked.cancelled() else marked.set_result(data))
        return await marked

    def add_sent(self, data: bytes) -> None:
        """Add audio to the digest, as the client receives it."""
        self._digest.update(data)

    def describe(self, *, is_complete: bool = True) -> Provenance:
        """Describe the audio.

        Args:
            is_complete: whether all of it was passed to `add_sent`, so that the digest is known.
        """
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        sha256 = self._digest.hexdigest() if is_complete else None
        return Provenance(
            sha256, self._model(), now, None if self._marking is None else self._marking.key.id
        )
