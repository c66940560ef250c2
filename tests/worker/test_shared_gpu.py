"""Loading an engine and the aligner into one process."""

import logging
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from testbed.engine_driving import CUSTOM_VOICE
from testbed.gpu import ON_GPU
from testbed.papers import table_rows
from testbed.parity_reference import REFERENCE
from testbed.tiny_aligner import write_tiny_aligner
from voiceagent_tts.aligner.placement import Card, Placement
from voiceagent_tts.core import AudioChunk
from voiceagent_tts.engine.options import Qwen3Options
from voiceagent_tts.seam.aligner_messages import Aligned, Expect, Finish, Follow
from voiceagent_tts.seam.commands import Credit, SpeechOptions, Submit
from voiceagent_tts.seam.events import AudioStep, ContextAudio, Done, SegmentEnd
from voiceagent_tts.text.words import split_words
from voiceagent_tts.worker import shared_gpu
from voiceagent_tts.worker.shared_gpu import load_with_aligner, place

ENGINE = Qwen3Options(str(REFERENCE / CUSTOM_VOICE), "cpu", rows=2, threads=1)
ALIGNER = {"model": "nowhere", "device": None, "engine_devices": ["cpu"], "threads": 1}
TEXT = "Hello there."


@pytest.fixture
def is_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    """The place of the aligner is the engine's process, although its device is the CPU."""
    placement = Placement("cpu", True, "on the engine's device")
    monkeypatch.setattr(shared_gpu, "place", lambda engine, aligner: placement)
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 0)


@pytest.mark.usefixtures("is_shared")
def test_speech_is_aligned_in_the_process_that_makes_it(tmp_path: Path) -> None:
    """A real engine speaks, and a real aligner beside it finds every word of its audio, once."""
    check_chain(ENGINE, {}, tmp_path)


@pytest.mark.parametrize("device", [pytest.param("cuda:0", marks=ON_GPU)])
def test_speech_is_aligned_on_the_gpu_that_makes_it(device: str, tmp_path: Path) -> None:
    """Both share a GPU, within the memory that the engine was given."""
    free, _ = torch.cuda.mem_get_info()
    engine = replace(ENGINE, device=device, gpu_memory_gb=4.0)
    check_chain(engine, {"device": device}, tmp_path)
    assert free - torch.cuda.mem_get_info()[0] < 4.0e9 * 1.05


def check_chain(engine: Qwen3Options, aligner: dict[str, Any], tmp_path: Path) -> None:
    """Assert that what the engine says is aligned word by word."""
    model = str(write_tiny_aligner(tmp_path / "tiny"))
    commands, events = list[Any](), list[Any]()

    def take() -> list[Any]:
        taken = commands[:]
        commands.clear()
        return taken

    both = load_with_aligner(engine, {**ALIGNER, **aligner, "model": model}, take, events.append)
    assert both.capabilities.aligner is not None
    commands += [
        Submit(1, TEXT, 0, False, "vivian", "en", "segment", SpeechOptions(seed=1)),
        Credit(1, 0.0, 10**12),
        Follow(2, "en", "v"),
        Expect(2, tuple(split_words(TEXT))),
    ]
    step_until(both.step, lambda: any(isinstance(event, Done) for event in events))
    rows = [row for event in events if isinstance(event, AudioStep) for row in event.rows]
    commands += [AudioStep((ContextAudio(2, row.chunk),)) for row in rows]
    (end,) = [event for event in events if isinstance(event, SegmentEnd)]
    commands += [SegmentEnd(2, end.char_end, end.end_sample), Finish(2)]
    step_until(both.step, lambda: sum(isinstance(event, Done) for event in events) == 2)
    words = [word for event in events if isinstance(event, Aligned) for word in event.words]
    assert [word.word for word in words] == split_words(TEXT)
    assert events[-1] == Done(2, last_chunk(rows).end_sample)
    documented = {name for name, *_ in table_rows("docs/monitoring.md", "metric of the aligner")}
    shown = {name for name in both.metrics if name.startswith("aligner_")}
    assert documented == {f"tts_worker_{name}" for name in shown}
    both.close()


def last_chunk(rows: list[ContextAudio]) -> AudioChunk:
    """The last audio of a context."""
    return rows[-1].chunk


def step_until(step: Callable[[], float | None], is_done: Callable[[], bool]) -> None:
    """Step as a worker does until something has happened."""
    pause = threading.Event()
    for _ in range(20_000):
        if is_done():
            return
        pause.wait(min(step() or 0.0, 0.01))
    raise AssertionError("it never happens")


@pytest.mark.usefixtures("is_shared")
def test_an_engine_starts_without_an_aligner_that_cannot(caplog: pytest.LogCaptureFixture) -> None:
    """The log has the reason, and the capabilities no aligner, so that the server starts one."""
    engine = load_with_aligner(ENGINE, ALIGNER, list, lambda event: None)
    assert engine.capabilities.aligner is None
    (record,) = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert record.getMessage().startswith("the engine continues without the forced aligner: ")
    assert "nowhere" in record.getMessage()


@pytest.mark.parametrize(
    ("device", "aligner_device", "free_gb", "expected"),
    [
        (None, None, 80, "cuda:0 shared"),
        ("cuda", None, 80, "cuda:0 shared"),
        ("cuda:0", None, 5, "cpu"),
        ("cpu", None, 80, "cuda:0"),
        ("cuda", "cuda:0", 1, "cuda:0 shared"),
        ("cuda", "cpu", 80, "cpu"),
    ],
)
def test_the_place_follows_from_the_gpus(
    monkeypatch: pytest.MonkeyPatch,
    device: str | None,
    aligner_device: str | None,
    free_gb: int,
    expected: str,
) -> None:
    """The devices of the settings and the memory of a described GPU decide."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(shared_gpu, "read_cards", lambda: [Card(0, free_gb * 10**9)])
    engine = Qwen3Options(ENGINE.model, device)
    placement = place(engine, {**ALIGNER, "device": aligner_device, "engine_devices": [device]})
    assert placement.device + " shared" * placement.is_shared == expected


def test_a_machine_without_a_gpu_aligns_on_the_cpu() -> None:
    """No GPU: the aligner has a process of its own, whatever the engine does."""
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    placement = place(ENGINE, ALIGNER)
    assert (placement.device, placement.is_shared) == ("cpu", False)
    assert placement.reason == "on the CPU: there is no GPU"
