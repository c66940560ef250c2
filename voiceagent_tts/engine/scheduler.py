"""Who is served now: a decision from deadlines, made anew before every step.

A listener's deadline is the moment when he has heard all that was sent, re-anchored whenever he
runs dry. First sounds come first, then listeners about to run dry, then the rest; a context to
which nobody listens (a file) is served while nobody waits for it. The device is known by how long
its steps have taken so far. Knows no tensors and no text; time is passed in.
"""

import math
from bisect import bisect_right
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from itertools import chain

from voiceagent_tts.core import FRAME_S, SAMPLE_RATE_HZ
from voiceagent_tts.engine.sequence import Speaker
from voiceagent_tts.errors import OverloadedError

URGENT_LEAD_S = 0.4
"""A listener with less is about to run dry; word times, too, are found within that much audio."""
_AMPLE_LEAD_S = 1.0
"""Listeners with so much can wait while somebody else has too little."""
_LONGEST_STARTS_S = 0.05
"""Of one step, so that nobody's first sound waits for everybody's prefill."""
_SPARE_SHARE = 1 / 8
"""Of rows and of memory, kept free of batch contexts, for listeners who come."""
_SHORTEST_RETRY_S = 0.1
_LONGEST_RETRY_S = 10.0
_UNKNOWN_RETRY_S = 1.0


@dataclass(frozen=True, slots=True)
class Pace:
    """What an operator may choose.

    Attributes:
        initial_frames: in a context's first decode window, where it does not say.
        ramp: in the windows that follow, rising.
        max_load: share of real time that a step of all listeners may take before new ones are
            refused; infinite to refuse nobody.
    """

    initial_frames: int = 1
    ramp: tuple[int, ...] = (1, 2, 4, 8, 12)
    max_load: float = math.inf


@dataclass(frozen=True, slots=True)
class Plan:
    """What one step does.

    Attributes:
        start: whose runs begin, the first one first.
        speak: whose runs make a frame; those that begin are among them.
        decode: how many frames of whose runs become sound, those of this step included.
    """

    start: list[Speaker]
    speak: list[Speaker]
    decode: list[tuple[Speaker, int]]


class StepTimes:
    """How long steps take, by how many rows they serve: a line through the latest ones.

    Where every step had the same rows, one more row is taken to cost nothing: it is let in, and
    then known.
    """

    _DECAY = 0.98
    _LEAST_SPREAD = 0.1  # rows squared; below it, differences are noise

    def __init__(self) -> None:
        self._weight = 0.0
        self._rows = self._seconds = 0.0  # means
        self._spread = self._covariance = 0.0

    @property
    def is_known(self) -> bool:
        """Whether there was a step."""
        return self._weight > 0

    def add(self, rows: int, seconds: float) -> None:
        """A step of `rows` rows has taken so long."""
        self._weight = self._DECAY * self._weight + 1
        share = 1 / self._weight
        off_rows, off_seconds = rows - self._rows, seconds - self._seconds
        self._rows += share * off_rows
        self._seconds += share * off_seconds
        self._spread += share * (off_rows * (rows - self._rows) - self._spread)
        self._covariance += share * (off_rows * (seconds - self._seconds) - self._covariance)

    def of(self, rows: int) -> float:
        """Seconds that a step of `rows` rows is expected to take; 0 while nothing is known."""
        if self._spread < self._LEAST_SPREAD:
            return self._seconds
        slope = max(0.0, self._covariance / self._spread)
        return max(0.0, self._seconds + slope * (rows - self._rows))


