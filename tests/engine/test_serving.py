"""Many contexts at once: priorities, exhausted memory, metrics, and no leaks."""

import gc
import re
from collections.abc import Collection
from functools import partial
from pathlib import Path
from random import Random

import numpy as np
import pytest

from testbed.engine_driving import Driver, last_of, load, pcm_of
from voiceagent_tts.core import FRAME_SAMPLES
from voiceagent_tts.engine.kind import KIND
from voiceagent_tts.engine.scheduler import Plan, Scheduler
from voiceagent_tts.engine.sequence import EngineContext
from voiceagent_tts.errors import ErrorCode
from voiceagent_tts.model.kv_pool import PAGE_POSITIONS
from voiceagent_tts.seam.commands import Append, Cancel, Prepare, SpeechOptions
from voiceagent_tts.seam.events import AudioStep, Cancelled, Done, Event, Failed

TEXT = "Hello there, somebody."
LONG = "This sentence is one of many that follow each other. " * 9


def chunks_of(events: list[Event], context: int) -> list[int]:
    steps = (event.rows for event in events if isinstance(event, AudioStep))
    return [
        part.chunk.samples // FRAME_SAMPLES
        for rows in steps
        for part in rows
        if part.context == context
    ]


@pytest.mark.parametrize("frames", [1, 3, 16])
def test_a_context_chooses_how_much_comes_first(frames: int) -> None:
    """The first chunk has as many frames as `initial_frames` asks for, up to the largest window."""
    driver = Driver()
    driver.run(*driver.open(1, LONG, initial_frames=frames))
    assert chunks_of(driver.events, 1)[0] == min(frames, 12)


def test_a_prepared_beginning_is_not_computed_again() -> None:
    """After `Prepare`, a sequence with that voice, language and instruct prefills only its text."""
    driver = Driver()
    options = {"voice": "vivian", "language": "en", "instruct": "Slowly.", "feeding": "token"}
    driver.run(Prepare("vivian", "en", "token", SpeechOptions("Slowly.")))
    driver.run(*driver.open(1, TEXT, **options))
    driver.run(*driver.open(2, TEXT, **options | {"instruct": "Fast."}))
    metrics = driver.engine.metrics
    assert (metrics["prefix_cache_hits_total"], metrics["prefix_cache_misses_total"]) == (1, 1)
    cold = Driver()
    expected = pcm_of(cold.run(*cold.open(1, TEXT, **options)), 1)
    heard = pcm_of(driver.events, 1)
    assert len(heard) == len(expected)
    difference = np.frombuffer(heard, "<i2").astype(int) - np.frombuffer(expected, "<i2")
    assert np.abs(difference).max() <= 8


def test_a_beginning_longer_than_a_row_is_not_prepared() -> None:
    driver = Driver()
    options = {"voice": "vivian", "language": "en", "instruct": "Slowly. " * 500}
    driver.run(Prepare("vivian", "en", options=SpeechOptions(options["instruct"])))
    failed = last_of(driver.run(*driver.open(1, TEXT, **options)), 1)
    assert isinstance(failed, Failed)
    assert failed.code is ErrorCode.TEXT_TOO_LONG
    assert isinstance(last_of(driver.run(*driver.open(2, TEXT)), 2), Done)


def test_a_beginning_that_never_fits_costs_no_other() -> None:
    driver = Driver(step_s=0.0)
    options = {"voice": "vivian", "language": "en", "feeding": "token"}
    driver.run(Prepare(**options))
    driver.runner._prefix_bytes = driver.runner.batch.prefix_bytes(PAGE_POSITIONS) // 4
    driver.run(Prepare(**options, options=SpeechOptions("Slowly. " * 40)))
    driver.run(*driver.open(1, TEXT, **options))
    assert driver.engine.metrics["prefix_cache_hits_total"] == 1


