from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.simulation import Device, Listener, Simulation, Wish
from voiceagent_tts.core import FRAME_S, FRAME_SAMPLES, SAMPLE_RATE_HZ
from voiceagent_tts.engine.scheduler import Scheduler
from voiceagent_tts.engine.sequence import (
    ActiveSequence,
    EngineContext,
    Sequence,
    SequenceState,
    TextState,
)
from voiceagent_tts.errors import ErrorCode, OverloadedError
from voiceagent_tts.seam.commands import Credit, SpeechOptions

ROWS = 12


def seconds(least: float, most: float) -> st.SearchStrategy[float]:
    """Durations between `least` and `most`, rounded to a tenth of a millisecond."""
    return st.floats(least, most).map(lambda value: round(value, 4))


devices = st.builds(
    Device,
    rows=st.just(ROWS),
    start_s=seconds(0.0, 0.02),
    step_s=seconds(0.001, 0.03),
    row_s=seconds(0.0, 0.002),
    lag_steps=st.integers(0, 1),
)
"""Fast enough for all rows: a start plus a step of all rows takes at most one frame."""

slow_devices = st.builds(
    Device,
    rows=st.just(ROWS),
    start_s=seconds(0.0, 0.2),
    step_s=seconds(0.01, 0.3),
    row_s=seconds(0.0, 0.02),
    lag_steps=st.integers(0, 3),
)

listeners = st.builds(
    Wish,
    at=seconds(0.0, 3.0),
    runs=st.lists(st.integers(1, 60), min_size=1, max_size=3).map(tuple),
    max_lead_s=seconds(0.5, 8.0),
)
speeches = st.builds(
    Wish,
    at=seconds(0.0, 3.0),
    runs=st.lists(st.integers(25, 60), min_size=1, max_size=2).map(tuple),
    max_lead_s=seconds(1.0, 8.0),
)
"""Wishes whose runs are as long as sentences."""
files = st.builds(
    Wish,
    at=seconds(0.0, 3.0),
    runs=st.lists(st.integers(1, 60), min_size=1, max_size=2).map(tuple),
    is_batch=st.just(True),
)


def several(
    wishes: st.SearchStrategy[Wish], most: int = ROWS, least: int = 1
) -> st.SearchStrategy[list[Wish]]:
    return st.lists(wishes, min_size=least, max_size=most)


@given(several(listeners | files), slow_devices)
def test_every_context_is_spoken(wishes: list[Wish], device: Device) -> None:
    """On any device every context is spoken to its last frame, files after listeners."""
    for listener in Simulation(wishes, device).run():
        assert listener.frames == listener.made == sum(listener.wish.runs)


@given(several(speeches), devices)
def test_no_deadline_is_missed_while_the_device_suffices(
    wishes: list[Wish], device: Device
) -> None:
    """If a step of all rows and a start fit into one frame, no listener has an underrun."""
    assert [listener.gaps for listener in Simulation(wishes, device).run()] == [0] * len(wishes)


@given(
    several(speeches, most=6),
    several(files, most=6),
    devices.map(lambda device: replace(device, row_s=device.row_s * 4)),
)
def test_files_never_delay_a_listener(
    wishes: list[Wish], batch: list[Wish], device: Device
) -> None:
    """Files, even more than the device can serve, cause no underrun for a listener.

    They delay a listener's first sound by at most the step under way on arrival and the start that
    this step postpones.
    """
    alone = by_arrival(Simulation(wishes, device))
    crowd = Simulation([*wishes, *batch], device)
    for before, after in zip(alone, by_arrival(crowd), strict=True):
        assert after.gaps == 0
        assert before.first_sound is not None and after.first_sound is not None
        late_s = after.first_sound - before.first_sound
        assert late_s <= 2 * crowd.longest_step_s


def by_arrival(simulation: Simulation) -> list[Listener]:
    return [listener for listener in simulation.run() if not listener.wish.is_batch]


