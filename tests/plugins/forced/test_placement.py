"""Where the forced aligner runs."""

import pytest
import torch

from voiceagent_tts.plugins.forced import placement
from voiceagent_tts.plugins.forced.placement import place_aligner

FREE = "which no engine uses"


@pytest.mark.parametrize(
    ("setting", "used", "free_gb", "device", "reason"),
    [
        (None, ["cpu"], [], "cpu", "on the CPU: there is no GPU"),
        (None, ["cpu"], [8], "cuda:0", f"on cuda:0, {FREE}"),
        (None, ["cuda:0"], [80], "cpu", "on the CPU: every GPU has an engine"),
        (None, ["cuda", "cuda"], [80, 80, 80], "cuda:2", f"on cuda:2, {FREE}"),
        (None, ["cuda:0"], [80, 80, 2], "cuda:1", f"on cuda:1, {FREE}"),
        (None, ["cuda:0"], [80, 2, 3], "cpu",
         "on the CPU: no GPU without an engine has 4.4 GB free, at most 3.0"),
        ("cpu", ["cuda:0"], [80, 80], "cpu", "on the CPU: set by aligner_device"),
        ("cuda:1", ["cuda:0"], [80, 80], "cuda:1", "on cuda:1: set by aligner_device"),
    ],
)  # fmt: skip
def test_it_is_never_placed_on_an_engines_gpu_unless_a_setting_says_so(
    setting: str | None,
    used: list[str | None],
    free_gb: list[float],
    device: str,
    reason: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two processes on one GPU would take turns."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: len(free_gb))
    monkeypatch.setattr(
        placement, "_read_free_bytes", lambda gpus: {gpu: int(free_gb[gpu] * 1e9) for gpu in gpus}
    )
    placed = place_aligner(setting, used)
    assert (placed.device, placed.reason) == (device, reason)
