"""Where the forced aligner runs, on described GPUs."""

import pytest

from voiceagent_tts.aligner.placement import (
    Card,
    engine_bytes,
    numbered,
    place_alone,
    place_as_set,
    place_beside,
)

GB = 1_000_000_000
SMALL_MODEL = engine_bytes(int(2.5 * GB))
"""The 0.6B model, with its codec."""


@pytest.mark.parametrize(
    ("free_gb", "used", "limit_gb", "expected"),
    [
        ([80], ["cuda:0"], None, "cuda:0 shared"),
        ([12], ["cuda:0"], None, "cuda:0 shared"),
        ([10], ["cuda:0"], None, "cpu"),  # 9.0 of 9.5 GB
        ([80], ["cuda:0"], 9.0, "cpu"),
        ([80], ["cuda:0"], 10.0, "cuda:0 shared"),
        ([80, 80], ["cuda:0"], None, "cuda:1"),
        ([80, 4], ["cuda:0"], None, "cuda:0 shared"),  # the other GPU is full
        ([80, 80], ["cuda:0", "cuda:1"], None, "cuda:0 shared"),
        ([12, 80], ["cuda:0", "cuda:0"], None, "cuda:1"),
        ([16], ["cuda:0", "cuda:0"], None, "cpu"),  # one GPU for two engines and the aligner
        ([24], ["cuda:0", "cuda:0"], None, "cuda:0 shared"),
        ([], ["cpu"], None, "cpu"),
    ],
)
def test_an_engines_process_takes_the_aligner_if_both_fit(
    free_gb: list[float], used: list[str], limit_gb: float | None, expected: str
) -> None:
    """A GPU without an engine comes first, then the engine's own with memory for both."""
    cards = [Card(number, int(gb * GB)) for number, gb in enumerate(free_gb)]
    limit_bytes = None if limit_gb is None else int(limit_gb * GB)
    placement = place_beside(used[0], SMALL_MODEL, limit_bytes, used, cards)
    assert placement.device + " shared" * placement.is_shared == expected
    name = "the CPU" if placement.device == "cpu" else placement.device
    assert placement.reason.startswith(f"on {name}")


def test_the_reason_has_the_numbers() -> None:
    """The sentence says what both need, and what they may use."""
    reasons = [
        place_beside("cuda:0", SMALL_MODEL, None, ["cuda:0"], [Card(0, gb * GB)]).reason
        for gb in (8, 24)
    ]
    assert reasons == [
        "on the CPU: on cuda:0, engine and aligner need 9.5 GB and may use 7.2",
        "on cuda:0, in the engine's process: engine and aligner need 9.5 GB and may use 21.6",
    ]


@pytest.mark.parametrize(
    ("used", "free_gb", "device", "reason"),
    [
        (["cpu"], [], "cpu", "on the CPU: there is no GPU"),
        (["cpu"], [8], "cuda:0", "on cuda:0, which no engine uses"),
        (["cuda:0"], [80], "cpu", "on the CPU: every GPU has an engine, without memory for it"),
        (["cuda:0"], [80, 80, 80], "cuda:2", "on cuda:2, which no engine uses"),
        (["cuda:1"], [80, 80], "cuda:0", "on cuda:0, which no engine uses"),
        (["cuda:0"], [80, 80, 2], "cuda:1", "on cuda:1, which no engine uses"),
        (
            ["cuda:0"],
            [80, 2, 3],
            "cpu",
            "on the CPU: no GPU without an engine has 4.4 GB free, at most 3.0",
        ),
    ],
)
def test_a_process_of_its_own_is_never_on_an_engines_gpu(
    used: list[str], free_gb: list[float], device: str, reason: str
) -> None:
    """Two processes on one GPU would take turns."""
    cards = [Card(number, int(gb * GB)) for number, gb in enumerate(free_gb)]
    placement = place_alone(used, cards)
    assert (placement.device, placement.reason) == (device, reason)
    assert not placement.is_shared


@pytest.mark.parametrize(
    ("device", "engine", "is_shared", "reason"),
    [
        ("cpu", "cpu", False, "on the CPU: aligner_device says so"),
        ("cpu", "cuda:0", False, "on the CPU: aligner_device says so"),
        ("cuda:0", "cuda:0", True, "on cuda:0, in the engine's process: aligner_device says so"),
        ("cuda:1", "cuda:0", False, "on cuda:1: aligner_device says so"),
        ("cuda:0", None, False, "on cuda:0: aligner_device says so"),
    ],
)
def test_a_setting_decides(device: str, engine: str | None, is_shared: bool, reason: str) -> None:
    """On the GPU that the settings name, it shares the process of the engine there."""
    placement = place_as_set(device, engine)
    assert (placement.device, placement.is_shared) == (device, is_shared)
    assert placement.reason == reason


@pytest.mark.parametrize(
    ("device", "gpus", "expected"),
    [(None, 0, "cpu"), (None, 1, "cuda:0"), ("cuda", 2, "cuda:0"), ("cuda:1", 2, "cuda:1"),
     ("cpu", 2, "cpu")],
)  # fmt: skip
def test_devices_have_numbers(device: str | None, gpus: int, expected: str) -> None:
    """`cuda` means the first GPU, and so does no device where there is a GPU."""
    assert numbered(device, gpus) == expected
