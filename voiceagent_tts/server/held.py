"""Memory that is held for callers: bodies, files that are being made, and texts for `cut`.

It counts against the caller until it is released, so that no caller can use all of it.
"""

import contextlib
import time
from array import array
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from voiceagent_tts.core import Word, WordTimestamp
from voiceagent_tts.errors import ErrorCode, InvalidRequestError, OverloadedError
from voiceagent_tts.synthesizer.events import TimedText

MAX_CALLER_BYTES = 80 << 20
"""Memory of one caller's requests: 29 minutes of WAV, or two of the largest uploads. A caller that
streams its audio holds almost none."""
_RETRY_MS = 1000
MEMORY_S = 120.0
"""Time after the end of a context in which `cut` is answered; docs/protocol.md promises it."""
MAX_TEXTS_BYTES = 16 << 20
"""Memory of one caller's texts; newer ones displace the oldest. About 8,000 turns of a minute."""
_OVERHEAD_BYTES = 600
"""Overhead of one text in addition to its characters and words."""

_Place = tuple[str, str]
"""Ids of a session and of one of its contexts."""


class Hold:
    """Memory held by one request; created by `HeldBytes.hold`."""

    def __init__(self, of_callers: "Counter[str]", owner: str) -> None:
        self._of_callers = of_callers
        self._owner = owner
        self.taken_bytes = 0

    def take(self, size_bytes: int) -> None:
        """Count bytes that the request holds from now on.

        Raises:
            InvalidRequestError: the request alone exceeds the limit (`text_too_long`).
            OverloadedError: the caller's requests together exceed it (`rate_limited`).
        """
        if self.taken_bytes + size_bytes > MAX_CALLER_BYTES:  # waiting would not help
            raise InvalidRequestError(
                f"expected a request whose files have at most {MAX_CALLER_BYTES >> 20} MiB "
                "together; send less text in one request, choose a format that is compressed, or "
                "stream the audio",
                code=ErrorCode.TEXT_TOO_LONG,
            )
        if self._of_callers[self._owner] + size_bytes > MAX_CALLER_BYTES:
            raise OverloadedError(
                f"the requests of this caller hold the maximum of {MAX_CALLER_BYTES >> 20} MiB; "
                "try again when some have ended, or stream the audio",
                code=ErrorCode.RATE_LIMITED,
                retry_after_ms=_RETRY_MS,
            )
        self._of_callers[self._owner] += size_bytes
        self.taken_bytes += size_bytes

    def give_back(self, size_bytes: int) -> None:
        """Release bytes that the request no longer holds."""
        self._of_callers[self._owner] -= size_bytes
        self.taken_bytes -= size_bytes
        if not self._of_callers[self._owner]:
            del self._of_callers[self._owner]

    def end(self) -> None:
        """Release everything; bytes that tasks of the request count later are ignored."""
        self.give_back(self.taken_bytes)
        self._of_callers = Counter()


class HeldBytes:
    """Counts the memory that the requests of each caller hold."""

    def __init__(self) -> None:
        self._of_callers = Counter[str]()

    @contextlib.contextmanager
    def hold(self, owner: str) -> Iterator[Hold]:
        """Begin a request of a caller; at the end of the block its memory is released."""
        hold = Hold(self._of_callers, owner)
        try:
            yield hold
        finally:
            hold.end()


@dataclass(frozen=True, slots=True)
class _Packed:
    """A `TimedText` in a hundredth of its memory.

    Attributes:
        text: UTF-8.
        times: four numbers of each word: its offsets, its first sample, and its end or -1.
    """

    ended_at: float
    text: bytes
    times: "array[int]"
    sent_samples: int
    is_final: bool

    @classmethod
    def of(cls, timed: TimedText) -> "_Packed":
        times = array("i")
        for each in timed.words:
            end_sample = -1 if each.end_sample is None else each.end_sample
            times.extend((each.word.char_start, each.word.char_end, each.start_sample, end_sample))
        text = timed.text.encode("utf-8", "surrogatepass")
        return cls(time.monotonic(), text, times, timed.sent_samples, timed.is_final)

    @property
    def size_bytes(self) -> int:
        return _OVERHEAD_BYTES + len(self.text) + self.times.itemsize * len(self.times)

    def unpacked(self) -> TimedText:
        text = self.text.decode("utf-8", "surrogatepass")
        numbers = zip(*(iter(self.times),) * 4, strict=True)
        words = [
            WordTimestamp(
                Word(text[char_start:char_end], char_start, char_end),
                start_sample,
                None if end_sample < 0 else end_sample,
                1.0,
            )
            for char_start, char_end, start_sample, end_sample in numbers
        ]
        return TimedText(text, words, self.sent_samples, self.is_final)


class RecentTexts:
    """Keeps the texts of contexts that have ended, for later cuts."""

    def __init__(self) -> None:
        self._of_callers: dict[str, dict[_Place, _Packed]] = {}
        self._bytes: dict[str, int] = {}

    def keep(self, owner: str, session_id: str, context_id: str, text: TimedText) -> None:
        """Keep the text of a context that has just ended; drop texts that are too old or many."""
        texts = self._of_callers.setdefault(owner, {})
        self._drop(owner, (session_id, context_id))
        texts[session_id, context_id] = packed = _Packed.of(text)
        self._bytes[owner] = self._bytes.get(owner, 0) + packed.size_bytes
        oldest_end = packed.ended_at - MEMORY_S
        while len(texts) > 1:
            place = next(iter(texts))
            if self._bytes[owner] <= MAX_TEXTS_BYTES and texts[place].ended_at >= oldest_end:
                break
            self._drop(owner, place)

    def find(self, owner: str, session_id: str, context_id: str) -> TimedText | None:
        """The text of a context; None if it was displaced, or the context ended too long ago."""
        packed = self._of_callers.get(owner, {}).get((session_id, context_id))
        if packed is None or time.monotonic() - packed.ended_at > MEMORY_S:
            return None
        return packed.unpacked()

    def forget(self, owner: str, session_id: str) -> None:
        """Drop the texts of a session that has ended."""
        texts = self._of_callers.get(owner, {})
        for place in [place for place in texts if place[0] == session_id]:
            self._drop(owner, place)
        if not texts:
            self._of_callers.pop(owner, None)
            self._bytes.pop(owner, None)

    def _drop(self, owner: str, place: _Place) -> None:
        packed = self._of_callers[owner].pop(place, None)
        if packed is not None:
            self._bytes[owner] -= packed.size_bytes
