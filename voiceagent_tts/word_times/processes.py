"""The aligner processes of a server.

If an aligner is missing, late or gone, its contexts lose only the exactness of word times; no
context waits for one.
"""

import asyncio
import functools
import itertools
from collections.abc import Mapping, Sequence
from functools import cached_property

import structlog

from voiceagent_tts.errors import EngineError
from voiceagent_tts.synthesizer.events import Source
from voiceagent_tts.synthesizer.words import MakeWords
from voiceagent_tts.synthesizer.workers import Supervisor
from voiceagent_tts.word_times.aligned_words import AlignedWords
from voiceagent_tts.word_times.aligners import (
    AlignerHandle,
    ContextAligners,
    OnAlignerEvent,
    VoiceLevels,
)

_log = structlog.get_logger(__name__)


class Aligners:
    """All aligner processes of the server.

    Args:
        supervisors: the processes by kind; contexts are spread over the processes of a kind.
        is_required: whether a missing aligner prevents the server's start.
    """

    def __init__(
        self, supervisors: Mapping[Source, Sequence[Supervisor]], *, is_required: bool = False
    ) -> None:
        self.voice_levels = VoiceLevels()
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
        for supervisor in self._supervisors.get(Source.FORCED, ()):
            _log.info("forced_aligner", placement=supervisor.capabilities.aligner)
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

    @property
    def has_any(self) -> bool:
        """Whether there is an aligner, also while it is being restarted."""
        return any(self._supervisors.values())

    @property
    def make_words(self) -> MakeWords:
        """Makes the words of a context, which these processes find."""
        return functools.partial(AlignedWords, self.attach)

    @cached_property
    def absent(self) -> "Aligners":
        """Stands for them in contexts whose words nobody wants: there all times are estimates."""
        return Aligners({})

    def attach(self, on_event: OnAlignerEvent, recording: str) -> "ContextAligners":
        """Connect a new context to one process of each kind that has a free row."""
        return ContextAligners(self.handles(on_event), recording, self.voice_levels)

    def handles(self, on_event: OnAlignerEvent) -> "list[AlignerHandle]":
        """Connect a new context to one process of each kind that has a free row."""
        turn = next(self._turns)
        handles: list[AlignerHandle] = []
        for source, supervisors in self._supervisors.items():
            free = [worker for each in supervisors if (worker := each.free_worker) is not None]
            if free:
                handles.append(AlignerHandle(free[turn % len(free)], source, on_event))
        return handles
