"""Decides before every step which sequences start, step and are decoded, and hands out memory.

The deadline of a context is the time at which its listener has heard everything sent. Of the
contexts that wait for a row, those close to an underrun start first, then first audio, then the
rest. Batch contexts are served while no listener needs the device. The server refuses where it
knows that no row is free; what lacks rows, pages or time is refused here. Time is passed in.
"""

import math
from bisect import bisect_right
from collections.abc import Collection, Container, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain

from voiceagent_tts.core import FRAME_S, SAMPLE_RATE_HZ
from voiceagent_tts.engine.row_memory import RowMemory
from voiceagent_tts.engine.sequence import ActiveSequence, EngineContext
from voiceagent_tts.engine.sizes import FRAMES_A_CALL, WINDOWS_FRAMES
from voiceagent_tts.engine.step_costs import StepCosts
from voiceagent_tts.errors import OverloadedError

URGENT_LEAD_S = 0.4
"""A listener with less audio left is close to an underrun; word times, too, need this much."""
_AMPLE_LEAD_S = 1.0
"""A listener with this much audio left can wait while another has too little."""
_LONGEST_STARTS_S = 0.05
"""Maximum time for starts in one step, so that no first sound waits for every prefill."""
_CODEC_FULL = FRAMES_A_CALL, 1
_CODEC_MOST = 2 * FRAMES_A_CALL, 4
"""Frames queued in the codec, as a number plus one per stepping row: above `_CODEC_FULL` the codec
gets no more; otherwise it is filled up to `_CODEC_MOST`. So no frame waits behind a long backlog,
and calls stay large. Without a limit, first audio of 256 simulated callers takes twice as long."""
_SPARE_SHARE = 1 / 8
"""Share of rows and pages that batch contexts leave free for listeners."""
_SHORTEST_RETRY_S = 0.1
_LONGEST_RETRY_S = 10.0
_UNKNOWN_RETRY_S = 1.0


@dataclass(frozen=True, slots=True)
class Plan:
    """Work of one step.

    Attributes:
        start: contexts whose next sequence starts, the most urgent first.
        decode: contexts whose frames become audio, and how many frames, this step's included; the
            most urgent first.
    """

    start: list[EngineContext]
    step: list[EngineContext]
    decode: list[tuple[EngineContext, int]]


