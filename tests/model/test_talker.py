"""The talker: steps give the states of the whole prompt, and rows are independent."""

import pytest
import torch

from voiceagent_tts.model.checkpoint import Checkpoint
from voiceagent_tts.model.kv_pool import PAGE_POSITIONS, KVPool, PagedKVCache, empty_pool

PAGES = 7
TABLE = torch.tensor([[5, 2], [3, 7], [1, 6]])
"""Pages of three rows, unordered."""


@pytest.fixture
def pool(base: Checkpoint) -> KVPool:
    """A KV pool full of numbers that attention must never read."""
    talker = base.network.talker
    made = empty_pool(talker.config, PAGES, talker.codec_embedding)
    made.keys.fill_(1e4)
    made.values.fill_(1e4)
    return made


def embeddings(base: Checkpoint, rows: int, steps: int) -> torch.Tensor:
    """[rows, steps, hidden], all different."""
    ids = torch.arange(rows * steps).view(rows, steps) % 300
    return base.network.talker.embed_text(ids)


def run(
    base: Checkpoint, x: torch.Tensor, starts: list[int], table: torch.Tensor, pool: KVPool
) -> torch.Tensor:
    """Run new positions of rows, each from its start; attention may look back over all pages."""
    positions = torch.tensor(starts)[:, None] + torch.arange(x.shape[1])
    memory = PagedKVCache(pool, table, positions, table.shape[1] * PAGE_POSITIONS)
    return base.network.talker.run(x, positions, memory)


@torch.inference_mode()
@pytest.mark.parametrize("begin", [0, PAGE_POSITIONS - 6], ids=["start", "end of a page"])
def test_any_parts_are_the_whole(base: Checkpoint, pool: KVPool, begin: int) -> None:
    """Positions in one pass, in two or one by one give equal states, also across pages."""
    x, table = embeddings(base, 1, begin + 12), TABLE[1:2]
    whole = run(base, x, [0], table, pool)[:, begin:]
    parts = [run(base, x[:, : begin + 7], [0], table, pool)[:, begin:]]
    parts += [
        run(base, x[:, at : at + 1], [at], table, pool) for at in range(begin + 7, begin + 10)
    ]
    parts.append(run(base, x[:, begin + 10 :], [begin + 10], table, pool))
    torch.testing.assert_close(torch.cat(parts, 1), whole, rtol=1e-5, atol=1e-5)


@torch.inference_mode()
def test_rows_of_different_lengths_run_together(base: Checkpoint, pool: KVPool) -> None:
    """Padding after a prompt changes neither its states nor the steps after it."""
    x, lengths = embeddings(base, 3, 9), [9, 4, 1]
    together = run(base, x, [0, 0, 0], TABLE, pool)
    next_x = embeddings(base, 3, 1)
    stepped = run(base, next_x, lengths, TABLE, pool)
    for row, length in enumerate(lengths):
        table = TABLE[row : row + 1]
        alone = run(base, x[row : row + 1, :length], [0], table, pool)
        torch.testing.assert_close(together[row, :length], alone[0], rtol=1e-5, atol=1e-5)
        after = run(base, next_x[row : row + 1], [length], table, pool)
        torch.testing.assert_close(stepped[row], after[0], rtol=1e-5, atol=1e-5)


@torch.inference_mode()
def test_a_pass_writes_only_its_positions(base: Checkpoint, pool: KVPool) -> None:
    """A pass writes each row's own positions of the cache and nothing else."""
    before = pool.keys.clone()
    starts = [3, 0, PAGE_POSITIONS + 17]
    run(base, embeddings(base, 3, 2), starts, TABLE, pool)
    changed = (pool.keys != before).flatten(3).any(-1)
    expected = torch.zeros(PAGES + 1, PAGE_POSITIONS, dtype=torch.bool)
    for row, start in enumerate(starts):
        page, place = TABLE[row, start // PAGE_POSITIONS], start % PAGE_POSITIONS
        expected[page, place : place + 2] = True
    assert torch.equal(changed, expected.expand_as(changed))


def test_only_codes_and_the_end_may_be_chosen(base: Checkpoint) -> None:
    """Of the ids after the codes, all but the end id are control ids."""
    talker, config = base.network.talker, base.config.talker_config
    codes = config.code_predictor_config.vocab_size
    assert config.vocab_size - codes == 1024
    assert not talker.is_control[:codes].any()
    assert talker.is_end.nonzero().tolist() == [[config.codec_eos_token_id]]
    allowed = (~talker.is_control[codes:]).nonzero().flatten() + codes
    assert allowed.tolist() == [config.codec_eos_token_id]
