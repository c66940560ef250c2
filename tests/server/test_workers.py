from typing import Any

import pytest

from voiceagent_tts.config import Settings
from voiceagent_tts.server.state import worker_specs
from voiceagent_tts.word_times.processes import aligners_of


def test_every_model_has_workers_on_every_gpu() -> None:
    """Each model has a group of workers; the first has the model's name, others are numbered."""
    settings = Settings(
        engine="qwen3", models=("one", "two"), device=("cuda:0", "cuda:2"), workers=2
    )
    specs = worker_specs(settings)
    assert [(name, spec.options["device"]) for name, spec in specs.items()] == [
        ("one", "cuda:0"),
        ("one#2", "cuda:2"),
        ("one#3", "cuda:0"),
        ("one#4", "cuda:2"),
        ("two", "cuda:0"),
        ("two#2", "cuda:2"),
        ("two#3", "cuda:0"),
        ("two#4", "cuda:2"),
    ]
    assert {spec.group for spec in specs.values()} == {"one", "two"}


@pytest.mark.parametrize(
    ("device", "expected"), [((), [None]), (("cpu",), ["cpu"]), (("cuda:0", "cuda:1"), None)]
)
def test_kokoro_has_a_worker_on_every_device(
    device: tuple[str, ...], expected: list[str | None] | None
) -> None:
    """Its engine takes one device, and chooses without one."""
    specs = worker_specs(Settings(engine="kokoro", device=device)).values()
    found = [spec.options["device"] for spec in specs if "device" in spec.options]
    assert found == (expected or list(device))


@pytest.mark.parametrize(
    ("settings", "sharing"),
    [
        ({"models": ("one",)}, [1]),
        ({"models": ("one", "two", "three")}, [3, 3, 3]),
        ({"models": ("one",), "workers": 2}, [2, 2]),
        ({"models": ("one", "two"), "device": ("cuda:0", "cuda:1")}, [2, 2, 2, 2]),
        ({"models": ("one", "two"), "device": ("cuda:0", "cuda:1"), "workers": 2}, [4] * 8),
        ({"models": ("one",), "device": ("cuda:0", "cuda:0", "cuda:1")}, [2, 2, 1]),
    ],
)
def test_a_worker_knows_how_many_share_its_gpu(
    settings: dict[str, Any], sharing: list[int]
) -> None:
    """They start together, so that none can tell from the free memory what is left for it."""
    specs = worker_specs(Settings(engine="qwen3", **settings))
    assert [spec.options["sharing"] for spec in specs.values()] == sharing


@pytest.mark.parametrize(
    ("processors", "set_to", "processes"),
    [(1, None, 1), (2, None, 1), (16, None, 4), (64, None, 4), (2, 3, 3), (64, 1, 1)],
)
def test_a_large_machine_has_several_online_aligners(
    processors: int, set_to: int | None, processes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One process follows about a hundred contexts; a number that is set is obeyed."""
    monkeypatch.setattr("os.cpu_count", lambda: processors)
    aligners = aligners_of(Settings(aligner="online", aligners=set_to))
    assert len(aligners.supervisors) == processes