class Scheduler:
    """Decides which context gets rows, pages and time of one device when.

    Args:
        max_load: maximum step time, as a share of real time, at which new listeners are admitted.
    """

    def __init__(self, rows: int, pages: int, max_load: float = math.inf) -> None:
        self._rows = rows
        self._max_load = max_load
        self.memory = RowMemory(rows, pages)
        self.costs = StepCosts()
        self._has_deferred = False

    # Admission.

    @property
    def max_batch_rows(self) -> int:
        """Maximum number of rows for batch contexts."""
        return _batch_share(self._rows)

    def admit(
        self, contexts: Collection[EngineContext], *, is_batch: bool, continues: bool = False
    ) -> None:
        """Check that one more context can be served beside `contexts`.

        One that `continues`, whose listener has heard audio that this engine did not make, is not
        refused for the device's load.

        Raises:
            OverloadedError: no row is free, or listeners would run into underruns; with the time
                after which a row is likely to be free.
        """
        rows = self.max_batch_rows if is_batch else self._rows
        listeners = sum(not context.is_batch for context in contexts)
        may_add_load = is_batch or continues or not listeners
        if len(contexts) >= rows:
            problem = f"all {rows} rows are in use"
        elif not may_add_load and self.load(listeners + 1) > self._max_load:
            problem = f"the device speaks {listeners} contexts, the most that it can in real time"
        else:
            return
        raise self.refusal(contexts, problem)

    def refusal(self, contexts: Collection[EngineContext], problem: str) -> OverloadedError:
        """Return the error of a refusal, with the time after which a row is likely to be free."""
        retry_s = self.retry_s(contexts)
        return OverloadedError(
            f"{problem}; try again in {retry_s:.1f} s", retry_after_ms=round(retry_s * 1000)
        )

    def retry_s(self, contexts: Iterable[EngineContext]) -> float:
        """Return the seconds until the first context has probably ended."""
        soonest_s = min(map(self._ends_in_s, contexts), default=math.inf)
        likely_s = _UNKNOWN_RETRY_S if soonest_s == math.inf else soonest_s
        return min(max(likely_s, _SHORTEST_RETRY_S), _LONGEST_RETRY_S)

    def load(self, listeners: int) -> float:
        """Return the step time for `listeners` rows, as a share of real time."""
        return self.costs.steps.of(listeners) / FRAME_S

    def reserve(
        self,
        context: EngineContext,
        prompt_pages: int,
        likely_pages: int,
        contexts: Collection[EngineContext],
    ) -> ActiveSequence | None:
        """Give a row, and the pages of its prompt, to the next sequence of an admitted context.

        The sequence becomes the active one of the context, unless too few pages are free. Then a
        batch context, and one whose listener has heard its beginning, is marked as waiting for
        pages instead of being refused.

        Returns:
            The sequence with its row and pages; None if it waits for pages.

        Raises:
            OverloadedError: the pages are missing, and the context cannot wait.
        """
        active = [other.active for other in contexts if other.active]
        held = sum(max(one.likely_pages, len(one.pages)) for one in active)
        pages = self.memory.pages
        most = _batch_share(pages) if context.is_batch else pages
        if active and held + likely_pages > most:
            if context.is_batch or context.is_heard:
                context.waits_for_memory = True
                return None
            free = pages - held
            problem = f"this text needs about {likely_pages} pages of memory, and {free} are free"
            raise self.refusal(contexts, problem)
        context.active = self.memory.take(prompt_pages, likely_pages)
        return context.active

    def extend(self, context: EngineContext, contexts: Collection[EngineContext]) -> bool:
        """Give another page to a row that has filled its pages, or let it make no more frames.

        Then its pages are free for other rows of this step. Beyond the pages that they have
        reserved, files leave the listeners' share of pages free, as long as there are listeners.
        """
        active, pages = context.active, self.memory.pages
        assert active is not None
        is_beyond = len(active.pages) >= active.likely_pages
        has_listeners = not all(other.is_batch for other in contexts)
        leaves_share = context.is_batch and is_beyond and has_listeners
        if self.memory.extend(active, pages - _batch_share(pages) if leaves_share else 0):
            return True
        self.memory.take_back(contexts)
        return False

    def giving_way(
        self, context: EngineContext, contexts: Iterable[EngineContext]
    ) -> EngineContext | None:
        """Return the batch context that must fail for its pages, so that a full row can go on.

        It is the one with the most left, and only where a listener's row would fail otherwise. Rows
        that have ended hold no pages.
        """
        if context.is_batch or self.memory.free_pages:
            return None
        files = [one for one in contexts if one.is_batch and one.active and one.active.pages]
        return max(files, key=self._ends_in_s, default=None)

    # Steps.

    def by_urgency(self, contexts: Iterable[EngineContext], now: float) -> list[EngineContext]:
        """Return contexts in the order in which they get rows and pages: files last."""
        return sorted(contexts, key=lambda context: _urgency(context, now))

    def plan(self, contexts: Collection[EngineContext], now: float) -> Plan:
        """Decide what this step does."""
        waiting = [context for context in contexts if context.can_start]
        able = [context for context in contexts if context.can_step]
        stepping = able
        if any(_is_pressed(context, now) for context in chain(waiting, stepping)):
            waiting = [context for context in waiting if not context.is_batch]
            stepping = [
                context
                for context in stepping
                if not context.is_batch and context.generated_lead_s(now) < _AMPLE_LEAD_S
            ]
        start = self._to_start(waiting, stepping, now)
        filling = {context.id for context in able + start}
        step = stepping + start
        return Plan(start, step, self._to_decode(contexts, step, filling, now))

    def has_time(self, contexts: Collection[EngineContext], now: float) -> bool:
        """Whether work with the duration of a start would delay no listener."""
        listeners = [context for context in contexts if not context.is_batch]
        if any(context.can_start or context.waits_for_voice for context in listeners):
            return False
        stepping = [context for context in contexts if context.can_step]
        is_pressed = any(_is_pressed(context, now) for context in stepping)
        return not is_pressed and self._spare_s(0, stepping, now) >= self.costs.starts.of(1)

    def _to_start(
        self, waiting: list[EngineContext], stepping: list[EngineContext], now: float
    ) -> list[EngineContext]:
        """Return as many contexts as can start without an underrun of any stepping context.

        If none can, all starts are put off once, for a single step in which every row gets a frame.
        """
        if not waiting:
            self._has_deferred = False
            return []
        spare_s = self._spare_s(len(waiting), stepping, now)
        self._has_deferred = spare_s < self.costs.starts.of(1) and not self._has_deferred
        if self._has_deferred:
            return []
        starts = self._affordable_starts(len(waiting), spare_s)
        return self.by_urgency(waiting, now)[:starts]

    def _affordable_starts(self, most: int, spare_s: float) -> int:
        if spare_s < math.inf and not self.costs.starts.is_known:
            return 1
        start_s = self.costs.starts.of(1)
        fitting = min(spare_s, _LONGEST_STARTS_S) / start_s if start_s else most
        return max(1, min(most, int(fitting)))

    def _spare_s(self, starts: int, stepping: list[EngineContext], now: float) -> float:
        """Return how long a step of all rows can be delayed without an underrun."""
        leads_s = [c.lead_s(now) for c in stepping if c.has_spoken and not c.is_batch]
        return min(leads_s, default=math.inf) - self.costs.steps.of(starts + len(stepping))

    def _to_decode(
        self,
        contexts: Collection[EngineContext],
        step: list[EngineContext],
        filling: Container[int],
        now: float,
    ) -> list[tuple[EngineContext, int]]:
        """Choose the frames to decode: those of full windows, and of rows that will make no more.

        Listeners' first audio has no limit; the rest is limited by the frames that wait in the
        codec, files last. The rows of `filling` contexts, by id, can make frames, now or once no
        other context is pressed.
        """
        stepping, step_s = {context.id for context in step}, self.costs.steps.of(len(step))
        largest = WINDOWS_FRAMES[-1]
        decode: list[tuple[EngineContext, int]] = []
        for context in contexts:
            frames = min(context.undecoded_frames + (context.id in stepping), largest)
            if not frames:
                continue
            window = self._window(context, step_s, now) if context.id in filling else 1
            if frames >= min(window, largest):
                decode.append((context, frames))
        decode.sort(key=lambda item: (item[0].is_batch, item[0].has_spoken, item[0].lead_s(now)))
        return list(_within_codec(decode, _codec_room(contexts, len(step))))

    def _window(self, context: EngineContext, step_s: float, now: float) -> int:
        """Return the frames to decode at once.

        Until the context has sound, leading silence included, that is the initial number; later,
        the largest window that fills before the listener's lead is short, and without a listener
        the largest of all.
        """
        active = context.active
        if active is None or not context.has_spoken:
            return context.options.initial_frames or WINDOWS_FRAMES[0]
        if context.is_batch:
            return WINDOWS_FRAMES[-1]
        spare_s = context.lead_s(now, active.decoding_frames) - URGENT_LEAD_S
        if spare_s < 0:
            return 1
        fitting = active.undecoded_frames + (spare_s / step_s if step_s else math.inf)
        place = bisect_right(WINDOWS_FRAMES, fitting)
        return WINDOWS_FRAMES[place - 1] if place else 1

    def _ends_in_s(self, context: EngineContext) -> float:
        """Return the expected seconds until the context has made and may send its last frame."""
        if context.expects_text:
            return math.inf
        likely = sum(sequence.likely_frames for sequence in context.sequences)
        made = context.current.detector.frames if context.sequences else 0
        frames = max(0, likely - made)
        credit_s = (context.samples_wanted - context.clock.sent_samples) / SAMPLE_RATE_HZ
        return max(frames * self.costs.steps.of(1), frames * FRAME_S - credit_s)


