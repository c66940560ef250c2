"""Fixtures for many tests: the real server with the embedded voice, and slowed-down engines."""

import os

# Torch and NumPy get one thread each; both read these variables when they are imported, here and in
# processes that tests start. Tests compute on tiny tensors, where several threads mostly wait for
# each other, and NumPy's spin meanwhile: the online aligner's tests took four times the processor
# time, and on busy cores one test took 65 s in place of 2. Threads that a test needs sleep.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import contextlib
import gc
import signal
import sys
from collections.abc import AsyncIterator, Generator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from testbed.alone import Name, has_none, left_out, to_be_judged_alone
from testbed.examples import is_left_out, register_profiles
from testbed.fork_server import ForkServers
from testbed.http_server import server_threads
from testbed.missing import skipped_if_missing
from testbed.ports import free_ports
from testbed.redis_process import RedisProcess
from testbed.server_process import ServerProcess, serving
from testbed.servers import StartServer, StartSynthesizer
from testbed.skips import AllowedSkips, name_of, refuse_skip
from testbed.throttling import running_throttled, throttled
from testbed.waiting import PATIENCE_S
from testbed.watermarks import WATERMARK_KEY_FILE
from testbed.workers import lower_priority, mark_realtime
from voiceagent_tts.config import Settings
from voiceagent_tts.seam.engine_kind import WorkerSpec
from voiceagent_tts.server.serve import RunningServer
from voiceagent_tts.synthesizer.options import Limits
from voiceagent_tts.synthesizer.synthesizer import Synthesizer
from voiceagent_tts.synthesizer.workers import Supervisor
from voiceagent_tts.word_times.processes import Aligners

register_profiles()

# A background job of a shell starts with SIGINT ignored, and every process of these tests would
# inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

