"""The talker: a step gives what the whole prompt would, and rows are their own."""

import pytest
import torch

from voiceagent_tts.model.checkpoint import Checkpoint
from voiceagent_tts.model.talker import KVCache, empty_cache

ROWS, CAPACITY = 3, 40


@pytest.fixture
def cache(base: Checkpoint) -> KVCache:
    """Memory of three rows, full of numbers that must never be looked at."""
    talker = base.network.talker
    made = empty_cache(talker.config, ROWS, CAPACITY, talker.codec_embedding)
    made.keys.fill_(1e4)
    made.values.fill_(1e4)
    return made


def embeddings(base: Checkpoint, rows: int, steps: int) -> torch.Tensor:
    """[rows, steps, hidden], all different."""
    ids = torch.arange(rows * steps).view(rows, steps) % 300
    return base.network.talker.embed_text(ids)


@torch.inference_mode()
def test_steps_are_the_prompt_s_positions(base: Checkpoint, cache: KVCache) -> None:
    """Prefill and steps together give what one prefill over all positions gives."""
    talker = base.network.talker
    x = embeddings(base, 1, 12)
    row, length = torch.tensor([1]), torch.tensor([12])
    whole = talker.prefill(x, length, row, cache)
    talker.prefill(x[:, :7], length - 5, row, cache)
    positions = torch.zeros(ROWS, dtype=torch.int64)
    for position in range(7, 12):
        positions[1] = position
        step = talker.step(x[:, position].expand(ROWS, -1), positions, cache, position + 1)
    torch.testing.assert_close(step[1:2], whole, rtol=1e-5, atol=1e-5)


@torch.inference_mode()
def test_prompts_of_different_lengths_prefill_together(base: Checkpoint, cache: KVCache) -> None:
    """What stands after a prompt's length changes neither its state nor the steps after it."""
    talker = base.network.talker
    x = embeddings(base, 2, 9)
    lengths = torch.tensor([9, 4])
    together = talker.prefill(x, lengths, torch.tensor([2, 0]), cache)
    next_x = embeddings(base, ROWS, 1)[:, 0]
    stepped = talker.step(next_x, torch.tensor([4, 0, 9]), cache, CAPACITY)
    for number, row in enumerate((2, 0)):
        length = int(lengths[number])
        alone = empty_cache(talker.config, ROWS, CAPACITY, talker.codec_embedding)
        only = lengths[number : number + 1]
        hidden = talker.prefill(x[number : number + 1, :length], only, torch.tensor([row]), alone)
        torch.testing.assert_close(together[number : number + 1], hidden, rtol=1e-5, atol=1e-5)
        after = talker.step(next_x, torch.tensor([4, 0, 9]), alone, length + 1)
        torch.testing.assert_close(stepped[row], after[row], rtol=1e-5, atol=1e-5)


@torch.inference_mode()
def test_a_step_writes_only_its_positions(base: Checkpoint, cache: KVCache) -> None:
    """In memory a step changes each row's own position and nothing else."""
    talker = base.network.talker
    before = cache.keys.clone()
    positions = torch.tensor([3, 0, 17])
    talker.step(embeddings(base, ROWS, 1)[:, 0], positions, cache, CAPACITY)
    changed = (cache.keys != before).flatten(3).any(-1)
    expected = torch.zeros(ROWS, CAPACITY, dtype=torch.bool)
    expected[torch.arange(ROWS), positions] = True
    assert torch.equal(changed, expected.expand_as(changed))


def test_only_codes_and_the_end_may_be_chosen(base: Checkpoint) -> None:
    """Of the ids after the codes, all but the one that ends a row are control ids."""
    talker, config = base.network.talker, base.config.talker_config
    codes = config.code_predictor_config.vocab_size
    assert config.vocab_size - codes == 1024
    assert not talker.is_control[:codes].any()
    assert talker.is_end.nonzero().tolist() == [[config.codec_eos_token_id]]
    allowed = (~talker.is_control[codes:]).nonzero().flatten() + codes
    assert allowed.tolist() == [config.codec_eos_token_id]
