"""An engine speaks whatever fails on its GPU, or ends with a sentence that has the first cause."""

import asyncio
import json
import os
import time
from dataclasses import asdict, dataclass

import pytest

from testbed.engine_driving import CUSTOM_VOICE, Driver
from testbed.failing_gpu import (
    ILLEGAL_ACCESS,
    INVALIDATED,
    TOO_SMALL,
    VARIABLE,
    FailingGpu,
    FailingSpec,
    FaultPoint,
    failing_gpu,
    rung_of_this_process,
)
from testbed.parity_reference import REFERENCE
from voiceagent_tts.engine import ladder
from voiceagent_tts.engine.engine import Qwen3Engine
from voiceagent_tts.engine.ladder import load_lower
from voiceagent_tts.engine.load import load_engine
from voiceagent_tts.engine.options import Qwen3Options
from voiceagent_tts.errors import VoiceAgentError
from voiceagent_tts.seam.commands import Credit, Submit
from voiceagent_tts.seam.engine_kind import RUNG_VARIABLE
from voiceagent_tts.seam.events import AudioStep, Failed
from voiceagent_tts.synthesizer import workers
from voiceagent_tts.synthesizer.workers import Supervisor

OPTIONS = Qwen3Options(
    str(REFERENCE / CUSTOM_VOICE), device="cpu", rows=1, threads=1, capacity=96,
    is_deterministic=True,
)  # fmt: skip

Faults = dict[FaultPoint, str]


class _StartedAnew(BaseException):
    """Takes the place of `execve`, which does not return."""


@dataclass
class Started:
    """The starts of one worker.

    Attributes:
        driver: drives the engine that was loaded at last.
        rungs: kernels and use of graphs of each start, as far as they were chosen.
    """

    driver: Driver
    rungs: list[list[object]]

    def speaks(self) -> bool:
        self.driver.send(*self.driver.open(1, "Hello."))
        while not self.driver.events:
            assert self.driver.engine.step() is not None
        return isinstance(self.driver.events[0], AudioStep)


def start(by_rung: list[Faults], monkeypatch: pytest.MonkeyPatch) -> Started:
    """Start a worker whose GPU has these faults on each rung, until it is loaded or has ended."""

    def start_anew(place: str) -> None:
        os.environ[RUNG_VARIABLE] = place
        raise _StartedAnew

    monkeypatch.setattr(ladder, "_start_anew", start_anew)
    monkeypatch.setenv(RUNG_VARIABLE, "0")
    driver, rungs = Driver(rows=1), list[list[object]]()
    while True:
        gpu = FailingGpu(by_rung[rung_of_this_process()])
        rungs.append(gpu.rung)
        assert len(rungs) <= len(by_rung)

        def load(allowed: Qwen3Options) -> Qwen3Engine:
            return load_engine(allowed, driver._take, driver.events.append)

        try:
            with failing_gpu(gpu):
                driver.engine = load_lower(OPTIONS, load)
            return Started(driver, rungs)
        except _StartedAnew:
            pass


