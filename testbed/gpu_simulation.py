"""Simulate a GPU around the real scheduler: prefill, launches, a codec with a backlog, a server.

The time of a pass is what its launches, its bytes and its multiplications take, from the counted
table of all passes and the figures of a card, which `benchmarks.engine.calibrate` fits to a run.
Audio is audible with its second frame: the first is silence.
"""

import json
import random
from bisect import bisect_left
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
from voiceagent_tts.engine.sizes import fitting, graph_sizes

FIGURES = Path(__file__).parent / "device_figures.json"
"""Figures of measured cards, as `benchmarks.engine.calibrate` wrote them."""
_PASS_ROWS, _CODEC_ROWS, _PROMPTS = (1, 64, 256), (1, 64), (1, 16)
_AUDIBLE_FRAMES = 2
_ROWS = 288
_SERVED_S = 12.0
"""Duration of every load through a server, whose queue grows for as long as it has too much."""
UTTERANCE_FRAMES = 64

Table = dict[str, dict[str, float]]
"""Launches, megabytes and gigaflop of passes, by name."""
Work = tuple[float, float, float]
"""Launches, microseconds of the memory, and gigaflop."""


@dataclass(frozen=True, slots=True)
class GpuTimes:
    """Seconds of every pass.

    Attributes:
        table: counted work of the passes.
        figures: figures of a card, of the host's part of a step, and of the server.
        codec: kernels of the codec.
        has_server: whether audio passes through a server, which has one thread.
    """

    table: Table
    figures: dict[str, Any]
    codec: str
    has_server: bool = False

    def predictor_s(self, rows: int) -> float:
        """Seconds of the code predictor for a frame."""
        return self._pass_s("code predictor, fused, {} rows", rows)

    def talker_s(self, rows: int) -> float:
        """Seconds of a talker step."""
        return self._pass_s("talker, fused, {} rows", rows)

    def prefill_s(self, prompts: int) -> float:
        """Seconds of the prefills of short prompts, packed as the engine packs them."""
        most = self.figures["prompts_a_pass"]
        counts = [min(most, prompts - begin) for begin in range(0, prompts, most)]
        works = [self._work("prefill of {} x 32, fused", _PROMPTS, count) for count in counts]
        return sum(self._product_s("prefill", work) for work in works)

    def long_prefill_s(self) -> float:
        """Seconds of the prefill of two prompts of 256 positions."""
        return self._product_s("prefill", self._counted("prefill of 2 x 256, fused"))

    def codec_s(self, frames: int) -> float:
        """Seconds of one codec call with this many frames of all rows together, beside a talker.

        What its activations move and what its products multiply are different launches.
        """
        name = f"codec, {self.codec}, {{}} rows of 1 frames"
        launches, moved_us, gigaflop = self._work(name, _CODEC_ROWS, frames)
        per_gigaflop_us = self.figures["codec_us_per_gigaflop"][self.codec]
        launched_us = launches * self.figures["launch_us"][f"codec, {self.codec}"]
        return 1e-6 * (launched_us + moved_us + gigaflop * per_gigaflop_us)

    def host_s(self, rows: int) -> float:
        """Seconds of the host in a step, in which the device waits."""
        host = self.figures["host"]
        return float(np.interp(rows, host["rows"], host["ms"])) / 1000

    def step_s(self, rows: int) -> float:
        """Seconds of a step without the codec."""
        return self.predictor_s(rows) + self.talker_s(rows) + self.host_s(rows)

    def server_s(self, frames: int) -> float:
        """Seconds that a server's thread takes for the audio of these frames."""
        ms = self.figures["server_ms_per_audio_s"] if self.has_server else 0.0
        return frames * FRAME_S * ms / 1000

    def _pass_s(self, name: str, rows: int) -> float:
        kind = "one row" if rows == 1 else "many rows"
        return self._product_s(kind, self._work(name, _PASS_ROWS, rows))

    def _product_s(self, kind: str, work: Work) -> float:
        """Seconds of products that read their weights while they multiply."""
        launches, moved_us, gigaflop = work
        multiplied_us = 1000 * gigaflop / self.figures["teraflop_per_s"]
        launched_us = launches * self.figures["launch_us"][kind]
        return 1e-6 * (launched_us + max(moved_us, multiplied_us))

    def _work(self, name: str, counts: Sequence[int], count: int) -> Work:
        """Return the work of a pass of this many rows, on the line between two counted ones."""
        after = max(1, min(bisect_left(counts, count), len(counts) - 1))
        few, many = counts[after - 1], counts[after]
        share = (count - few) / (many - few)
        less, more = self._counted(name.format(few)), self._counted(name.format(many))
        launches, moved_us, gigaflop = (
            a + share * (b - a) for a, b in zip(less, more, strict=True)
        )
        return launches, moved_us, gigaflop

    def _counted(self, name: str) -> Work:
        work = self.table[name]
        moved_us = work["megabytes"] / self.figures["terabytes_per_s"]
        return work["launches"], moved_us, work["gigaflop"]


