"""Marks the audio of one context, and describes where it comes from."""

import asyncio
import datetime
import hashlib
from collections.abc import Callable
from dataclasses import asdict, dataclass

from voiceagent_tts.provenance.marking import Marking
from voiceagent_tts.provenance.watermark import Marker


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
        self._marker = None if marking is None else Marker(marking.key)
        self._digest = hashlib.sha256()

    def mark(self, pcm: bytes, on_marked: Callable[[bytes], None]) -> None:
        """Mark whole PCM16 samples at 24 kHz, the next ones of the context.

        `on_marked` receives as many, in order: now where audio is not marked, otherwise soon.
        """
        if self._marking is None or self._marker is None:
            on_marked(pcm)
        else:
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