def _codec_room(contexts: Collection[EngineContext], rows: int) -> int:
    """Return how many frames the codec may be given in a step of this many rows."""
    in_codec = sum(context.active.decoding_frames for context in contexts if context.active)
    (full, full_per_row), (most, most_per_row) = _CODEC_FULL, _CODEC_MOST
    if in_codec > full + full_per_row * rows:
        return 0
    return most + most_per_row * rows - in_codec


def _within_codec(
    decode: list[tuple[EngineContext, int]], room: int
) -> Iterator[tuple[EngineContext, int]]:
    """Yield listeners' first audio, and then as many of the other frames as there is room for."""
    for context, frames in decode:
        has_limit = context.is_batch or context.has_spoken
        count = min(frames, room) if has_limit else frames
        room = max(0, room - count)
        if count:
            yield context, count


def _batch_share(count: int) -> int:
    return count - int(count * _SPARE_SHARE)


def _is_pressed(context: EngineContext, now: float) -> bool:
    """Whether a listener waits for the first sound, or is close to an underrun."""
    if context.is_batch:
        return False
    return not context.is_heard or context.generated_lead_s(now) < URGENT_LEAD_S


def _urgency(context: EngineContext, now: float) -> tuple[bool, int, float]:
    """Return the sort key of contexts that wait for a row or a page.

    A context that has been heard and is close to an underrun comes first: a gap is worse than a
    late start.
    """
    lead_s = context.lead_s(now)
    if not context.is_heard:
        return context.is_batch, 1, context.arrival
    return context.is_batch, 0 if lead_s < URGENT_LEAD_S else 2, lead_s
