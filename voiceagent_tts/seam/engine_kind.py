"""What the server and the command line need to know of an engine before its process runs.

Each engine declares itself once: the module `kind` of its package has a `KIND`. `hooks` finds these
modules, in the core and in plugins. They import nothing of their engine until it is made, because
the server and the command line import them, too.
"""

import json
import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar

from voiceagent_tts.errors import InvalidRequestError
from voiceagent_tts.hooks import engine_modules

if TYPE_CHECKING:  # workers do without the packages of settings, and the server without engines
    from voiceagent_tts.config import Settings
    from voiceagent_tts.seam.engine import Engine

MakeEngine = Callable[[Callable[[], list[Any]], Callable[[Any], None]], "Engine"]
"""Creates an engine or aligner from its inbox and outbox. Both are stepped alike; their messages
differ."""

RUNG_VARIABLE = "VOICEAGENT_TTS_WORKER_RUNG"
"""Environment variable of a worker that restarts with less: how many rungs lower it begins, and
what failed first. Engines without such rungs ignore it."""

SHARING_CORES = {"OMP_WAIT_POLICY": "passive"}
"""OpenMP threads spin by default while they wait. On a CPU that other processes use, that is ten
times slower (1.2 to 1.7 s per frame instead of 0.15 s, measured)."""

ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
"""The arrays of the online aligner and of hibari's signal processing are small: more threads would
only use cores that others need."""

LOADING_S = 600.0  # a model of several gigabytes may be on a slow disk

ABSENT = "not on this machine"  # the place of a published model that was not downloaded


@dataclass(frozen=True, slots=True)
class WorkerSpec:
    """Describes a worker process."""

    engine: str  # or aligner that `python -m voiceagent_tts.worker` knows
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])  # its own, as JSON values
    ready_timeout_s: float = 60.0  # longest time from start to `Ready`
    heartbeat_timeout_s: float = 10.0  # longest silence, after which a worker is killed
    environment: Mapping[str, str] = field(default_factory=dict[str, str])  # besides the server's
    group: str | None = None  # name shared by workers with the same voices

    def argv(self, endpoint: str) -> list[str]:
        """Command line of the worker process."""
        argv = [sys.executable, "-m", "voiceagent_tts.worker", self.engine, endpoint]
        if self.options:
            argv += ["--options", json.dumps(dict(self.options))]
        return argv


@dataclass(frozen=True, slots=True)
class PublishedModel:
    """A model that `models list` shows."""

    name: str  # what `models download` and the setting `models` call it
    purpose: str  # a few words
    place: str  # its folder or file, or `ABSENT`
    voices: tuple[str, ...] = ()  # that it has and the other models of its engine lack


class EngineKind(ABC):
    """One kind of engine: its processes, and the models that they need.

    Attributes:
        name: value of the setting `engine`, and argument of a worker process.
        metrics: help texts of metrics that no other engine has.
        natural_voices: what `serve` calls its voices when it chooses a plugin's engine itself;
            empty for one that only a setting chooses.
    """

    name: ClassVar[str]
    metrics: ClassVar[Mapping[str, str]] = {}
    natural_voices: ClassVar[str] = ""

    @abstractmethod
    def worker_specs(self, settings: "Settings") -> dict[str, WorkerSpec]:
        """Return the workers by name; the first one has the default voice."""

    @abstractmethod
    def make(self, options: dict[str, Any]) -> MakeEngine:
        """Return what makes the engine, in its process, by the options of its `WorkerSpec`."""

    def is_installed(self) -> bool:
        """Whether its packages are installed."""
        return True

    def is_stored(self, settings: "Settings") -> bool:
        """Whether the models that the settings name are on this machine; uses no network."""
        return self.is_installed()

    def fetch(self, settings: "Settings") -> "Settings":
        """Download the models that are missing; return the settings with their places.

        Raises:
            CheckpointError: a model cannot be downloaded, or a package is missing.
        """
        return settings

    def published_models(self) -> Iterator[PublishedModel]:
        """Yield the published models."""
        return iter(())

    def download(self, model: str) -> str | None:
        """Download a published model, and return its place; None if it is not this engine's.

        The place is empty where a package of other people decides.
        """
        return None


@cache
def engine_kinds() -> dict[str, EngineKind]:
    """All kinds of engines by name: the core's, then those of plugins."""
    return {module.KIND.name: module.KIND for module in engine_modules()}


def kind_of(engine: str) -> EngineKind:
    """Return a kind of engine by its name.

    Raises:
        InvalidRequestError: it is a plugin that is not there.
    """
    kinds = engine_kinds()
    if engine not in kinds:
        raise InvalidRequestError(
            f"engine {engine}: expected {', '.join(kinds)}; its plugin is not in this installation"
        )
    return kinds[engine]


def threads_of(settings: "Settings") -> int:
    """CPU threads of each worker: its share of the cores, unless set."""
    return settings.threads or max(1, (os.cpu_count() or 1) // settings.workers)


def devices_of(settings: "Settings") -> list[str | None]:
    """The devices of a model's workers; None for the engine's choice."""
    return list(settings.device) or [None]


def named(name: str, specs: Sequence[WorkerSpec]) -> dict[str, WorkerSpec]:
    """Workers of one engine by name: `name`, `name#2` and so on."""
    names = [name, *(f"{name}#{number}" for number in range(2, len(specs) + 1))]
    return dict(zip(names, specs, strict=True))
