"""Decides which audio the forced aligner gets, and when, for the contexts of one process.

A context is aligned where a segment ends, and before that whenever enough new audio has arrived;
then the end of the clip may be inside a word, and only times well before it count. Clips that are
due at once share a forward pass.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Protocol

from voiceagent_tts.aligner.sessions import AlignerSessions, ContextInput, aligner_capabilities
from voiceagent_tts.core import BYTES_PER_SAMPLE, AudioChunk, Word, WordTimestamp, ms_to_samples
from voiceagent_tts.errors import EngineError
from voiceagent_tts.plugins.forced.prompt import LONGEST_SAMPLES, Clip, check_language
from voiceagent_tts.seam.aligner_messages import Aligned, AlignInbox, AlignOutbox, Expect, Finish
from voiceagent_tts.seam.events import SegmentEnd

_MAX_CONTEXTS = 256
_UNCERTAIN_SAMPLES = ms_to_samples(500)
"""A word that ends this close to the end of an unfinished clip may continue after it."""
_FASTEST_WORDS_PER_S = 8.0
_SECOND_SAMPLES = ms_to_samples(1000)


class ClipAligner(Protocol):
    """Aligns complete clips; `forced.aligner.ForcedAligner` implements it."""

    def align(self, clips: Sequence[Clip]) -> list[tuple[WordTimestamp, ...]]:
        """The times of every word of every clip, in samples of the clip."""
        ...


@dataclass(frozen=True, slots=True)
class Pacing:
    """How much audio is aligned, and how often.

    Args:
        pass_samples: new audio of an unfinished segment after which it is aligned.
        step_samples: limit on the audio of one step; a single clip may exceed it.
    """

    pass_samples: int
    step_samples: int


@dataclass(frozen=True, slots=True)
class _ClipRequest:
    """A clip of a context that is due to be aligned.

    Attributes:
        char_end: all words before this offset end in the clip; None if the clip may end inside a
            word.
    """

    words: tuple[Word, ...]
    end_sample: int
    char_end: int | None


@dataclass(slots=True)
class _UnalignedContext:
    """Audio and words of one context that have no times yet.

    Attributes:
        pcm: audio from `start_sample` on.
        start_sample: where `pcm` begins on the context's clock.
        aligned_samples: end of the audio when the context was last aligned.
        ends: (char_end, end_sample) of segments that have ended since.
        is_finished: whether all words and audio have arrived.
    """

    language: str
    words: deque[Word] = field(default_factory=deque[Word])
    pcm: bytearray = field(default_factory=bytearray)
    start_sample: int = 0
    aligned_samples: int = 0
    ends: deque[tuple[int, int]] = field(default_factory=deque[tuple[int, int]])
    is_finished: bool = False

    @property
    def end_sample(self) -> int:
        """End of the audio received so far, on the context's clock."""
        return self.start_sample + len(self.pcm) // BYTES_PER_SAMPLE

    def next_request(self, pass_samples: int) -> _ClipRequest | None:
        """The clip to align next; None if none is due."""
        if self.ends:
            char_end, end_sample = self.ends[0]
            ending = takewhile(lambda word: word.char_start < char_end, self.words)
            return _ClipRequest(tuple(ending), end_sample, char_end)
        if self.is_finished:
            char_end = self.words[-1].char_end if self.words else 0
            return _ClipRequest(tuple(self.words), self.end_sample, char_end)
        if self.words and self.end_sample - self.aligned_samples >= pass_samples:
            seconds = (self.end_sample - self.start_sample) / _SECOND_SAMPLES
            count = int(seconds * _FASTEST_WORDS_PER_S) + 1
            return _ClipRequest(tuple(self.words)[:count], self.end_sample, None)
        return None

    def clip(self, request: _ClipRequest) -> Clip:
        """The words and audio of a request."""
        end = (request.end_sample - self.start_sample) * BYTES_PER_SAMPLE
        return Clip(request.words, bytes(self.pcm[:end]), self.language)

    def accept(
        self, request: _ClipRequest, times: Sequence[WordTimestamp]
    ) -> tuple[WordTimestamp, ...]:
        """Drop the audio of the words whose times are certain; return these words.

        Returns:
            The certain words, on the context's clock.
        """
        start = self.start_sample
        placed = [time.later(start) for time in times]
        self.aligned_samples = request.end_sample
        if request.char_end is not None:
            if self.ends:
                self.ends.popleft()
            self._drop(len(placed), request.end_sample)
            return tuple(placed)
        certain_until = request.end_sample - _UNCERTAIN_SAMPLES
        certain = tuple(takewhile(lambda time: (time.end_sample or 0) <= certain_until, placed))
        if certain:
            following = placed[len(certain) :]
            self._drop(len(certain), following[0].start_sample if following else certain_until)
        return certain

    def _drop(self, words: int, until_sample: int) -> None:
        for _ in range(words):
            self.words.popleft()
        until_sample = max(until_sample, self.start_sample)
        del self.pcm[: (until_sample - self.start_sample) * BYTES_PER_SAMPLE]
        self.start_sample = until_sample


