"""Simulate a device, its listeners and their clock around the real scheduler.

The time of a step is linear in its rows. Audio arrives in the step that decodes it, or some steps
later, as on a GPU. Listeners play audio on arrival and grant credit as the server does.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from voiceagent_tts.core import FRAME_SAMPLES, SAMPLE_RATE_HZ, PlayoutClock
from voiceagent_tts.engine import sequence as engine
from voiceagent_tts.engine.runner import StepCost
from voiceagent_tts.engine.scheduler import Plan, Scheduler
from voiceagent_tts.engine.sequence import ActiveSequence, EngineContext, TextState
from voiceagent_tts.seam.commands import Credit, SpeechOptions

ID = 7


@dataclass(frozen=True)
class Device:
    rows: int = 8
    start_s: float = 0.005
    step_s: float = 0.01
    row_s: float = 0.0005
    lag_steps: int = 0


@dataclass(frozen=True)
class Wish:
    """Plan of one context.

    Attributes:
        at: arrival time.
        runs: frames of each run.
        is_batch: whether the context has no listener and unpaced credit.
        max_lead_s: maximum lead over its listener.
    """

    at: float = 0.0
    runs: tuple[int, ...] = (20,)
    is_batch: bool = False
    max_lead_s: float = 8.0


@dataclass
class Listener:
    """Records the audio of one context, and plays it on the simulated clock."""

    wish: Wish
    context: EngineContext
    clock: PlayoutClock = field(default_factory=PlayoutClock)
    first_sound: float | None = None
    gaps: int = 0
    frames: int = 0
    made: int = 0

    def receive(self, frames: int, now: float) -> None:
        if self.first_sound is None:
            self.first_sound = now
        elif now > self.clock.playout_end + 1e-9:
            self.gaps += 1
        self.frames += frames
        self.clock.send(frames * FRAME_SAMPLES, now)
        self.context.record_sent(frames * FRAME_SAMPLES, now)

    def grant(self, now: float) -> None:
        """Return the credit that the server would grant."""
        ahead_s = 10.0 if self.wish.is_batch else self.wish.max_lead_s
        wanted = self.clock.played_samples(now) + round(ahead_s * SAMPLE_RATE_HZ)
        if self.wish.is_batch:
            wanted = self.clock.sent_samples + round(ahead_s * SAMPLE_RATE_HZ)
        self.context.update_credit(Credit(0, self.clock.playout_end, wanted))


def measured_costs(device: Device) -> list[StepCost]:
    """Return the costs that `warm_up.measure_costs` would measure on this device."""
    counts = (1, device.rows // 2, device.rows)
    steps = [StepCost(count, 0, device.step_s + device.row_s * count) for count in counts * 3]
    return [
        *sorted(steps, key=lambda cost: cost.rows),
        *(
            StepCost(count, count, device.step_s + (device.row_s + device.start_s) * count)
            for count in counts
        ),
    ]


class Simulation:
    """Runs contexts on a device until all have ended."""

    def __init__(
        self,
        wishes: Sequence[Wish],
        device: Device,
        *,
        is_measured: bool = False,
    ) -> None:
        self.now = 0.0
        self.steps = 0
        self.device = device
        self.scheduler = Scheduler(device.rows, pages=device.rows)
        if is_measured:
            for cost in measured_costs(device):
                self.scheduler.costs.record(cost.rows, cost.starts, cost.seconds)
        self.coming = deque(sorted(wishes, key=lambda wish: wish.at))
        self.listeners: list[Listener] = []
        self.speaking: list[Listener] = []
        self.free_rows = set(range(device.rows))
        self.longest_step_s = 0.0
        self._in_codec: deque[tuple[int, Listener, ActiveSequence, int]] = deque()

    def run(self, most_steps: int = 20_000) -> list[Listener]:
        while self.coming or self.speaking:
            assert self.steps < most_steps, "a context is never served"
            self.step()
        return self.listeners

    def step(self) -> Plan:
        """Run one step of the engine, or advance the clock to the next event."""
        before = self.now
        self._take()
        contexts = [listener.context for listener in self.speaking]
        plan = self.scheduler.plan(contexts, self.now)
        self._start(plan.start)
        self._check(plan)
        self.steps += 1
        if not plan.step and not plan.decode and not self._in_codec and self.now == before:
            self.now = self._next_event()
            return plan
        self._compute(plan)
        self.longest_step_s = max(self.longest_step_s, self.now - before)
        return plan

    def _take(self) -> None:
        while self.coming and self.coming[0].at <= self.now:
            self._arrive(self.coming.popleft())
        for listener in list(self.speaking):
            listener.grant(self.now)

    def _arrive(self, wish: Wish) -> None:
        context = EngineContext(
            len(self.listeners), SpeechOptions(is_batch=wish.is_batch), arrival=len(self.listeners)
        )
        context.sequences.extend(
            engine.Sequence(True, text_ids=frames, text=TextState.COMPLETE) for frames in wish.runs
        )
        self.listeners.append(Listener(wish, context))
        self.speaking.append(self.listeners[-1])

    def _start(self, contexts: Sequence[EngineContext]) -> None:
        assert len(set(map(id, contexts))) == len(contexts)
        for context in contexts:
            assert context.can_start
            context.active = ActiveSequence(self.free_rows.pop())

    def _check(self, plan: Plan) -> None:
        rows = {active.row for active in self._active()}
        assert len(rows) == len(list(self._active())), "a row is used twice"
        assert not self.free_rows & rows
        assert len(self.free_rows) + len(rows) == self.device.rows
        speaking = set(map(id, plan.step))
        assert len(speaking) == len(plan.step)
        assert set(map(id, plan.start)) <= speaking
        assert all(context.can_step for context in plan.step)
        for context, frames in plan.decode:
            assert 0 < frames <= context.undecoded_frames + (id(context) in speaking)

    def _active(self) -> Iterator[ActiveSequence]:
        return (listener.context.active for listener in self.speaking if listener.context.active)

    def _compute(self, plan: Plan) -> None:
        device, rows = self.device, len(plan.step)
        seconds = device.step_s + device.row_s * rows + device.start_s * len(plan.start)
        if plan.step:
            self.scheduler.costs.record(rows, len(plan.start), seconds)
        self.now += seconds
        of = {id(listener.context): listener for listener in self.speaking}
        for context in plan.step:
            self._speak(of[id(context)])
        for context, frames in plan.decode:
            assert context.active is not None
            count = min(frames, context.undecoded_frames)
            context.active.submit_to_codec(count)
            due = self.steps + device.lag_steps
            self._in_codec.append((due, of[id(context)], context.active, count))
        while self._in_codec and self._in_codec[0][0] <= self.steps:
            self._sound(*self._in_codec.popleft()[1:])
        for listener in list(self.speaking):
            self._end_run(listener)

    def _speak(self, listener: Listener) -> None:
        active = listener.context.active
        assert active is not None
        listener.made += 1
        active.add_frame(
            is_end=listener.made == sum(listener.wish.runs[: self._run_number(listener) + 1])
        )

    def _run_number(self, listener: Listener) -> int:
        return len(listener.wish.runs) - len(listener.context.sequences)

    def _sound(self, listener: Listener, active: ActiveSequence, frames: int) -> None:
        if listener.context.active is active:
            active.decoding_frames -= frames
            listener.receive(frames, self.now)

    def _end_run(self, listener: Listener) -> None:
        active = listener.context.active
        if active is not None and active.has_ended and not active.pending_frames:
            self.free_rows.add(active.row)
            listener.context.active = None
            listener.context.sequences.popleft()
            if not listener.context.sequences:
                self.speaking.remove(listener)

    def _next_event(self) -> float:
        events = [wish.at for wish in list(self.coming)[:1]]
        events += [self.now + 0.01 for _ in self.speaking]
        return min((event for event in events if event > self.now), default=self.now)
