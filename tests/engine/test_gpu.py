"""On an NVIDIA GPU: captured passes equal plain ones, and in float32 they equal the CPU's."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path

import pytest
import torch

from testbed.engine_driving import CUSTOM_VOICE, Driver, pcm_of
from testbed.gpu import ON_GPU
from testbed.linked_models import link_with_short_runs
from testbed.official_cases import read_cases
from testbed.parity_reference import REFERENCE
from testbed.replay import choices_along
from testbed.runner_driving import Listener, RowOutput, difference
from voiceagent_tts.engine.load import load_engine
from voiceagent_tts.engine.options import Qwen3Options
from voiceagent_tts.engine.runner import Runner
from voiceagent_tts.engine.sizes import graph_sizes
from voiceagent_tts.model.checkpoint import Checkpoint, load_checkpoint
from voiceagent_tts.model.codec import Codec, load_codec
from voiceagent_tts.model.layers import Kernels
from voiceagent_tts.seam.events import Done

pytestmark = ON_GPU

ROWS, CAPACITY = 4, 1024


@contextmanager
def exact_float32() -> Iterator[None]:
    """Forbid TF32, which an engine that a test loads may allow: float32 products are exact."""
    backends = (torch.backends.cuda.matmul, torch.backends.cudnn.conv)  # type: ignore[attr-defined]
    before = [backend.fp32_precision for backend in backends]
    for backend in backends:
        backend.fp32_precision = "ieee"
    yield
    for backend, precision in zip(backends, before, strict=True):
        backend.fp32_precision = precision


@pytest.fixture(autouse=True)
def without_tf32() -> Iterator[None]:
    with exact_float32():
        yield


def load(dtype: torch.dtype, kernels: Kernels) -> tuple[Checkpoint, Codec]:
    folder = REFERENCE / CUSTOM_VOICE
    checkpoint = load_checkpoint(folder, dtype, "cuda", kernels=kernels)
    return checkpoint, load_codec(folder, device="cuda")


@pytest.fixture(
    scope="module",
    params=product((torch.float32, torch.bfloat16), ("plain", "fused")),
    ids=lambda part: f"{str(part[0]).removeprefix('torch.')}-{part[1]}",
)
def parts(request: pytest.FixtureRequest) -> tuple[Checkpoint, Codec]:
    """A checkpoint and its codec in each precision, with each kind of kernels."""
    return load(*request.param)


def make_runner(parts: tuple[Checkpoint, Codec], *, has_graphs: bool) -> Runner:
    has_windows = parts[0].network.kernels == "plain"
    sizes = graph_sizes(ROWS, CAPACITY, has_windows=has_windows)
    runner = Runner(*parts, ROWS, CAPACITY, sizes=sizes, has_graphs=has_graphs)
    if has_graphs:
        runner.capture(lambda done, total: None)
    return runner


@pytest.fixture(scope="module")
def graphed(parts: tuple[Checkpoint, Codec]) -> Runner:
    """A runner whose passes are all captured, once; each test frees its rows.

    It is made before a test's own fixtures, and its graphs keep the precision of their capture.
    """
    with exact_float32():
        return make_runner(parts, has_graphs=True)


def speak(runner: Runner) -> dict[int, RowOutput]:
    """Speak in rows that join, pause, are cancelled and end, with windows of all sizes."""
    listener, finished = Listener(runner), dict[int, RowOutput]()
    for step in range(80):
        if step in (0, 1, 7):
            listener.start(step % 4, "Some words of a text. " * (1 + step), step, 30)
        if step == 5:
            listener.start(2, "This is never heard.", 9, 30)
        if step == 9:
            listener.cancel(2)
        decode = dict.fromkeys(listener.rows, 1 + step % 5) if step % 3 else {}
        speaking = [row for row in listener.rows if (step + row) % 4]
        listener.step(decode, speaking)
    for row in list(listener.rows):
        finished[row] = listener.finish(row)
    return finished


def test_graphed_is_plain(parts: tuple[Checkpoint, Codec], graphed: Runner) -> None:
    """Replays give the codes of plain calls at equal sizes, and equal sound except for rounding."""
    plain = speak(make_runner(parts, has_graphs=False))
    captured = speak(graphed)
    assert captured.keys() == plain.keys() == {0, 1, 3}
    for row, spoken in plain.items():
        assert captured[row].codes == spoken.codes
        assert difference(captured[row], spoken) <= 8


def test_fused_is_plain() -> None:
    """In float32, captured fused kernels give the codes of plain ones, for rows of any length."""
    plain, fused = (
        speak(make_runner(load(torch.float32, kernels), has_graphs=True))
        for kernels in ("plain", "fused")
    )
    assert fused.keys() == plain.keys()
    for row, spoken in plain.items():
        assert fused[row].codes == spoken.codes
        assert difference(fused[row], spoken) <= 8


def test_everything_is_captured_and_nothing_is_taken_later(graphed: Runner) -> None:
    streams = {id(stream): stream for stream in (graphed._stream, graphed._codec._stream)}
    captured = sum(stream.graphs for stream in streams.values())
    assert captured == graphed.graph_count
    speak(graphed)
    gc.collect()  # left over from earlier tests
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    speak(graphed)
    torch.cuda.synchronize()
    assert torch.cuda.memory_allocated() == before
    assert sum(stream.graphs for stream in streams.values()) == captured


def test_float32_chooses_what_the_cpu_chooses() -> None:
    same = total = 0
    for name in (CUSTOM_VOICE, "base-0b6"):
        here, there = (
            load_checkpoint(REFERENCE / name, device=device) for device in ("cpu", "cuda")
        )
        for case in (case for case in read_cases(REFERENCE) if case.checkpoint == name):
            prompt, codes = case.prompt(here), case.codes
            on_cpu = choices_along(here.network, prompt, codes, 1.05)
            on_gpu = choices_along(there.network, prompt, codes, 1.05)
            differs = on_cpu.codes != on_gpu.codes
            assert (on_cpu.margins[differs] < 1e-3).all()
            same += int((~differs).sum())
            total += differs.numel()
    assert same / total >= 0.999


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_an_engine_speaks_within_its_memory(precision: str, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    link_with_short_runs(REFERENCE / CUSTOM_VOICE, folder, frames=12)
    limit_gb = 3.0 + torch.cuda.memory_allocated() / 1e9  # what earlier tests hold counts, too
    options = Qwen3Options(str(folder), "cuda", precision, rows=2, gpu_memory_gb=limit_gb)  # type: ignore[arg-type]
    free, _ = torch.cuda.mem_get_info()
    driver = Driver(rows=2)
    engine = load_engine(options, driver._take, driver.events.append)
    driver.engine = engine
    events = driver.run(*driver.open(1, "Hello there."), steps=100_000)
    assert pcm_of(events, 1)
    assert isinstance(events[-1], Done)
    assert free - torch.cuda.mem_get_info()[0] < 3.0e9 * 1.05
