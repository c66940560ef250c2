"""Credit follows playback, in steps, within the limits; on a fake clock."""

from collections.abc import Callable

import pytest

from testbed.waiting import until
from voiceagent_tts.core import SAMPLE_RATE_HZ, PlayoutClock
from voiceagent_tts.synthesizer.engine_handle import EngineHandle
from voiceagent_tts.synthesizer.options import Limits
from voiceagent_tts.synthesizer.pacer import Pacer

START = 100.0


class FakeTime:
    """Replaces the module `time`; a test sets its clock."""

    def __init__(self) -> None:
        self.now = START

    def monotonic(self) -> float:
        """The time that the test has set."""
        return self.now


class RecordingEngine(EngineHandle):
    """An engine handle without a worker that records the credit."""

    def __init__(self) -> None:
        self.has_text = True
        self.grants: list[tuple[float, int]] = []

    @property
    def is_speaking(self) -> bool:
        """Whether the engine has received text."""
        return self.has_text

    def grant(self, playout_end: float, samples_wanted: int) -> None:
        """Record credit."""
        self.grants.append((playout_end, samples_wanted))

    @property
    def granted_s(self) -> list[float]:
        """Credits so far, in seconds of audio."""
        return [samples / SAMPLE_RATE_HZ for _, samples in self.grants]


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> FakeTime:
    """The pacer's time."""
    fake = FakeTime()
    monkeypatch.setattr("voiceagent_tts.synthesizer.pacer.time", fake)
    return fake


@pytest.fixture
def engine() -> RecordingEngine:
    """An engine that has text."""
    return RecordingEngine()


def pacer_of(
    engine: EngineHandle,
    max_lead_s: float | None,
    to_engine: Callable[[int], int] = lambda samples: samples,
) -> Pacer:
    """A pacer under a server's limits of 8 s lead and 10 s of unsent audio."""
    limits = Limits(max_lead_s=8.0, max_unsent_s=10.0)
    return Pacer(engine, PlayoutClock(), to_engine, max_lead_s, limits)


def test_without_text_nothing_is_granted(time: FakeTime, engine: RecordingEngine) -> None:
    """An engine that has received no text gets no credit."""
    engine.has_text = False
    pacer_of(engine, 2.0).update()
    assert engine.grants == []


@pytest.mark.parametrize(
    ("max_lead_s", "granted_s"),
    [(2.0, 2.0), (None, 8.0), (60.0, 10.0), (0.0, 10.0), (0.01, 0.2)],
    ids=["asked for", "the server's", "over the unsent limit", "unpaced", "below the minimum"],
)
def test_the_first_credit_is_the_lead(
    time: FakeTime, engine: RecordingEngine, max_lead_s: float | None, granted_s: float
) -> None:
    """The first credit is the client's or else the server's lead, within the bounds."""
    pacer_of(engine, max_lead_s).update()
    assert engine.granted_s == [granted_s]


def test_credit_is_on_the_engines_clock(time: FakeTime, engine: RecordingEngine) -> None:
    """Samples for the listener become samples that the engine must generate."""
    pacer_of(engine, 2.0, lambda samples: 3 * samples).update()
    assert engine.granted_s == [6.0]


async def test_credit_waits_for_a_step_of_playback(time: FakeTime, engine: RecordingEngine) -> None:
    """New credit is granted when playback has proceeded by half a second, not before."""
    pacer = pacer_of(engine, 2.0)
    pacer.update()
    pacer.record_sent(SAMPLE_RATE_HZ)
    time.now = START + 0.49
    pacer.update()
    assert engine.granted_s == [2.0]
    time.now = START + 0.5
    pacer.update()
    pacer.stop()
    assert engine.granted_s == [2.0, 2.5]


async def test_credit_names_the_end_of_playback(time: FakeTime, engine: RecordingEngine) -> None:
    """Credit carries the time when sent audio will have been played, or now if it has been."""
    pacer = pacer_of(engine, 2.0)
    pacer.update()
    pacer.record_sent(SAMPLE_RATE_HZ)
    for time.now in (START + 0.75, START + 7.0):
        pacer.update()
        pacer.record_sent(SAMPLE_RATE_HZ)
    pacer.stop()
    assert [playout_end for playout_end, _ in engine.grants] == [START, START + 1, START + 7]


def test_an_unpaced_context_gets_credit_for_what_it_sends(
    time: FakeTime, engine: RecordingEngine
) -> None:
    """Without pacing only unsent audio is limited, whatever has been played."""
    limits = Limits(max_unsent_s=10.0)
    pacer = Pacer(engine, PlayoutClock(), lambda samples: samples, 0, limits)
    pacer.update()
    pacer.record_sent(3 * SAMPLE_RATE_HZ)
    assert engine.granted_s == [10.0, 13.0]


async def test_credit_follows_playback_by_itself(time: FakeTime, engine: RecordingEngine) -> None:
    """While sent audio plays, credit is granted without another call."""
    pacer = pacer_of(engine, 0.2)
    pacer.update()
    pacer.record_sent(SAMPLE_RATE_HZ)
    time.now = START + 0.5
    await until(lambda: len(engine.grants) > 1, "credit was granted")
    pacer.stop()
    assert engine.granted_s == [0.2, 0.7]


async def test_the_first_audio_sent_is_remembered(time: FakeTime, engine: RecordingEngine) -> None:
    """`first_sent_at` is the time of the first audio, not of later audio."""
    pacer = pacer_of(engine, 2.0)
    assert pacer.first_sent_at is None
    pacer.record_sent(SAMPLE_RATE_HZ)
    time.now = START + 1
    pacer.record_sent(SAMPLE_RATE_HZ)
    pacer.stop()
    assert pacer.first_sent_at == START
