"""The conditions that only this project's server can be put into: engines, word times, other work.

This module knows no agent framework.
"""

import contextlib
import json
import os
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal

import psutil

from testbed.throttled import VARIABLE, Throttle
from voiceagent_tts.plugins.bench.bargein import conditions as bench

SESSIONS = 8
BUSY_LOOPS = 2
"""Processes beside the sessions that a condition with other work runs."""
_SHORT_LEAD_S = 0.5
"""With a larger lead, all audio of a short reply would arrive before the fault."""
_ROOM_NOISE_RMS = 350
"""30 dB below the loudest 20 ms of the embedded voice; its pauses are then not silent."""


@dataclass(frozen=True, slots=True)
class Condition(bench.Condition):
    """One row of the table: as a condition of `bench bargein`, with a server of its own.

    Where something breaks, it is the engine, which is killed in mid-reply. Where the engine has no
    words, the online aligner times them.

    Attributes:
        name: name in the table and in the results.
        engine: the engine; `hibari` has the embedded voice beside it, as a server of it does.
        throttle: what delays the engine.
        is_quick: whether `--quick` includes the condition.
        busy_loops: processes that compete with the sessions for the CPU.
    """

    together: int = SESSIONS
    languages: tuple[str, ...] = ("en", "zh", "ja", "de", "es")
    name: str = ""
    engine: Literal["espeak", "hibari"] = "espeak"
    throttle: Throttle = Throttle()
    is_quick: bool = False
    busy_loops: int = 0

    @property
    def server(self) -> tuple[str, Throttle]:
        """What its server is started with."""
        return self.engine, self.throttle

    @property
    def kills_engine(self) -> bool:
        """Whether the engine is killed in mid-reply."""
        return self.happening is bench.Happening.BREAK

    @property
    def max_lead_s(self) -> float | None:
        """How far the server may run ahead of playback; None for the server's default."""
        return _SHORT_LEAD_S if self.kills_engine else None

    def environment(self, truth_folder: Path) -> dict[str, str]:
        """Environment variables with the server's settings."""
        throttle = replace(self.throttle, truth_folder=str(truth_folder))
        aligner = {"VOICEAGENT_TTS_ALIGNER": "online"} if throttle.without_words else {}
        return aligner | {
            "VOICEAGENT_TTS_ENGINE": self.engine,
            VARIABLE: json.dumps(asdict(throttle)),
            # What was played is found in the engine's samples, which a mark would change.
            "VOICEAGENT_TTS_WATERMARK": "false",
        }


MAIN = "native words"
_NATURAL = Condition(engine="hibari", languages=("en",))
_NOISY = Throttle(rtf=0.5, without_words=True, noise_rms=_ROOM_NOISE_RMS)
CONDITIONS = (
    Condition(name=MAIN, cuts=200, is_quick=True),
    Condition(
        name=f"beside {BUSY_LOOPS} busy loops", cuts=200, is_quick=True, busy_loops=BUSY_LOOPS
    ),
    Condition(name="the engine is killed", happening=bench.Happening.BREAK, is_quick=True),
    Condition(name="native words, RTF 0.5", cuts=80, throttle=Throttle(0.5), is_quick=True),
    Condition(name="native words, RTF 0.9", cuts=80, throttle=Throttle(0.9)),
    Condition(name="native words, RTF 0.95", throttle=Throttle(0.95)),
    Condition(name="online aligner", throttle=Throttle(without_words=True)),
    Condition(name="online aligner, RTF 0.5", throttle=Throttle(0.5, without_words=True)),
    Condition(name="online aligner, RTF 0.9", throttle=Throttle(0.9, without_words=True)),
    Condition(name="clone of a noisy recording, RTF 0.5", throttle=_NOISY),
    replace(_NATURAL, name="natural voice, its own words", cuts=200),
    replace(
        _NATURAL,
        name="natural voice, words by the aligner, RTF 0.5",
        throttle=Throttle(0.5, without_words=True),
    ),
)
"""Conditions with equal servers are adjacent, so that each server starts once."""


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
