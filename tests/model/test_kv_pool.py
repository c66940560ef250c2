"""The paged KV cache: a prefix copied from one row's pages to another's is unchanged."""

import pytest
import torch

from voiceagent_tts.engine.prefixes import read_prefix, write_prefix
from voiceagent_tts.model.checkpoint import Checkpoint
from voiceagent_tts.model.kv_pool import PAGE_POSITIONS, KVPool, empty_pool, pages_for


@pytest.fixture
def pool(base: Checkpoint) -> KVPool:
    """A pool of six pages filled with noise."""
    talker = base.network.talker
    made = empty_pool(talker.config, 6, talker.codec_embedding)
    made.keys.normal_()
    made.values.normal_()
    return made


@pytest.mark.parametrize(("positions", "pages"), [(0, 0), (1, 1), (256, 1), (257, 2), (4096, 16)])
def test_pages_hold_positions(positions: int, pages: int) -> None:
    """A page counts as used as soon as it contains one position."""
    assert pages_for(positions) == pages


@pytest.mark.parametrize("positions", [1, PAGE_POSITIONS, PAGE_POSITIONS + 5])
def test_a_beginning_goes_to_other_pages(pool: KVPool, positions: int) -> None:
    """A row's first keys and values are copied to another row; nothing else changes."""
    prefix = read_prefix(pool, [4, 1], positions)
    expected = KVPool(pool.keys.clone(), pool.values.clone())
    flat = PAGE_POSITIONS
    for held in (expected.keys, expected.values):
        first = min(positions, flat)
        held[:, 2, :first] = held[:, 4, :first]
        held[:, 6, : positions - first] = held[:, 1, : positions - first]
    pool.keys[:, [4, 1]] = 0  # the copy is independent of its source
    pool.values[:, [4, 1]] = 0
    expected.keys[:, [4, 1]] = 0
    expected.values[:, [4, 1]] = 0
    write_prefix(pool, [2, 6], prefix)
    assert torch.equal(pool.keys, expected.keys)
    assert torch.equal(pool.values, expected.values)
    assert prefix.bytes == 2 * prefix.keys.numel() * 4


def test_an_empty_pool_is_finite(base: Checkpoint) -> None:
    """A new pool holds zeros: masked values must be finite, because 0 * inf is NaN."""
    talker = base.network.talker
    for dtype in (torch.float32, torch.bfloat16):
        made = empty_pool(talker.config, 2, talker.codec_embedding.to(dtype))
        assert made.keys.dtype == made.values.dtype == dtype
        assert made.pages == 2
        assert not made.keys.any()
        assert not made.values.any()