SKIPS = AllowedSkips.read()
BENCHMARKS = Path(__file__).parent / "benchmarks"
FAILED = pytest.StashKey[frozenset[Name]]()
"""Tests that failed beside others, in a run of those that run alone."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--complete`, for machines on which every test must run."""
    parser.addoption(
        "--complete",
        action="store_true",
        help="a skipped test fails, unless it needs another machine (tests/skips.toml)",
    )
    parser.addoption(
        "--alone-after",
        type=Path,
        help="run tests marked `alone`, and what plays and failed in this report of other tests",
    )
    parser.addoption(
        "--sample",
        default="",
        help="run the property tests and costly cases that this commit chooses",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Lower the priority of workers whose tests compute, and let commands speak as espeak."""
    # A better voice that is on this machine would be taken instead, by commands without an engine.
    os.environ.setdefault("VOICEAGENT_TTS_ENGINE", "espeak")
    # Tests mark audio as users do, but leave no key in the home of who runs them.
    os.environ.setdefault("VOICEAGENT_TTS_WATERMARK_KEY_FILE", str(WATERMARK_KEY_FILE))
    # Tests of engines repeat their texts, which must be spoken every time.
    os.environ.setdefault("VOICEAGENT_TTS_CACHE_MB", "0")
    lower_priority()
    wait_patiently()
    fork_servers = ForkServers()
    fork_servers.install()
    config.add_cleanup(fork_servers.close)


def wait_patiently() -> None:
    """Let HTTP clients without a time limit of their own wait as long as all else that waits.

    A busy machine may starve a server, or its engine, for the 5 s after which they give up.
    """
    for part in ("connect", "read", "write", "pool"):
        setattr(httpx._config.DEFAULT_TIMEOUT_CONFIG, part, PATIENCE_S)


def pytest_sessionstart(session: pytest.Session) -> None:
    """Read which tests failed beside others, if this run is about them."""
    config = session.config
    if report := config.getoption("--alone-after"):
        stopped_early = bool(config.getoption("maxfail"))
        config.stash[FAILED] = to_be_judged_alone(report, stopped_early=stopped_early)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Import only the files that such a run needs."""
    if FAILED not in config.stash or collection_path.suffix != ".py":
        return None
    return has_none(collection_path, config.rootpath, config.stash[FAILED]) or None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep the garbage collector away from the objects of modules, which live as long as tests.

    There are a million of them, and every full collection would visit each one, also at the end of
    a worker. Triton is imported later, by the tests that need it: its library lists what is not
    freed at the end.
    """
    gc.disable()
    collected = yield
    gc.freeze()
    gc.enable()
    return collected


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark tests by lists and folders; group those that play, before workers name them by group."""
    mark_realtime(items)
    for item in items:
        if name_of(item) in SKIPS.optional_part or item.get_closest_marker("kokoro"):
            item.add_marker(pytest.mark.optional_part)
        if item.path.is_relative_to(BENCHMARKS):
            item.add_marker(pytest.mark.tools)
    if commit := config.getoption("--sample"):
        deselect(config, items, [item for item in items if is_left_out(item, commit)])
    if FAILED in config.stash:
        failed = config.stash[FAILED]
        deselect(config, items, left_out(items, failed))
        reporter = config.pluginmanager.get_plugin("terminalreporter")
        for module, name in sorted(failed):
            reporter.write_line(f"failed beside others, and is now alone: {module}.{name}")


def deselect(config: pytest.Config, items: list[pytest.Item], those: list[pytest.Item]) -> None:
    """Take tests out of a run."""
    config.hook.pytest_deselected(items=those)
    out = set(those)
    items[:] = [item for item in items if item not in out]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object:
    """Distribute tests by whether they play or compute."""
    # Imported here: tests also run in one process on machines that have no pytest-xdist.
    from testbed.realtime_scheduling import RealtimeScheduling

    return RealtimeScheduling(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Report a test that was skipped, and may not be, as failed."""
    report = yield
    if report.skipped and not hasattr(report, "wasxfail"):
        refuse_skip(report, objection(item))
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Report a file that was skipped as a whole, and may not be, as failed."""
    report = yield
    if report.skipped:
        refuse_skip(report, objection(collector))
    return report


def objection(node: pytest.Item | pytest.Collector) -> str | None:
    """Why a test or a file must not be skipped in this run, if it must not."""
    return SKIPS.objection(node, complete=node.config.getoption("--complete"))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, object, object]:
    """Skip a test whose fixtures miss a part of this machine."""
    with skipped_if_missing():
        return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Skip a test that misses a part of this machine."""
    with skipped_if_missing():
        return (yield)


@pytest.fixture(autouse=True)
def one_torch_thread() -> Iterator[None]:
    """Restore the number of threads that a test has changed, for the tests after it."""
    yield
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)


@pytest.fixture(autouse=True)
def no_server_is_left() -> Iterator[None]:
    """A server of this process ends with its test: it would compute beside all that follow."""
    before = server_threads()
    yield
    assert server_threads() <= before


@pytest.fixture
def free_port() -> int:
    """A TCP port that nothing uses."""
    (port,) = free_ports(1)
    return port


@pytest.fixture
def redis(free_port: int) -> Iterator[RedisProcess]:
    """A Redis server of this test, empty."""
    with RedisProcess(free_port) as server:
        yield server


@pytest.fixture(scope="session")
def served() -> Iterator[ServerProcess]:
    """One server for all tests that leave it as it was; it ends idle, with status 0."""
    with serving() as server:
        yield server
        server.wait_until_idle()
        server.terminate()
        assert server.process.wait(PATIENCE_S) == 0


@pytest.fixture
async def start_server() -> AsyncIterator[StartServer]:
    """Start real servers with given settings; all end with the test."""
    async with contextlib.AsyncExitStack() as stack:

        async def start(throttle: dict[str, Any] | None = None, **settings: Any) -> RunningServer:
            server = running_throttled(Settings(port=0, **settings), throttle)
            return await stack.enter_async_context(server)

        yield start


@pytest.fixture
async def server(start_server: StartServer) -> RunningServer:
    """A server with the embedded voice on a free port of this machine."""
    return await start_server()


@pytest.fixture
async def start_synthesizer() -> AsyncIterator[StartSynthesizer]:
    """Start synthesizers over real espeak workers; all end with the test."""
    async with contextlib.AsyncExitStack() as stack:

        async def start(
            limits: Limits | None = None, throttle: dict[str, Any] | None = None, **options: Any
        ) -> Synthesizer:
            spec = throttled(WorkerSpec("espeak"), throttle) if throttle else WorkerSpec("espeak")
            options = {"make_aligners": lambda: Aligners({}), **options}
            synthesizer = Synthesizer({"espeak": Supervisor(spec)}, limits, **options)
            await synthesizer.start()
            stack.push_async_callback(synthesizer.close)
            return synthesizer

        yield start