def test_a_prompt_without_memory_is_refused() -> None:
    """A first sequence without a free page fails as overloaded; other contexts continue."""
    driver = Driver(pages=1)
    events = driver.run(*driver.open(1, TEXT), *driver.open(2, TEXT))
    refused = last_of(events, 2)
    assert isinstance(refused, Failed)
    assert refused.code is ErrorCode.OVERLOADED
    assert refused.retry_after_ms is not None
    assert isinstance(last_of(events, 1), Done)
    assert driver.engine.metrics["free_pages"] == 1


@pytest.mark.parametrize("others", [({}, {"is_batch": True}), ({"continues": True},)])
def test_a_run_that_goes_on_waits_for_memory(others: tuple[dict[str, bool], ...]) -> None:
    """Files, and contexts that have spoken, wait until other contexts release pages.

    The listener of a turn that began with cached audio (`continues`) has heard its beginning.
    """
    driver = Driver(pages=1)
    driver.run(*driver.open(1, "One.", more=True))
    for context, options in enumerate(others, start=2):
        driver.send(*driver.open(context, TEXT, **options))
    for _ in range(3):
        driver.engine.step()
    driver.run(Append(1, " Two.", 4, False, "en"))
    for context in range(1, 2 + len(others)):
        assert isinstance(last_of(driver.events, context), Done)
        assert pcm_of(driver.events, context)


def test_files_leave_memory_to_those_who_listen() -> None:
    """However much memory files request, a new context with a listener gets some."""
    driver = Driver(rows=16, pages=16)
    instruct = "Speak as one who has told the same story many times. " * 8  # more than a page
    for context in range(8):
        driver.send(*driver.open(context, TEXT, instruct=instruct, is_batch=True))
    driver.engine.step()
    driver.run(*driver.open(8, TEXT))
    assert all(isinstance(last_of(driver.events, context), Done) for context in range(9))


def test_a_run_waits_for_what_others_hold() -> None:
    """Pages that a sequence took beyond its estimate are unavailable to one that would continue."""
    driver = Driver(parts=load(max_frames=80), pages=2)
    instruct = "Speak as one who has told the same story many times. " * 4  # most of a page
    driver.run(*driver.open(1, "One.", more=True))
    driver.send(*driver.open(2, TEXT, instruct=instruct))
    for _ in range(60):
        driver.engine.step()
    assert driver.engine.metrics["free_pages"] == 0
    driver.run(Append(1, " Two.", 4, False, "en"))
    assert all(isinstance(last_of(driver.events, context), Done) for context in (1, 2))


def test_a_row_that_outgrows_the_memory_fails_alone() -> None:
    driver = Driver(parts=load(max_frames=60), pages=2)
    instruct = "Speak as one who has told the same story many times. " * 4  # most of a page
    driver.send(*driver.open(1, TEXT, instruct=instruct))
    for _ in range(5):
        driver.engine.step()
    driver.run(*driver.open(2, TEXT, instruct=instruct))
    failed = last_of(driver.events, 1)
    assert isinstance(failed, Failed)
    assert failed.code is ErrorCode.OVERLOADED
    assert 10 < sum(chunks_of(driver.events, 1)) < 60
    assert isinstance(last_of(driver.events, 2), Done)
    assert driver.engine.metrics["free_pages"] == 2
    assert len(driver.runner.batch.free) == 4


MOST_OF_A_PAGE = "Speak as one who has told the same story many times. " * 4


