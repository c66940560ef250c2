"""The conditions that only this project's server can be put into: engines, word times, other work.

This module knows no agent framework.
"""

import contextlib
import json
import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import psutil

from testbed.throttled import VARIABLE
from voiceagent_tts.plugins.bench.bargein import conditions as bench

SESSIONS = 8
BUSY_LOOPS = 2
"""Processes beside the sessions that a condition with other work runs."""
_SHORT_LEAD_S = 0.5
"""With a larger lead, all audio of a short reply would arrive before the fault."""
_ROOM_NOISE_RMS = 350
"""30 dB below the loudest 20 ms of the embedded voice; its pauses are then not silent."""


@dataclass(frozen=True, slots=True)
class ServerSpec:
    """How the server is started.

    Args:
        engine: the engine; `hibari` has the embedded voice beside it, as a server of it does.
        throttle: (field, value) pairs of `testbed.throttled.Throttle`.
        aligner: value of the setting `aligner`; None for an engine that times its words itself.
    """

    engine: Literal["espeak", "hibari"] = "espeak"
    throttle: tuple[tuple[str, Any], ...] = ()
    aligner: str | None = None

    def environment(self, truth_folder: Path) -> dict[str, str]:
        """Environment variables with the server's settings."""
        throttle = dict(self.throttle) | {"truth_folder": str(truth_folder)}
        settings = {
            "VOICEAGENT_TTS_ENGINE": self.engine,
            VARIABLE: json.dumps(throttle),
            # What was played is found in the engine's samples, which a mark would change.
            "VOICEAGENT_TTS_WATERMARK": "false",
        }
        return settings | ({"VOICEAGENT_TTS_ALIGNER": self.aligner} if self.aligner else {})


@dataclass(frozen=True, slots=True)
class Condition(bench.Condition):
    """One row of the table: as a condition of `bench bargein`, with a server of its own.

    Where something breaks, it is the engine, which is killed in mid-reply.

    Attributes:
        name: name in the table and in the results.
        server: how the server is started.
        is_quick: whether `--quick` includes the condition.
        busy_loops: processes that compete with the sessions for the CPU.
    """

    together: int = SESSIONS
    languages: tuple[str, ...] = ("en", "zh", "ja", "de", "es")
    name: str = ""
    server: ServerSpec = field(default_factory=ServerSpec)
    is_quick: bool = False
    busy_loops: int = 0

    @property
    def kills_engine(self) -> bool:
        """Whether the engine is killed in mid-reply."""
        return self.happening is bench.Happening.BREAK

    @property
    def max_lead_s(self) -> float | None:
        """How far the server may run ahead of playback; None for the server's default."""
        return _SHORT_LEAD_S if self.kills_engine else None


def _at(rtf: float, **throttle: Any) -> ServerSpec:
    return ServerSpec(throttle=(("rtf", rtf), *throttle.items()))


def _aligned(rtf: float, **throttle: Any) -> ServerSpec:
    return replace(_at(rtf, without_words=True, **throttle), aligner="online")


def _condition(name: str, cuts: int, server: ServerSpec | None = None, **more: Any) -> Condition:
    return Condition(name=name, cuts=cuts, server=server or ServerSpec(), **more)


def _natural(name: str, cuts: int, server: ServerSpec) -> Condition:
    """A condition in which hibari speaks English."""
    return _condition(name, cuts, replace(server, engine="hibari"), languages=("en",))


MAIN = "native words"
_KILLED = bench.Happening.BREAK

CONDITIONS = (
    _condition(MAIN, 200, is_quick=True),
    _condition(f"beside {BUSY_LOOPS} busy loops", 200, is_quick=True, busy_loops=BUSY_LOOPS),
    _condition("the engine is killed", 40, happening=_KILLED, is_quick=True),
    _condition("native words, RTF 0.5", 80, _at(0.5), is_quick=True),
    _condition("native words, RTF 0.9", 80, _at(0.9)),
    _condition("native words, RTF 0.95", 40, _at(0.95)),
    _condition("online aligner", 40, _aligned(0.0)),
    _condition("online aligner, RTF 0.5", 40, _aligned(0.5)),
    _condition("online aligner, RTF 0.9", 40, _aligned(0.9)),
    _condition("clone of a noisy recording, RTF 0.5", 40, _aligned(0.5, noise_rms=_ROOM_NOISE_RMS)),
    _natural("natural voice, its own words", 200, _at(0.0)),
    _natural("natural voice, words by the aligner, RTF 0.5", 40, _aligned(0.5)),
)
"""Conditions with equal servers are adjacent, so that each server starts once. The first condition
is the main one."""


def chosen_conditions(*, is_quick: bool, only: str) -> list[Condition]:
    """The conditions to measure, in order.

    Args:
        is_quick: select fewer conditions, with one cut per session.
        only: select the condition of this name, or those whose names contain it.
    """
    named = [condition for condition in CONDITIONS if condition.name == only]
    chosen = named or [condition for condition in CONDITIONS if only in condition.name]
    if is_quick:
        chosen = [condition for condition in chosen if condition.is_quick or only]
        return [replace(condition, cuts=condition.together) for condition in chosen]
    return chosen


def kill_engine(server_pid: int) -> None:
    """Send SIGKILL to the engine processes of a server; the server restarts them.

    The processes of sessions load this by its name, which they cannot do of a program.
    """
    for process in psutil.Process(server_pid).children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError):
            if os.getsid(process.pid) == process.pid:  # the server gives only engines a session
                process.kill()
