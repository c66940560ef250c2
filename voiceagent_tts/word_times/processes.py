"""The aligner processes of a server.

If an aligner is missing, late or gone, its contexts lose only the exactness of word times; no
context waits for one.
"""

import asyncio
import functools
import itertools
import os
from collections.abc import Mapping, Sequence
from typing import Any

import structlog

from voiceagent_tts.config import Settings
from voiceagent_tts.errors import EngineError, InvalidRequestError
from voiceagent_tts.seam.engine_kind import (
    LOADING_S,
    ONE_THREAD,
    SHARING_CORES,
    WorkerSpec,
    devices_of,
    kind_of,
)
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

_LONGEST_PASS_S = 60.0
"""The forced aligner sends no heartbeat during a pass, which takes seconds on a busy CPU."""

_MOST_ALIGNERS, _PROCESSORS_OF_ALIGNER = 4, 4
"""One process of the online aligner aligns 113 s of audio in a second, on the host of an H200."""

_log = structlog.get_logger(__name__)


class Aligners:
    """All aligner processes of the server.

    Args:
        supervisors: the processes by kind; contexts are spread over the processes of a kind.
        is_required: whether a missing aligner prevents the server's start.

    Attributes:
        absent: replaces them in contexts whose client uses no words.
    """

    def __init__(
        self, supervisors: Mapping[Source, Sequence[Supervisor]], *, is_required: bool = False
    ) -> None:
        self.voice_levels = VoiceLevels()
        self._supervisors = {source: list(each) for source, each in supervisors.items()}
        self._is_required = is_required
        self._turns = itertools.count()
        self.absent: Aligners = Aligners({}) if supervisors else self

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

    @property
    def supervisors(self) -> dict[str, Supervisor]:
        """The processes by name, also those that are being restarted."""
        return {
            f"{source.name.lower()}-{number}": supervisor
            for source, supervisors in self._supervisors.items()
            for number, supervisor in enumerate(supervisors)
        }

    @property
    def make_words(self) -> MakeWords:
        """Makes the words of a context, which these processes find."""
        return functools.partial(AlignedWords, self.attach)

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


def aligners_of(settings: Settings) -> Aligners:
    """Return the aligners that the settings ask for.

    Raises:
        InvalidRequestError: the aligner in the settings cannot run on this machine.
    """
    specs: dict[Source, list[WorkerSpec]] = {}
    has_references = kind_of("espeak").is_installed()
    if settings.aligner == "online" or (settings.aligner == "auto" and has_references):
        spec = WorkerSpec("online", environment=ONE_THREAD)
        count = settings.aligners or _usual_aligners(os.cpu_count() or 1)
        specs[Source.ONLINE] = [spec] * count
    if settings.aligner == "forced" or (settings.aligner == "auto" and settings.aligner_model):
        specs[Source.FORCED] = [_forced_spec(settings)]
    supervisors = {source: [*map(Supervisor, each)] for source, each in specs.items()}
    return Aligners(supervisors, is_required=settings.aligner in ("online", "forced"))


def _usual_aligners(processors: int) -> int:
    """Default number of online aligner processes on this machine."""
    return max(1, min(processors // _PROCESSORS_OF_ALIGNER, _MOST_ALIGNERS))


def _forced_spec(settings: Settings) -> WorkerSpec:
    if settings.aligner_model is None:
        from voiceagent_tts.hub import ALIGNER_ID  # here: few servers need it

        raise InvalidRequestError(
            "aligner forced: expected the folder or id of a Qwen3-ForcedAligner in aligner_model, "
            f"or a downloaded one, got neither; try `voiceagent-tts models download {ALIGNER_ID}`"
        )
    return WorkerSpec(
        "forced",
        forced_options(settings),
        ready_timeout_s=LOADING_S,
        heartbeat_timeout_s=_LONGEST_PASS_S,
        environment=SHARING_CORES,
    )


def forced_options(settings: Settings) -> dict[str, Any]:
    """Options of `plugins.forced.load.load_forced`."""
    engines = devices_of(settings) * settings.workers * len(settings.models)
    return {
        "model": settings.aligner_model,
        "device": settings.aligner_device,
        "engine_devices": engines if settings.engine == "qwen3" else [],
        "threads": settings.threads,
    }
