"""The aligners of a server: which processes follow a context, and what they say of it.

An aligner that is missing, late or gone costs a context its exact times and nothing else: nothing
here is waited for. Knows no clock of a listener and no rule of which time is best.
"""

import asyncio
import itertools
import time
from collections.abc import Callable, Mapping, Sequence

import structlog

from voiceagent_tts.core import AudioChunk, Word
from voiceagent_tts.errors import EngineError, ErrorCode
from voiceagent_tts.seam.alignment import (
    AlignCommand,
    Aligned,
    AlignEvent,
    Expect,
    Finish,
    Follow,
)
from voiceagent_tts.seam.events import (
    AudioStep,
    Cancelled,
    ContextAudio,
    Done,
    Event,
    Failed,
    SegmentEnd,
)
from voiceagent_tts.synthesizer.supervisor import Supervisor
from voiceagent_tts.synthesizer.word_policy import Source
from voiceagent_tts.synthesizer.worker_client import WorkerClient

_PATIENCE_S = {Source.ONLINE: 10.0, Source.FORCED: 30.0}
"""A context leaves an aligner that has not answered for so long, so that its sound does not pile
up there."""

_log = structlog.get_logger(__name__)


class Aligners:
    """All aligner processes.

    Args:
        supervisors: of the processes, by what they are; contexts are spread over those of a kind.
        is_required: whether the server must not start without one of them.
        uses_native_words: whether an engine that tells when its words sound is believed.
    """

    def __init__(
        self,
        supervisors: Mapping[Source, Sequence[Supervisor]],
        *,
        is_required: bool = False,
        uses_native_words: bool = True,
    ) -> None:
        self.uses_native_words = uses_native_words
        self._supervisors = {source: list(each) for source, each in supervisors.items()}
        self._is_required = is_required
        self._turns = itertools.count()

    async def start(self) -> None:
        """Start the processes; without `is_required`, those that cannot start are left out.

        Raises:
            EngineError: one cannot start and is required.
        """
        for source, supervisors in self._supervisors.items():
            started = [supervisor.start() for supervisor in supervisors]
            for outcome in await asyncio.gather(*started, return_exceptions=True):
                if isinstance(outcome, BaseException):
                    self._leave_out(source, outcome)
        if not self.supervisors:
            _log.warning(
                "words_are_estimated", remedy="install extra espeak for the online aligner"
            )

    def _leave_out(self, source: Source, error: BaseException) -> None:
        if self._is_required or not isinstance(error, EngineError | OSError):
            raise error
        self._supervisors[source] = [s for s in self._supervisors[source] if s.worker is not None]
        _log.error("aligner_unavailable", aligner=source.name.lower(), error=str(error))

    async def close(self) -> None:
        """Stop the processes; idempotent."""
        await asyncio.gather(*(supervisor.close() for supervisor in self.supervisors.values()))

    @property
    def supervisors(self) -> dict[str, Supervisor]:
        """The processes by name."""
        return {
            f"{source.name.lower()}-{number}": supervisor
            for source, supervisors in self._supervisors.items()
            for number, supervisor in enumerate(supervisors)
        }

    def followers(self) -> "list[Follower]":
        """A process of each kind for a new context; none of a kind that is being restarted."""
        turn = next(self._turns)
        followers: list[Follower] = []
        for source, supervisors in self._supervisors.items():
            running = [s.worker for s in supervisors if s.worker is not None]
            free = [w for w in running if w.rows_used < w.capabilities.max_rows]
            if free:
                followers.append(Follower(free[turn % len(free)], source))
        return followers


class Follower:
    """One context, as one aligner follows it.

    Attributes:
        source: what it is.
        on_answer: told what it says; its last answer is `Done` or `Failed`.
        worst_lag_s: longest time from sound to the answer that took it into account.
    """

    def __init__(self, worker: WorkerClient, source: Source) -> None:
        self.source = source
        self.on_answer: Callable[[Source, AlignEvent], None] = lambda source, event: None
        self.worst_lag_s = 0.0
        self._worker = worker
        self._number = worker.attach(self._on_event)
        self._is_followed = False
        self._is_closed = False
        self._asked: tuple[int, float] | None = None  # sound without an answer, and since when

    def follow(self, language: str, voice: str, words: Sequence[Word]) -> None:
        """Begin, with the words that are known by now."""
        self._is_followed = True
        self._send(Follow(self._number, language, voice))
        self.expect(words)

    def expect(self, words: Sequence[Word]) -> None:
        """More words of the context, in order."""
        if words:
            self._send(Expect(self._number, tuple(words)))

    def listen(self, chunk: AudioChunk) -> None:
        """The engine's next audio."""
        now = time.monotonic()
        if self._asked is None:
            self._asked = (chunk.end_sample, now)
        elif not self._is_closed and now - self._asked[1] > _PATIENCE_S[self.source]:
            self._give_up()
        self._send(AudioStep((ContextAudio(self._number, chunk),)))

    def end_segment(self, char_end: int, end_sample: int) -> None:
        """The text up to `char_end` has been spoken in the audio so far."""
        self._send(SegmentEnd(self._number, char_end, end_sample))

    def finish(self) -> None:
        """All words and all audio are there."""
        self._send(Finish(self._number))

    def close(self) -> None:
        """Stop following; nothing is answered any more; idempotent."""
        self._is_closed = True
        self._worker.detach(self._number, needs_cancel=self._is_followed)

    def _send(self, command: AlignCommand) -> None:
        if not self._is_closed:
            self._worker.send(command)

    def _give_up(self) -> None:
        _log.warning("aligner_too_slow", aligner=self.source.name.lower())
        self.close()
        message = f"the aligner gave no answer for {_PATIENCE_S[self.source]:g} s"
        self.on_answer(self.source, Failed(self._number, ErrorCode.ENGINE_ERROR, message))

    def _on_event(self, event: Event | AlignEvent) -> None:
        match event:
            case Aligned():
                self._note_lag(event.end_sample)
                self.on_answer(self.source, event)
            case Done() | Failed() | Cancelled():
                self._is_closed = True
                self.on_answer(self.source, event)
            case _:
                pass

    def _note_lag(self, end_sample: int) -> None:
        if self._asked is not None and end_sample >= self._asked[0]:
            self.worst_lag_s = max(self.worst_lag_s, time.monotonic() - self._asked[1])
            self._asked = None
