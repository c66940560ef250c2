"""Reading the GPUs of this machine."""

import pytest
import torch

from voiceagent_tts.aligner import cards
from voiceagent_tts.aligner.placement import Card


def test_a_machine_without_gpus_has_no_cards(monkeypatch: pytest.MonkeyPatch) -> None:
    """No process is started to find nothing."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    monkeypatch.setattr(cards, "ProcessPoolExecutor", None)
    assert cards.read_cards() == []
    placement = cards.place_in_own_process(None, ["cuda"])
    assert placement.reason == "on the CPU: there is no GPU"


def test_gpus_that_cannot_be_read_have_no_free_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process reads them; one that PyTorch cannot use there is not chosen."""
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert cards.read_cards() == [Card(0, 0), Card(1, 0)]
    assert cards.place_in_own_process("cuda", []).device == "cuda:0"
