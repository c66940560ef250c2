"""Simulate a GPU around the real scheduler: prefill, launches, a codec lane with a backlog.

The time of a pass is what its launches and its bytes take, from the counted table of all passes and
one file of figures. Those figures are guesses until a card has been measured, so the predictions
compare programs, and say nothing certain about a card. Audio is audible with its second frame: the
first is silence.
"""

import json
import random
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from testbed.simulation import Device, Listener, Simulation, Wish
from voiceagent_tts.core import FRAME_S
from voiceagent_tts.engine.codec_stream import MOST_CALLS, split_windows
from voiceagent_tts.engine.runner import StepCost
from voiceagent_tts.engine.scheduler import Pace, Plan
from voiceagent_tts.engine.sequence import ActiveSequence
from voiceagent_tts.engine.sizes import graph_sizes

FIGURES = Path(__file__).parent / "device_figures.json"
_MANY_ROWS = 64
_AUDIBLE_FRAMES = 2
UTTERANCE_FRAMES = 64

Table = dict[str, dict[str, float]]
"""Launches and megabytes of passes, by name."""


@dataclass(frozen=True, slots=True)
class GpuTimes:
    """Seconds of every pass.

    Attributes:
        table: counted work of the passes.
        figures: figures of a device.
        codec: kernels of the codec.
    """

    table: Table
    figures: dict[str, Any]
    codec: str = "fused"

    def predictor_s(self, rows: int) -> float:
        """Seconds of the code predictor for a frame."""
        return self._pass_s("code predictor", rows)

    def talker_s(self, rows: int) -> float:
        """Seconds of a talker step."""
        return self._pass_s("talker", rows)

    def prefill_s(self, prompts: int) -> float:
        """Seconds of the prefills of short prompts, four to a pass."""
        one = self.table["prefill of 32, fused, 1 rows"]
        return -(-prompts // 4) * self._seconds(one["launches"], one["megabytes"])

    def codec_s(self, frames: int) -> float:
        """Seconds of one codec call with this many frames of all rows together."""
        return self._of_rows(f"codec, {self.codec}, {{}} rows of 1 frames", frames)

    def host_s(self, rows: int) -> float:
        """Seconds of the host in a step, in which the device waits."""
        figures = self.figures
        return float(np.interp(rows, figures["host_rows"], figures["host_ms"])) / 1000

    def step_s(self, rows: int) -> float:
        """Seconds of a step without the codec."""
        return self.predictor_s(rows) + self.talker_s(rows) + self.host_s(rows)

    def _pass_s(self, name: str, rows: int) -> float:
        return self._of_rows(f"{name}, fused, {{}} rows", rows)

    def _of_rows(self, name: str, rows: int) -> float:
        """Interpolate between the counts of one row and of many."""
        one, many = (self.table[name.format(count)] for count in (1, _MANY_ROWS))
        share = (rows - 1) / (_MANY_ROWS - 1)
        moved = one["megabytes"] + share * (many["megabytes"] - one["megabytes"])
        return self._seconds(many["launches"], moved)

    def _seconds(self, launches: float, megabytes: float) -> float:
        figures = self.figures
        return 1e-6 * (launches * figures["launch_us"] + megabytes / figures["terabytes_per_s"])


def load_times(table: Path, codec: str = "fused", figures: Path = FIGURES) -> GpuTimes:
    """Read the counted work and the figures of a device."""
    return GpuTimes(json.loads(table.read_text()), json.loads(figures.read_text()), codec)


@dataclass(frozen=True, slots=True)
class Prediction:
    """What listeners of a simulated device get.

    Attributes:
        contexts: number of contexts that were counted.
        audible_p50_s: median time from a request to audible audio.
        audible_p95_s: its 95th percentile.
        gaps: interruptions of playback, of all listeners.
        stalled_s: time for which the host waited because too many codec calls were in flight.
        audio_s_per_s: seconds of audio that were made per second.
        step_p99_s: 99th percentile of the steps.
    """

    contexts: int
    audible_p50_s: float
    audible_p95_s: float
    gaps: int
    stalled_s: float
    audio_s_per_s: float
    step_p99_s: float


@dataclass(slots=True)
class _Call:
    done_s: float
    frames: int
    windows: list[tuple[Listener, ActiveSequence]] = field(default_factory=list)


class GpuSimulation(Simulation):
    """A device whose codec works beside the talker, in order, and may fall behind.

    Args:
        wishes: plans of the contexts.
        times: seconds of its passes.
        rows: number of rows.
        until_s: contexts that end before this time are followed by another one each.
    """

    def __init__(
        self, wishes: Sequence[Wish], times: GpuTimes, rows: int, until_s: float = 0.0
    ) -> None:
        super().__init__(wishes, Device(rows=rows), Pace())
        for cost in _measured(times, rows):
            self.scheduler.record_step(cost.rows, cost.starts, cost.seconds)
        self.stalled_s = 0.0
        self.audible: dict[int, float] = {}
        self.steps_s: list[float] = []
        self._times, self._until_s = times, until_s
        self._sizes = graph_sizes(rows, 1024).codec
        self._calls = deque[_Call]()
        self._codec_free_s = 0.0
        self._followed = set[int]()

    def _compute(self, plan: Plan) -> None:
        times, rows, began_s = self._times, len(plan.step), self.now
        of = {id(listener.context): listener for listener in self.speaking}
        host_s = times.host_s(rows) if rows else times.host_s(1) / 2
        predictor_s, talker_s = (
            (times.predictor_s(rows), times.talker_s(rows)) if rows else (0.0, 0.0)
        )
        coded_s = began_s + host_s / 2 + times.prefill_s(len(plan.start)) + predictor_s
        backlog_s = max(0.0, self._codec_free_s - began_s)
        for context in plan.step:
            self._speak(of[id(context)])
        self._launch([(of[id(context)], frames) for context, frames in plan.decode], coded_s)
        beside_s = min(backlog_s, coded_s - began_s)
        beside_s += min(max(0.0, self._codec_free_s - coded_s), talker_s)
        ended_s = coded_s + talker_s + times.figures["beside_share"] * beside_s + host_s / 2
        self._wait(rows, ended_s)
        if rows:
            self.scheduler.record_step(rows, len(plan.start), self.now - began_s)
            self.steps_s.append(self.now - began_s)
        self._collect()

    def _launch(self, decode: list[tuple[Listener, int]], coded_s: float) -> None:
        """Queue codec calls behind those in flight."""
        wanted = dict[int, int]()
        for number, (listener, frames) in enumerate(decode):
            wanted[number] = min(frames, listener.context.undecoded_frames)
        for frames, windows in split_windows(wanted, [0] * len(decode), self._sizes):
            begins_s = max(self._codec_free_s, coded_s)
            self._codec_free_s = begins_s + self._times.codec_s(frames * len(windows))
            call = _Call(self._codec_free_s, frames)
            for window in windows:
                listener = decode[window.row][0]
                assert listener.context.active is not None
                listener.context.active.submit_to_codec(frames)
                call.windows.append((listener, listener.context.active))
            self._calls.append(call)

    def _wait(self, rows: int, ended_s: float) -> None:
        """Advance the clock to the end of the step, or of a codec call that the host waits for."""
        self.now = ended_s
        if rows <= 1 and self._calls:
            self.now = max(self.now, self._calls[0].done_s)
        if len(self._calls) > MOST_CALLS:
            done_s = self._calls[-1 - MOST_CALLS].done_s
            self.stalled_s += max(0.0, done_s - self.now)
            self.now = max(self.now, done_s)

    def _collect(self) -> None:
        while self._calls and self._calls[0].done_s <= self.now:
            call = self._calls.popleft()
            for listener, active in call.windows:
                self._sound(listener, active, call.frames)
        # The base class only asks whether anything is in the codec.
        self._in_codec = deque((0, *window, 0) for call in self._calls for window in call.windows)
        for listener in list(self.speaking):
            self._end_run(listener)
        for listener in self.listeners:
            self._follow(listener)

    def _sound(self, listener: Listener, active: ActiveSequence, frames: int) -> None:
        super()._sound(listener, active, frames)
        if listener.frames >= _AUDIBLE_FRAMES:
            self.audible.setdefault(id(listener), self.now - listener.wish.at)

    def _follow(self, listener: Listener) -> None:
        """Let another caller follow one who is done."""
        if listener.done_at is None or id(listener) in self._followed:
            return
        self._followed.add(id(listener))
        if self.now < self._until_s:
            self.coming.append(Wish(at=self.now + 1e-3, runs=listener.wish.runs))

    def predict(self, most_steps: int = 10**6) -> Prediction:
        """Run to the end, and summarise what listeners got."""
        self.run(most_steps)
        waits = sorted(self.audible.values())
        frames = sum(listener.frames for listener in self.listeners)
        return Prediction(
            contexts=len(waits),
            audible_p50_s=_percentile(waits, 0.5),
            audible_p95_s=_percentile(waits, 0.95),
            gaps=sum(listener.gaps for listener in self.listeners),
            stalled_s=self.stalled_s,
            audio_s_per_s=frames * FRAME_S / self.now,
            step_p99_s=_percentile(sorted(self.steps_s), 0.99),
        )


def _measured(times: GpuTimes, rows: int) -> Iterator[StepCost]:
    """Yield what `warm_up.measure_costs` would measure."""
    counts = (1, (rows + 1) // 2, rows)
    for count in counts:
        for _ in range(3):
            yield StepCost(count, 0, times.step_s(count))
    for count in counts:
        yield StepCost(count, count, times.step_s(count) + times.prefill_s(count))


def _percentile(ascending: Sequence[float], share: float) -> float:
    return ascending[min(len(ascending) - 1, int(share * len(ascending)))]


def requests(per_s: float, duration_s: float, seed: int = 1) -> list[Wish]:
    """Contexts that arrive independently of each other, at this rate."""
    choices, at, wishes = random.Random(seed), 0.0, list[Wish]()
    while at < duration_s:
        wishes.append(Wish(at=at, runs=(UTTERANCE_FRAMES,)))
        at += choices.expovariate(per_s)
    return wishes


def together(callers: int, seed: int = 1) -> list[Wish]:
    """Contexts that all arrive in the same few milliseconds, a tenth of one for each."""
    choices = random.Random(seed)
    return [
        Wish(at=choices.uniform(0, 1e-4 * callers), runs=(UTTERANCE_FRAMES,))
        for _ in range(callers)
    ]


SCENARIOS: dict[str, Callable[[GpuTimes, int], GpuSimulation]] = {
    "1 request/s": lambda times, seed: GpuSimulation(requests(1, 15, seed), times, 288),
    "20 requests/s": lambda times, seed: GpuSimulation(requests(20, 2.5, seed), times, 288),
    "60 requests/s": lambda times, seed: GpuSimulation(requests(60, 1.5, seed), times, 288),
    "64 callers": lambda times, seed: GpuSimulation(together(64, seed), times, 288, until_s=0.5),
    "256 callers": lambda times, seed: GpuSimulation(together(256, seed), times, 288, until_s=0.8),
}
"""Loads of an engine with 288 rows, by the seed of their schedule. Callers speak again as soon as
they have all of their audio."""
SEEDS = (1, 2, 3)


def predict_load(load: str, times: GpuTimes) -> Prediction:
    """Predict a load by the medians over three schedules; contexts, gaps and stalls are totals.

    A change of the software that moves one start into another step changes all that follows in its
    schedule, for better or worse.
    """
    found = [SCENARIOS[load](times, seed).predict() for seed in SEEDS]
    return Prediction(
        contexts=sum(one.contexts for one in found),
        audible_p50_s=median(one.audible_p50_s for one in found),
        audible_p95_s=median(one.audible_p95_s for one in found),
        gaps=sum(one.gaps for one in found),
        stalled_s=sum(one.stalled_s for one in found),
        audio_s_per_s=median(one.audio_s_per_s for one in found),
        step_p99_s=median(one.step_p99_s for one in found),
    )
