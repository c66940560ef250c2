"""Marks the audio of one context, and describes where it comes from."""

import datetime
import hashlib
from collections.abc import Callable
from dataclasses import asdict, dataclass

from voiceagent_tts.provenance.keys import WatermarkKey
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
        key: selects the watermark; None for unmarked audio.
    """

    def __init__(self, model: Callable[[], str], key: WatermarkKey | None) -> None:
        self._model = model
        self._key = key
        self._marker = None if key is None else Marker(key)
        self._digest = hashlib.sha256()

    def mark(self, pcm: bytes) -> bytes:
        """Mark whole PCM16 samples at 24 kHz, the next ones of the context."""
        return pcm if self._marker is None else self._marker.push(pcm)

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
        return Provenance(sha256, self._model(), now, None if self._key is None else self._key.id)