@pytest.mark.parametrize("listeners", [2, 3])
def test_a_listener_outlives_files_where_memory_is_short(listeners: int) -> None:
    """If a listener's row finds no page, the file with the most left gives up its own.

    Files start first, so that their rows are full first, and lower ones.
    """
    driver = Driver(parts=load(max_frames=60), pages=6, step_s=0.01)
    options = {"instruct": MOST_OF_A_PAGE}
    files, turns = range(4 - listeners), range(4 - listeners, 4)
    for context in files:
        driver.send(*driver.open(context, TEXT, is_batch=True, **options))
    for _ in range(8):
        driver.engine.step()
    for context in turns:
        driver.send(*driver.open(context, TEXT, **options))
    driver.run()
    assert all(isinstance(last_of(driver.events, context), Done) for context in turns)
    failed = [end for end in map(partial(last_of, driver.events), files) if isinstance(end, Failed)]
    assert failed
    assert all(end.code is ErrorCode.OVERLOADED and end.retry_after_ms for end in failed)
    assert driver.engine.metrics["free_pages"] == 6
    assert len(driver.runner.batch.free) == 4


def test_a_row_that_has_ended_keeps_no_page_for_its_audio(monkeypatch: pytest.MonkeyPatch) -> None:
    """While its last frames are decoded, its pages are there for others."""
    driver, seen, plan = Driver(step_s=0.0), set[tuple[float, int]](), Scheduler.plan

    def noted(self: Scheduler, contexts: Collection[EngineContext], now: float) -> Plan:
        seen.add((self.memory.free_pages, len(driver.runner.batch.free)))
        return plan(self, contexts, now)

    monkeypatch.setattr(Scheduler, "plan", noted)
    driver.run(*driver.open(1, TEXT))
    assert seen == {(16, 4), (15, 3), (16, 3)}


def test_what_listeners_lack_is_counted() -> None:
    slow = Driver(step_s=0.2)
    slow.run(*slow.open(1, TEXT))
    assert slow.engine.metrics["underruns_total"] > 5
    assert slow.engine.metrics["underrun_seconds_total"] > 5 * 0.1
    fast = Driver()
    submit, credit = fast.open(1, "Hello there, ", more=True, feeding="token")
    fast.run(submit, credit)
    fast.now += 10
    fast.send(Cancel(2))
    assert fast.engine.metrics["underruns_total"] == 0


def test_every_metric_is_documented(driver: Driver) -> None:
    """docs/monitoring.md lists each metric under its name, with its type; so does `/metrics`."""
    assert set(driver.engine.metrics) <= set(KIND.metrics)
    page = (Path(__file__).parents[2] / "docs" / "monitoring.md").read_text(encoding="utf-8")
    table = page[page.index("| metric of qwen3 |") :].partition("\n\n")[0]
    documented = dict(re.findall(r"^\| `tts_worker_(\w+)` \| (\w+) \|", table, re.MULTILINE))
    kinds = ("gauge", "counter")
    assert documented == {name: kinds[name.endswith("_total")] for name in driver.engine.metrics}


@pytest.mark.parametrize("contexts", [1000, pytest.param(5000, marks=pytest.mark.thorough)])
def test_thousands_of_contexts_leave_nothing(contexts: int) -> None:
    """However contexts ended, rows, pages and objects are as many as before."""
    driver, random = Driver(parts=load(max_frames=4), rows=64), Random(1)
    driver.run(*driver.open(0, TEXT))  # objects that are created once
    pages, objects = driver.engine.metrics["free_pages"], list[int]()
    context = 0
    while context < contexts:
        came = range(context + 1, context + 51)
        context = came[-1]
        for number in came:
            submit, credit = driver.open(number, TEXT, more=random.random() < 0.3)
            driver.send(submit)
            if random.random() < 0.1:  # a context with a listener
                driver.send(credit)
        for _ in range(random.randrange(3)):
            driver.engine.step()
        driver.run(*map(Cancel, came))
        cancelled = sum(isinstance(event, Cancelled) for event in driver.events)
        assert cancelled == len(came)
        driver.events.clear()
        if context % 500 == 0:
            gc.collect()
            objects.append(len(gc.get_objects()))
    assert driver.engine.rows_used == 0
    assert not driver.engine._contexts
    assert driver.engine.metrics["free_pages"] == pages
    assert len(driver.runner.batch.free) == 64
    assert objects[-1] - objects[0] < contexts / 10  # shapes that occur for the first time
