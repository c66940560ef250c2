"""Memory that is held for callers: bodies, files that are being made, and texts for `cut`.

It counts against the caller until it is released, so that no caller can use all of it.
"""

import asyncio
import itertools
import time
from array import array
from collections import Counter, OrderedDict
from dataclasses import dataclass
from typing import Self

from voiceagent_tts.core import Word, WordTimestamp
from voiceagent_tts.errors import ErrorCode, InvalidRequestError, OverloadedError
from voiceagent_tts.text.cut import TimedText, TimedWords

HOLD = "voiceagent_tts.hold"  # key of a request's `Hold` in its scope
MAX_CALLER_BYTES = 80 << 20
"""Memory of one caller's requests: 29 minutes of WAV, or two of the largest uploads. A caller that
streams its audio holds almost none."""
_RETRY_MS = 1000
MEMORY_S = 120.0
"""Time after the end of a context in which `cut` is answered; docs/protocol.md promises it."""
MAX_TEXTS_BYTES = 16 << 20
"""Memory of one caller's texts; newer ones displace the oldest. About 8,000 turns of a minute."""
_OVERHEAD_BYTES = 600  # of one text, in addition to its characters and words
_NUMBERS = 4  # of one packed word
_PACKED_AT_ONCE = 10_000  # words, in one turn of the event loop: 3 ms
_DROPPED_AT_ONCE = 64  # texts, in one turn of the event loop: a caller may have 27,000, 30 ms

_Place = tuple[str, str]  # ids of a session and of one of its contexts


class Hold:
    """Memory held by one request, which ends with the block.

    Args:
        of_callers: bytes that the requests of each caller hold.
        owner: the caller.
    """

    def __init__(self, of_callers: Counter[str], owner: str) -> None:
        self._of_callers = of_callers
        self._owner = owner
        self.taken_bytes = 0

    def __enter__(self) -> Self:
        return self

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

    def __exit__(self, *_: object) -> None:
        # Bytes that tasks of the request count later are ignored.
        self.give_back(self.taken_bytes)
        self._of_callers = Counter()


@dataclass(slots=True)
class _Packed:
    """A `TimedText` in a hundredth of its memory, once its words are packed."""

    ended_at: float
    text: bytes  # UTF-8
    times: "array[int]"
    """Four numbers of each packed word: its offsets, its first sample, and its end or -1."""
    unpacked: TimedWords  # until all words are packed
    size_bytes: int
    sent_samples: int
    is_final: bool

    @classmethod
    def of(cls, timed: TimedText) -> "_Packed":
        text, times = timed.text.encode("utf-8", "surrogatepass"), array("i")
        words_bytes = _NUMBERS * times.itemsize * len(timed.words)
        size_bytes = _OVERHEAD_BYTES + len(text) + words_bytes
        ended_at, sent = time.monotonic(), timed.sent_samples
        return cls(ended_at, text, times, timed.words, size_bytes, sent, timed.is_final)

    def pack(self) -> bool:
        """Pack some more words; return whether words are left."""
        packed = len(self.times) // _NUMBERS
        for place in range(packed, min(packed + _PACKED_AT_ONCE, len(self.unpacked))):
            each = self.unpacked[place]
            end_sample = -1 if each.end_sample is None else each.end_sample
            chars = each.word.char_start, each.word.char_end
            self.times.extend((*chars, each.start_sample, end_sample))
        is_left = len(self.times) // _NUMBERS < len(self.unpacked)
        if not is_left:
            self.unpacked = ()
        return is_left

    def timed_text(self) -> TimedText:
        text = self.text.decode("utf-8", "surrogatepass")
        words = self.unpacked or _PackedWords(text, self.times)
        return TimedText(text, words, self.sent_samples, self.is_final)


@dataclass(frozen=True, slots=True)
class _PackedWords:
    """The words of a packed text, each of which is made on access: a cut needs few of them."""

    text: str
    times: "array[int]"

    def __len__(self) -> int:
        return len(self.times) // _NUMBERS

    def __getitem__(self, place: int) -> WordTimestamp:
        at = _NUMBERS * place
        char_start, char_end, start_sample, end_sample = self.times[at : at + _NUMBERS]
        word = Word(self.text[char_start:char_end], char_start, char_end)
        return WordTimestamp(word, start_sample, None if end_sample < 0 else end_sample, 1.0)


class RecentTexts:
    """Keeps the texts of contexts that have ended, for later cuts."""

    def __init__(self) -> None:
        self._of_callers: dict[str, OrderedDict[_Place, _Packed]] = {}  # each with the oldest first
        self._bytes = Counter[str]()  # of each caller's texts
        self._of_sessions: dict[str, set[str]] = {}  # the contexts with texts here

    def keep(self, owner: str, session_id: str, context_id: str, text: TimedText) -> None:
        """Keep the text of a context that has just ended; drop texts that are too old or many."""
        packed, place = _Packed.of(text), (session_id, context_id)
        self._drop(owner, place)
        texts = self._of_callers.setdefault(owner, OrderedDict())
        texts[place] = packed
        self._bytes[owner] += packed.size_bytes
        self._of_sessions.setdefault(session_id, set()).add(context_id)
        while self._bytes[owner] > MAX_TEXTS_BYTES and len(texts) > 1:
            self._drop(owner, next(iter(texts)))
        for oldest in list(itertools.islice(texts, _DROPPED_AT_ONCE)):
            if packed.ended_at - texts[oldest].ended_at > MEMORY_S:
                self._drop(owner, oldest)
        _pack(packed)

    def find(self, owner: str, session_id: str, context_id: str) -> TimedText | None:
        """The text of a context; None if it was displaced, or the context ended too long ago."""
        packed = self._of_callers.get(owner, {}).get((session_id, context_id))
        if packed is None or time.monotonic() - packed.ended_at > MEMORY_S:
            return None
        return packed.timed_text()

    def forget(self, owner: str, session_id: str) -> None:
        """Drop the texts of a session that has ended: some now, the others in later turns."""
        contexts = self._of_sessions.get(session_id, set[str]())
        for context_id in list(itertools.islice(contexts, _DROPPED_AT_ONCE)):
            self._drop(owner, (session_id, context_id))
        if contexts:
            asyncio.get_running_loop().call_soon(self.forget, owner, session_id)

    def _drop(self, owner: str, place: _Place) -> None:
        texts = self._of_callers.get(owner)
        packed = None if texts is None else texts.pop(place, None)
        if packed is None:
            return
        self._bytes[owner] -= packed.size_bytes
        if not texts:
            del self._of_callers[owner], self._bytes[owner]
        session_id, context_id = place
        self._of_sessions[session_id].remove(context_id)
        if not self._of_sessions[session_id]:
            del self._of_sessions[session_id]


def _pack(packed: _Packed) -> None:
    """Pack the words of a text, many of them in several turns of the event loop."""
    if packed.pack():
        asyncio.get_running_loop().call_soon(_pack, packed)