@pytest.mark.parametrize(
    ("faults", "rungs", "cause"),
    [
        ([{}], [["fused", True]], ""),
        ([{"gate": "CompilationError: no ptxas"}], [["plain", True]], ""),
        (
            [{"gate": "illegal access"}, {"gate": "illegal access"}, {}],
            [[], [], ["plain", True]],
            f"RuntimeError: fused kernels have left cuda unusable: {ILLEGAL_ACCESS}",
        ),
        (
            [{"capture": "invalidated"}, {}],
            [["fused"], ["fused", True]],
            f"RuntimeError: {INVALIDATED}",
        ),
        (
            [{"replay": "illegal access"}, {"capture": "invalidated"}, {}],
            [["fused"], ["fused"], ["plain", True]],
            f"RuntimeError: {ILLEGAL_ACCESS}",
        ),
        (
            [*3 * [{"capture": "invalidated"}], {}],
            [["fused"], ["fused"], ["plain"], ["plain", False]],
            f"RuntimeError: {INVALIDATED}",
        ),
        (
            [{"capture": "cuBLAS: not initialized"}, *2 * [{"memory": "too small"}], {}],
            [["fused"], ["fused"], ["plain"], ["plain", False]],
            "RuntimeError: cuBLAS: not initialized",
        ),
    ],
    ids=[
        "no fault", "gate refuses", "gate faults", "capture", "first replay", "every capture",
        "memory for graphs",
    ],
)  # fmt: skip
def test_what_fails_is_done_without(
    faults: list[Faults],
    rungs: list[list[object]],
    cause: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The engine speaks with as much as works, and the log has what failed first."""
    started = start(faults, monkeypatch)
    assert started.rungs == rungs
    assert started.speaks()
    last = caplog.messages[-1] if caplog.messages else ""
    assert last.endswith(f"because of {cause}") if cause else "because of" not in last


@pytest.mark.parametrize(
    ("faults", "sentence"),
    [
        (
            [
                *2 * [{"gate": "illegal access"}],
                {"replay": "illegal access"},
                {"pass": "illegal access"},
            ],
            f"the engine cannot run on cuda: RuntimeError: fused kernels have left cuda unusable: "
            f"{ILLEGAL_ACCESS}",
        ),
        (
            [{"capture": "invalidated"}, *2 * [{"capture": "other"}], {"memory": "too small"}],
            f"the engine cannot run on cuda: RuntimeError: {INVALIDATED}",
        ),
        ([{"memory": "too small"}], TOO_SMALL),
    ],
    ids=["nothing works", "too little memory at last", "a setting"],
)
def test_what_cannot_run_ends_with_its_first_cause(
    faults: list[Faults], sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the last rung, and where a setting is refused, loading ends with one sentence."""
    with pytest.raises(VoiceAgentError) as ended:
        start(faults, monkeypatch)
    assert ended.value.message == sentence


def supervised(*by_rung: Faults) -> Supervisor:
    """Return the supervisor of a real worker process whose GPU has these faults on each rung."""
    environment = {VARIABLE: json.dumps(by_rung)}
    return Supervisor(FailingSpec("qwen3", asdict(OPTIONS), environment=environment))


async def first_event(supervisor: Supervisor) -> object:
    """Speak by the supervisor's next worker; returns the first event."""
    worker = await supervisor.wait_for_worker(60.0)
    events: asyncio.Queue[object] = asyncio.Queue()
    context = worker.attach(events.put_nowait)
    worker.send(Submit(context, "Hello.", 0, False, "ryan", "en"))
    worker.send(Credit(context, time.monotonic(), 10**9))
    event = await events.get()
    if isinstance(event, Failed):
        await worker.closed.wait()
    return event


async def test_a_worker_that_started_anew_is_the_same_worker() -> None:
    supervisor = supervised({"replay": "illegal access"}, {})
    await supervisor.start()
    try:
        assert isinstance(await first_event(supervisor), AudioStep)
        assert supervisor.restarts == 0
    finally:
        await supervisor.close()


@pytest.mark.thorough
async def test_what_faults_again_under_listeners_is_done_without() -> None:
    """The first fault may be chance; after the second, the worker has a plain codec, and speaks."""
    supervisor = supervised({"serving": "illegal access"}, {})
    await supervisor.start()
    try:
        for _ in range(2):
            assert isinstance(await first_event(supervisor), Failed)
        assert isinstance(await first_event(supervisor), AudioStep)
        assert supervisor.restarts == 2
    finally:
        await supervisor.close()


@pytest.mark.thorough
async def test_a_worker_never_does_with_more_than_the_one_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also after one that served for long: the next two faults in a row take another step down."""
    supervisor = supervised({"serving": "illegal access"}, {"serving": "illegal access"}, {})
    await supervisor.start()
    try:
        for _ in range(2):
            assert isinstance(await first_event(supervisor), Failed)
        with monkeypatch.context() as patch:
            patch.setattr(workers, "_SOON_S", 0.0)
            assert isinstance(await first_event(supervisor), Failed)
            await supervisor.wait_for_worker(60.0)
        for _ in range(2):
            assert isinstance(await first_event(supervisor), Failed)
        assert isinstance(await first_event(supervisor), AudioStep)
    finally:
        await supervisor.close()