def load_times(table: Path, card: str, codec: str | None = None) -> GpuTimes:
    """Read the counted work and the figures of a card, with the codec that it was served with."""
    figures = json.loads(FIGURES.read_text())
    of_card = figures["cards"][card]
    return GpuTimes(json.loads(table.read_text()), figures | of_card, codec or of_card["codec"])


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
        self._sent = deque[tuple[float, Listener, int]]()
        self._codec_free_s = self._server_free_s = 0.0
        self._followed = set[int]()

    def _compute(self, plan: Plan) -> None:
        times, rows, began_s = self._times, len(plan.step), self.now
        of = {id(listener.context): listener for listener in self.speaking}
        host_s = times.host_s(rows) if rows else times.host_s(1) / 2
        predictor_s, talker_s = (
            (times.predictor_s(rows), times.talker_s(rows)) if rows else (0.0, 0.0)
        )
        coded_s = self._beside_codec(
            began_s + host_s / 2, times.prefill_s(len(plan.start)) + predictor_s
        )
        for context in plan.step:
            self._speak(of[id(context)])
        self._launch([(of[id(context)], frames) for context, frames in plan.decode], coded_s)
        ended_s = self._beside_codec(coded_s, talker_s) + host_s / 2
        self._wait(rows, ended_s)
        if rows:
            self.scheduler.record_step(rows, len(plan.start), self.now - began_s)
            self.steps_s.append(self.now - began_s)
        self._collect()

    def _beside_codec(self, begin_s: float, work_s: float) -> float:
        """Return when work ends that the codec slows while it is busy."""
        share, busy_s = self._times.figures["beside_share"], self._codec_free_s - begin_s
        return begin_s + work_s + share * min(max(0.0, busy_s), work_s / (1 - share))

    def _launch(self, decode: list[tuple[Listener, int]], coded_s: float) -> None:
        """Queue codec calls behind those in flight."""
        wanted = dict[int, int]()
        for number, (listener, frames) in enumerate(decode):
            wanted[number] = min(frames, listener.context.undecoded_frames)
        for frames, windows in split_windows(wanted, [0] * len(decode), self._sizes):
            begins_s = max(self._codec_free_s, coded_s)
            padded = frames * fitting(self._sizes[frames], len(windows))
            self._codec_free_s = begins_s + self._times.codec_s(padded)
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
        self._deliver()

    def _take(self) -> None:
        self._deliver()
        super()._take()

    def _sound(self, listener: Listener, active: ActiveSequence, frames: int) -> None:
        """Pass audio to the server's thread, which sends it in order."""
        if listener.context.active is active:
            active.receive_audio(frames)
            self._server_free_s = max(self.now, self._server_free_s) + self._times.server_s(frames)
            self._sent.append((self._server_free_s, listener, frames))

    def _deliver(self) -> None:
        """Let listeners hear what the server has sent by now; others follow those who are done."""
        while self._sent and self._sent[0][0] <= self.now:
            at, listener, frames = self._sent.popleft()
            listener.receive(frames, at)
            if listener.frames >= _AUDIBLE_FRAMES:
                self.audible.setdefault(id(listener), at - listener.wish.at)
        for listener in self.listeners:
            self._follow(listener)

    def _next_event(self) -> float:
        return min([super()._next_event(), *(at for at, *_ in list(self._sent)[:1])])

    def _follow(self, listener: Listener) -> None:
        """Let another caller follow one who has all audio."""
        is_done = listener.done_at is not None and listener.frames == listener.made
        if not is_done or id(listener) in self._followed:
            return
        self._followed.add(id(listener))
        if self.now < self._until_s:
            self.coming.append(Wish(at=self.now + 1e-3, runs=listener.wish.runs))

    def predict(self, most_steps: int = 10**6) -> Prediction:
        """Run to the end, and summarise what listeners got."""
        self.run(most_steps)
        while self._sent:
            self.now = max(self.now, self._sent[0][0])
            self._deliver()
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


def _arriving(per_s: float, duration_s: float) -> Callable[[GpuTimes, int], GpuSimulation]:
    def simulate(times: GpuTimes, seed: int) -> GpuSimulation:
        lasts_s = _SERVED_S if times.has_server else duration_s
        return GpuSimulation(requests(per_s, lasts_s, seed), times, _ROWS)

    return simulate


def _calling(callers: int, until_s: float) -> Callable[[GpuTimes, int], GpuSimulation]:
    def simulate(times: GpuTimes, seed: int) -> GpuSimulation:
        ends_s = _SERVED_S if times.has_server else until_s
        return GpuSimulation(together(callers, seed), times, _ROWS, ends_s)

    return simulate


SCENARIOS: dict[str, Callable[[GpuTimes, int], GpuSimulation]] = {
    "1 request/s": _arriving(1, 30),
    "20 requests/s": _arriving(20, 2.5),
    "60 requests/s": _arriving(60, 1.5),
    "64 callers": _calling(64, 0.5),
    "256 callers": _calling(256, 0.8),
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