class ForcedSessions(AlignerSessions[_UnalignedContext]):
    """Collects the words and audio of each context and aligns the clips that are due."""

    def __init__(
        self,
        inbox: AlignInbox,
        outbox: AlignOutbox,
        aligner: ClipAligner,
        pacing: Pacing,
        placement: str | None = None,
    ) -> None:
        capabilities = aligner_capabilities(
            "forced", "Qwen3-ForcedAligner", _MAX_CONTEXTS, placement
        )
        super().__init__(inbox, outbox, capabilities)
        self._aligner = aligner
        self._pacing = pacing

    def _open(self, language: str, voice: str) -> _UnalignedContext:
        check_language(language)
        return _UnalignedContext(language)

    def _handle(self, context: int, session: _UnalignedContext, received: ContextInput) -> None:
        match received:
            case AudioChunk(_, pcm):
                session.pcm += pcm
            case Expect(_, words):
                session.words.extend(words)
            case SegmentEnd(_, char_end, end_sample):
                session.ends.append((char_end, end_sample))
            case Finish():
                session.is_finished = True

    def _align_due(self) -> float | None:
        requests = self._due_requests()
        if not requests:
            return None
        clips = [self._sessions[context].clip(request) for context, request in requests.items()]
        aligned: dict[int, tuple[WordTimestamp, ...]] = {}
        with self._failing(requests):
            aligned = dict(zip(requests, self._aligner.align(clips), strict=True))
        for context, times in aligned.items():
            self._answer(context, requests[context], times)
        return 0.0

    def _due_requests(self) -> dict[int, _ClipRequest]:
        """Clips of this step: one per context, ended segments first, within `step_samples`."""
        due: list[tuple[bool, int, _ClipRequest]] = []
        for context, session in list(self._sessions.items()):
            request = session.next_request(self._pacing.pass_samples)
            if request is None:
                continue
            if request.words and request.end_sample - session.start_sample > LONGEST_SAMPLES:
                self._fail(context, EngineError("the forced aligner aligns at most 300 s at once"))
            else:
                due.append((request.char_end is None, context, request))
        due.sort(key=lambda entry: entry[0])
        chosen: dict[int, _ClipRequest] = {}
        samples = 0
        for _, context, request in due:
            samples += request.end_sample - self._sessions[context].start_sample
            if chosen and samples > self._pacing.step_samples:
                break
            chosen[context] = request
        return chosen

    def _answer(
        self, context: int, request: _ClipRequest, times: tuple[WordTimestamp, ...]
    ) -> None:
        session = self._sessions[context]
        was_last = session.is_finished and not session.ends
        words = session.accept(request, times)
        self._outbox(Aligned(context, words, (), request.end_sample))
        if was_last:
            self._finish(context, request.end_sample)