def test_first_sounds_go_before_listeners_with_plenty() -> None:
    """A row with more than a second of lead waits while another row owes its first sound."""
    rich, poor, new = listening(row=0), listening(row=1), listening(row=2)
    rich.record_sent(2 * SAMPLE_RATE_HZ, 0.0)
    poor.record_sent(SAMPLE_RATE_HZ // 2, 0.0)
    scheduler = Scheduler(rows=3, pages=3)
    assert scheduler.plan([rich, poor, new], 0.0).step == [poor, new]
    assert scheduler.plan([rich, poor], 0.0).step == [rich, poor]


@pytest.mark.parametrize("is_batch", [False, True])
@pytest.mark.parametrize("undecoded", [1, 3, 7])
def test_a_row_that_waits_for_a_first_sound_keeps_its_window(
    undecoded: int, is_batch: bool
) -> None:
    """Its frames would go into the codec ahead of the newcomer's next ones.

    They are decoded once the row has ended, or its listener's audio runs short.
    """
    rich, new = listening(row=0, is_batch=is_batch), listening(row=1)
    rich.record_sent(4 * SAMPLE_RATE_HZ, 0.0)
    assert rich.active is not None
    rich.active.undecoded_frames = undecoded
    scheduler = Scheduler(rows=2, pages=2)
    scheduler.costs.record(2, 0, 0.02)
    plan = scheduler.plan([rich, new], 0.0)
    assert (plan.step, plan.decode) == ([new], [(new, 1)])
    late = scheduler.plan([rich, new], 3.7)
    assert (rich in [context for context, _ in late.decode]) is not is_batch
    rich.active.state = SequenceState.ENDED
    assert scheduler.plan([rich, new], 0.0).decode == [(new, 1), (rich, undecoded)]


def test_a_reply_that_was_heard_is_no_first_sound() -> None:
    cached, new = waiting(0), waiting(1)
    cached.continues = True
    scheduler = Scheduler(rows=2, pages=2)
    cached.update_credit(Credit(0, 2.0, EVERYTHING))
    assert scheduler.plan([cached, new], 0.0).start == [new, cached]
    assert scheduler.plan([cached, new], 1.9).start == [cached, new]


@pytest.mark.parametrize(("is_measured", "p95_s"), [(False, 0.42), (True, 0.04)])
def test_a_burst_on_a_cold_engine_starts_together(is_measured: bool, p95_s: float) -> None:
    """With measured costs, 61 of 64 contexts that arrive within 6 ms sound within 50 ms.

    Without measured costs one context starts per step, because no step without a start is observed.
    """
    device = Device(rows=64, start_s=0.0004, step_s=0.006, row_s=0.00004)
    wishes = [Wish(at=0.0001 * number) for number in range(64)]
    simulation = Simulation(wishes, device, is_measured=is_measured)
    waits_s = sorted((heard.first_sound or 0.0) - heard.wish.at for heard in simulation.run())
    assert waits_s[60] == pytest.approx(p95_s, rel=0.25)
    assert not any(listener.gaps for listener in simulation.listeners)


def test_contexts_beyond_what_can_be_spoken_in_time_are_refused() -> None:
    """A context is refused if its step would no longer fit; files may use the remaining time."""
    scheduler = Scheduler(rows=64, pages=64, max_load=0.9)
    contexts = [listening(row=row) for row in range(3)]
    scheduler.admit([], is_batch=False)
    for rows in (1, 2, 3):
        scheduler.costs.record(rows, 0, rows * 0.2 * FRAME_S)
    scheduler.admit(contexts, is_batch=False)
    contexts.append(listening(row=3))
    with pytest.raises(OverloadedError, match="4 contexts"):
        scheduler.admit(contexts, is_batch=False)
    scheduler.admit(contexts, is_batch=True)
    scheduler.admit(contexts, is_batch=False, continues=True)  # cached audio, say


def test_a_step_that_the_machine_held_up_refuses_nobody() -> None:
    """One stall of ten seconds leaves the load as it was; a slower device is known in 20 steps."""
    scheduler = Scheduler(rows=8, pages=64, max_load=0.8)
    for step in range(100):
        scheduler.costs.record(1 + step % 4, 0, 0.01)
    scheduler.costs.record(4, 0, 10.0)
    assert scheduler.load(8) < 0.2
    for step in range(20):
        scheduler.costs.record(1 + step % 4, 0, 0.1)
    assert scheduler.load(4) > 0.3


def test_files_leave_rows_to_those_who_listen() -> None:
    scheduler = Scheduler(rows=16, pages=16)
    contexts = [listening(row=row) for row in range(14)]
    with pytest.raises(OverloadedError, match="14 rows"):
        scheduler.admit(contexts, is_batch=True)
    scheduler.admit(contexts, is_batch=False)


def test_retry_after_is_when_the_first_row_is_likely_to_be_free() -> None:
    scheduler = Scheduler(rows=2, pages=2)
    scheduler.costs.record(2, 0, 0.01)
    soon, later = listening(row=0), listening(row=1)
    for context, text_ids in ((soon, 20), (later, 200)):
        context.sequences[0].text_ids = text_ids
        context.expects_text = False
    assert refused([soon, later]) == pytest.approx(60 * 0.01 * 1000)
    soon.samples_wanted = 3 * SAMPLE_RATE_HZ  # of 4.8 s
    assert refused([soon, later], scheduler) == pytest.approx(1800)
    soon.expects_text = later.expects_text = True
    assert refused([soon, later], scheduler) == 1000


def test_nobody_is_told_to_try_again_at_once() -> None:
    """A context that has made all of its likely frames may still be there in the next step."""
    scheduler = Scheduler(rows=1, pages=1)
    context = listening()
    context.sequences[0].text_ids = 1
    context.expects_text = False
    context.current.detector.frames = context.sequences[0].likely_frames
    with pytest.raises(OverloadedError, match=r"try again in 0\.1 s") as error:
        scheduler.admit([context], is_batch=False)
    assert error.value.retry_after_ms == 100


@given(
    st.lists(
        st.tuples(st.sampled_from(["start", "extend", "release", "lend"]), st.integers(0, 4)),
        max_size=60,
    )
)
def test_every_row_and_page_has_one_holder(calls: list[tuple[str, int]]) -> None:
    """However rows start, grow and are released, nothing is given out twice, and all is returned.

    A start takes the lowest free row and pages, so those never needed stay untouched: one page more
    than the number of its context.
    """
    scheduler = Scheduler(rows=4, pages=9)
    contexts = [waiting(number) for number in range(5)]
    active = dict[int, ActiveSequence]()
    for call, number in calls:
        context = contexts[number]
        held = {page for one in active.values() for page in one.pages}
        if call == "lend":
            with scheduler.memory.lend_pages(number) as pages:
                assert (pages is not None) == (number <= 9 - len(held))
                assert not held & set(pages or ())
        elif call == "start" and number not in active and len(active) < 4:
            lowest = min(set(range(4)) - {one.row for one in active.values()})
            try:
                started = scheduler.reserve(context, number + 1, number + 1, contexts)
            except OverloadedError:
                assert number + 1 > 9 - len(held)
                continue
            assert started is not None and started is context.active
            free = sorted(set(range(1, 10)) - held)
            assert (started.row, list(started.pages)) == (lowest, free[: number + 1])
            active[number] = started
        elif call == "extend" and number in active:
            before, is_free = active[number].pages, len(held) < 9
            assert scheduler.extend(context, contexts) is is_free
            if is_free:
                assert active[number].pages[:-1] == before
            else:
                assert active[number].pages == ()
                assert active[number].state is SequenceState.OUT_OF_MEMORY
        elif call == "release" and number in active:
            scheduler.memory.release(context, contexts)
            assert context.active is None
            del active[number]
        pages = [page for one in active.values() for page in one.pages]
        assert len(set(pages)) == len(pages)
        assert set(pages) <= set(range(1, 10))
        assert scheduler.memory.free_pages == 9 - len(pages)


def holding(number: int, pages: int, scheduler: Scheduler, *, is_batch: bool) -> EngineContext:
    context = waiting(number, is_batch=is_batch)
    context.current.text_ids = 10 * (number + 1)
    context.expects_text = False
    context.active = scheduler.memory.take(pages, pages)
    return context


def test_a_file_grows_into_no_page_that_listeners_are_left() -> None:
    scheduler = Scheduler(rows=4, pages=16)
    file = holding(0, 13, scheduler, is_batch=True)
    listener = holding(1, 1, scheduler, is_batch=False)
    assert not scheduler.extend(file, [file, listener])
    assert file.active is not None and file.active.state is SequenceState.OUT_OF_MEMORY
    assert scheduler.memory.free_pages == 15
    alone = Scheduler(rows=4, pages=16)
    file, other = (holding(number, 7, alone, is_batch=True) for number in range(2))
    assert alone.extend(file, [file, other]) and alone.extend(other, [file, other])


def test_a_file_gets_every_page_that_it_has_reserved() -> None:
    """Listeners' turns are admitted beside what it has reserved, so they need none of it."""
    scheduler = Scheduler(rows=4, pages=16)
    file, listener = waiting(0, is_batch=True), waiting(1)
    contexts = [file, listener]
    for context in contexts:
        active = scheduler.reserve(context, 1, 8, contexts)
        assert active is not None
    for context in (listener, file):
        assert all(scheduler.extend(context, contexts) for _ in range(7))
    assert scheduler.memory.free_pages == 0


def test_a_row_that_finds_no_page_leaves_its_own_to_the_next() -> None:
    scheduler = Scheduler(rows=2, pages=2)
    first, second = (holding(number, 1, scheduler, is_batch=False) for number in range(2))
    contexts = [first, second]
    assert not scheduler.extend(first, contexts)
    assert scheduler.extend(second, contexts)


def refused(contexts: list[EngineContext], scheduler: Scheduler | None = None) -> int | None:
    """Admit a context that must be refused; return its retry-after."""
    if scheduler is None:
        scheduler = Scheduler(rows=len(contexts), pages=len(contexts))
        scheduler.costs.record(len(contexts), 0, 0.01)
    with pytest.raises(OverloadedError) as error:
        scheduler.admit(contexts, is_batch=False)
    assert error.value.code is ErrorCode.OVERLOADED
    return error.value.retry_after_ms


def waiting(arrival: int, *, is_batch: bool = False) -> EngineContext:
    context = EngineContext(arrival, SpeechOptions(is_batch=is_batch), arrival=arrival)
    context.sequences.append(Sequence(True, text=TextState.COMPLETE))
    context.samples_wanted = 10**12
    return context


def listening(row: int = 0, *, is_batch: bool = False) -> EngineContext:
    context = waiting(row, is_batch=is_batch)
    context.active = ActiveSequence(row)
    return context


EVERYTHING = 10**9


def decoding_context(
    row: int, *, has_spoken: bool, undecoded: int, decoding: int, is_batch: bool = False
) -> EngineContext:
    """A context whose row makes frames; those with smaller rows have less audio in hand."""
    options = SpeechOptions(is_batch=is_batch)
    context = EngineContext(row, options, arrival=row, samples_wanted=EVERYTHING)
    context.active = ActiveSequence(row, undecoded_frames=undecoded, decoding_frames=decoding)
    if has_spoken:
        context.record_sent((30 + row) * FRAME_SAMPLES, 0.0)
    return context


def planned(contexts: list[EngineContext]) -> dict[int, int]:
    """Frames that the codec is given in a step of all rows, by row, in order."""
    plan = Scheduler(100, 100).plan(contexts, 0.0)
    return {context.id: frames for context, frames in plan.decode}


def test_a_full_codec_is_given_first_audio_only() -> None:
    """Beyond the limit only contexts without audio are decoded, however many there are."""
    spoken = [
        decoding_context(row, has_spoken=True, undecoded=30, decoding=12) for row in range(20)
    ]
    silent = [
        decoding_context(row, has_spoken=False, undecoded=0, decoding=0) for row in range(20, 60)
    ]
    assert planned([*spoken, *silent]) == dict.fromkeys(range(20, 60), 1)


def test_no_file_is_decoded_before_a_listener() -> None:
    """Not with its first frames either, and only as far as the codec has room for them."""
    files = [
        decoding_context(row, has_spoken=False, undecoded=9, decoding=12, is_batch=True)
        for row in range(20)
    ]
    listener = decoding_context(20, has_spoken=True, undecoded=12, decoding=0)
    assert planned([*files, listener]) == {}
    for file in files:
        assert file.active is not None
        file.active.decoding_frames = 0
    given = planned([*files, listener])
    assert next(iter(given)) == listener.id
    assert len(given) == 1 + len(files)