class Scheduler:
    """Decides for one device.

    Args:
        pace: what the operator chose.
        rows: how many the device has.
    """

    def __init__(self, pace: Pace, rows: int) -> None:
        self._pace = pace
        self._rows = rows
        self._steps = StepTimes()
        self._starts = StepTimes()
        self._has_deferred = False

    def note_step(self, rows: int, starts: int, seconds: float) -> None:
        """The device has taken so long to start so many sequences and make a frame of `rows`."""
        if not starts:
            self._steps.add(rows, seconds)
        elif self._steps.is_known:
            self._starts.add(1, max(0.0, seconds - self._steps.of(rows)) / starts)

    @property
    def max_batch_rows(self) -> int:
        """Rows that batch contexts may take."""
        return batch_share(self._rows)

    def admit(self, speakers: Collection[Speaker], *, is_batch: bool) -> None:
        """Let one more context in.

        Raises:
            OverloadedError: no row is free, or those who listen would run dry; with the time after
                which a row is likely to be free.
        """
        rows = self.max_batch_rows if is_batch else self._rows
        listeners = sum(not speaker.is_batch for speaker in speakers)
        if len(speakers) >= rows:
            problem = f"all {rows} rows are in use"
        elif not is_batch and listeners and self.load(listeners + 1) > self._pace.max_load:
            problem = f"{listeners} contexts are all that can be spoken in time"
        else:
            return
        raise self.refusal(speakers, problem)

    def refusal(self, speakers: Collection[Speaker], problem: str) -> OverloadedError:
        """What to answer where there is no place now, with the time when there is likely to be."""
        retry_s = self.retry_s(speakers)
        return OverloadedError(
            f"{problem}; try again in {retry_s:.1f} s", retry_after_ms=round(retry_s * 1000)
        )

    def retry_s(self, speakers: Iterable[Speaker]) -> float:
        """When the first context is likely to have spoken all of its text, and its row is free."""
        soonest_s = min(map(self._ends_in_s, speakers), default=math.inf)
        likely_s = _UNKNOWN_RETRY_S if soonest_s == math.inf else soonest_s
        return min(max(likely_s, _SHORTEST_RETRY_S), _LONGEST_RETRY_S)

    def load(self, listeners: int) -> float:
        """Share of real time that steps for so many listeners take."""
        return self._steps.of(listeners) / FRAME_S

    def plan(self, speakers: Collection[Speaker], now: float) -> Plan:
        """What to do in this step."""
        waiting = [speaker for speaker in speakers if speaker.can_start]
        speaking = [speaker for speaker in speakers if speaker.can_speak]
        if any(_is_pressed(speaker, now) for speaker in chain(waiting, speaking)):
            waiting = [speaker for speaker in waiting if not speaker.is_batch]
            speaking = [speaker for speaker in speaking if not _can_wait(speaker, now)]
        start = self._to_start(waiting, speaking, now)
        speak = speaking + start
        return Plan(start, speak, self._to_decode(speakers, speak, now))

    def has_time(self, speakers: Collection[Speaker], now: float) -> bool:
        """Whether something as long as a start can be done before anybody notices."""
        if any(speaker.can_start for speaker in speakers):
            return False
        speaking = [speaker for speaker in speakers if speaker.can_speak]
        is_pressed = any(_is_pressed(speaker, now) for speaker in speaking)
        return not is_pressed and self._spare_s(0, speaking, now) >= self._starts.of(1)

    def _to_start(
        self, waiting: list[Speaker], speaking: list[Speaker], now: float
    ) -> list[Speaker]:
        """As many as leave everybody who speaks in time.

        Where even one does not, it waits for a step, in which they all get a frame, and for no more
        than one.
        """
        if not waiting:
            self._has_deferred = False
            return []
        spare_s = self._spare_s(len(waiting), speaking, now)
        self._has_deferred = spare_s < self._starts.of(1) and not self._has_deferred
        if self._has_deferred:
            return []
        waiting.sort(key=lambda speaker: _urgency(speaker, now))
        return waiting[: self._affordable_starts(len(waiting), spare_s)]

    def _affordable_starts(self, most: int, spare_s: float) -> int:
        if spare_s < math.inf and not self._starts.is_known:
            return 1
        start_s = self._starts.of(1)
        fitting = min(spare_s, _LONGEST_STARTS_S) / start_s if start_s else most
        return max(1, min(most, int(fitting)))

    def _spare_s(self, starts: int, speaking: list[Speaker], now: float) -> float:
        """How long a step of all may be put off before a listener who speaks runs dry."""
        leads_s = [s.lead_s(now) for s in speaking if s.has_spoken and not s.is_batch]
        return min(leads_s, default=math.inf) - self._steps.of(starts + len(speaking))

    def _to_decode(
        self, speakers: Iterable[Speaker], speak: list[Speaker], now: float
    ) -> list[tuple[Speaker, int]]:
        """Frames wait for others to fill a window, but only while others come."""
        making, step_s = set(map(id, speak)), self._steps.of(len(speak))
        largest = self._pace.ramp[-1]
        decode: list[tuple[Speaker, int]] = []
        for speaker in speakers:
            makes_one = id(speaker) in making
            frames = min(speaker.undecoded_frames + makes_one, largest)
            if not frames:
                continue
            if not makes_one or frames >= min(self._window(speaker, step_s, now), largest):
                decode.append((speaker, frames))
        return decode

    def _window(self, speaker: Speaker, step_s: float, now: float) -> int:
        """The largest window that is full before its listener's lead is short."""
        run = speaker.run
        if run is None or not speaker.has_spoken:
            return speaker.initial_frames or self._pace.initial_frames
        spare_s = speaker.lead_s(now, run.decoding_frames) - URGENT_LEAD_S
        if spare_s < 0:
            return 1
        fitting = run.undecoded_frames + (spare_s / step_s if step_s else math.inf)
        place = bisect_right(self._pace.ramp, fitting)
        return self._pace.ramp[place - 1] if place else 1

    def _ends_in_s(self, speaker: Speaker) -> float:
        """The later of: its frames are computed, its listener has let them be."""
        if speaker.expects_text:
            return math.inf
        likely = sum(sequence.likely_frames for sequence in speaker.sequences)
        made = speaker.sequences[0].watch.frames if speaker.sequences else 0
        frames = max(0, likely - made)
        credit_s = (speaker.samples_wanted - speaker.end_sample) / SAMPLE_RATE_HZ
        return max(frames * self._steps.of(1), frames * FRAME_S - credit_s)


def batch_share(count: int) -> int:
    """Of so many rows, or pages of memory, those that batch contexts may take."""
    return count - int(count * _SPARE_SHARE)


def _is_pressed(speaker: Speaker, now: float) -> bool:
    """Whether a listener waits for his first sound, or is about to run dry."""
    if speaker.is_batch:
        return False
    return not speaker.has_spoken or speaker.made_lead_s(now) < URGENT_LEAD_S


def _can_wait(speaker: Speaker, now: float) -> bool:
    """Whether a run may do without a frame while somebody is pressed."""
    return speaker.is_batch or speaker.made_lead_s(now) >= _AMPLE_LEAD_S


def _urgency(speaker: Speaker, now: float) -> tuple[bool, int, float]:
    """Sorts those who wait for a row.

    Who has heard the beginning and is about to run dry goes first: a gap is worse than a late
    start.
    """
    lead_s = speaker.lead_s(now)
    if not speaker.has_spoken:
        return speaker.is_batch, 1, speaker.arrival
    return speaker.is_batch, 0 if lead_s < URGENT_LEAD_S else 2, lead_s
