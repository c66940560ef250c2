"""The plan of memory for cards that are not here."""

from dataclasses import replace

import pytest
import torch

from benchmarks.engine import card_sizes
from benchmarks.engine.card_sizes import CountedMemory, Fit, fits, small_model
from testbed.engine_driving import CUSTOM_VOICE, load
from voiceagent_tts.engine.kv_cache import MemoryNeeds
from voiceagent_tts.model.config import ModelConfig

GB = 10**9


def shallow() -> ModelConfig:
    """The published sizes of 0.6B with few layers, which is planned soon."""
    model = small_model()
    talker = model.talker_config
    predictor = replace(talker.code_predictor_config, num_hidden_layers=1)
    talker = replace(talker, num_hidden_layers=1, code_predictor_config=predictor)
    return replace(model, talker_config=talker)


@pytest.mark.parametrize(
    ("dtype", "rows"),
    [(torch.bfloat16, [64, 64]), pytest.param(torch.float32, [8, 64], marks=pytest.mark.thorough)],
)
def test_a_larger_card_fits_more(
    dtype: torch.dtype, rows: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows and minutes grow with the card, and are fewer in twice the bytes."""
    monkeypatch.setattr(card_sizes, "CARDS_GB", (5, 24))
    found = list(fits(shallow(), dtype))
    assert [one.rows for one in found] == rows, found
    assert found[0].minutes < found[1].minutes == pytest.approx(64 * 16 * 256 / 750)


def test_a_card_that_is_too_small_fits_nothing() -> None:
    """Weights and one row of the full capacity must fit."""
    needs = MemoryNeeds(GB, 0, 0, 0, page=GB, row_pages=4)
    assert card_sizes._fit(4 * GB, lambda rows: needs) == Fit(0, 0.0)
    assert card_sizes._fit(6 * GB, lambda rows: needs).rows == 1


def test_counted_memory_is_that_of_tensors() -> None:
    """Views count once, what is released no more, and a peak is above what was there before."""
    meta = torch.device("meta")
    with CountedMemory() as memory:
        held = torch.empty(1000, device=meta)
        view = held[:500].view(5, 100)
        assert memory.allocated() == 4000
        assert memory.peak(lambda: None) == 0

        def run() -> None:
            first = view + 1
            del first
            torch.empty(3000, device=meta)

        assert memory.peak(run) == 12_000
        assert memory.allocated() == 4000


def test_counted_weights_are_those_that_are_loaded() -> None:
    """A model without memory has as many bytes as one that was read from its files."""
    checkpoint, _ = load(CUSTOM_VOICE, is_packed=False)
    network = checkpoint.network
    with CountedMemory() as memory:
        unfilled, _ = card_sizes._unfilled(checkpoint.config, torch.float32)
        parts = (unfilled.network.talker, unfilled.network.code_predictor)
        counted = sum(one.nbytes for part in parts for one in part.parameters())
        assert counted <= memory.allocated()
    parts = (network.talker, network.code_predictor)
    assert counted == sum(one.nbytes for part in parts for one in part.parameters())
