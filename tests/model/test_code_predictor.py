"""The code predictor with cache and folded embeddings chooses the codes of a plain one."""

import pytest
import torch

from testbed.parity_reference import LoadTiny
from voiceagent_tts.model.attention import Keys
from voiceagent_tts.model.layers import rotation
from voiceagent_tts.model.network import Network

ROWS = 3


class _Forget:
    """A cache that stores nothing: each pass attends only to its own positions."""

    def extend(self, layer: int, keys: torch.Tensor, values: torch.Tensor) -> Keys:
        """Return the keys and values of this pass."""
        return Keys(keys, values, keys.shape[1])


def plainly(network: Network, hidden: torch.Tensor, first: torch.Tensor) -> torch.Tensor:
    """Predict each code by a pass over the whole frame so far, with every embedding projected."""
    predictor, codes = network.code_predictor, first[:, None]
    for book, head in enumerate(predictor.heads, start=1):
        embedded = [hidden, network.talker.embed_codec(first)]
        tables = zip(predictor.embeddings, codes[:, 1:].unbind(1), strict=False)
        embedded += [table[column] for table, column in tables]
        x = torch.stack(embedded, dim=1)
        if predictor.projection is not None:
            x = predictor.projection(x)
        rotated = rotation(torch.arange(book + 1)[None], network_frequencies(network), x.dtype)
        state = predictor.transformer(x, rotated, _Forget())[:, -1]
        codes = torch.cat((codes, head(state).argmax(-1, keepdim=True)), dim=1)
    return codes


def network_frequencies(network: Network) -> torch.Tensor:
    """Return the rotary frequencies of the code predictor."""
    config = network.code_predictor.config
    steps = torch.arange(0, config.head_dim, 2) / config.head_dim
    return config.rope_theta**-steps


@pytest.mark.parametrize("name", ["custom_voice-1b7", "base-0b6"])
@torch.inference_mode()
def test_the_cached_frame_is_the_plain_one(load_tiny: LoadTiny, name: str) -> None:
    """Cached keys and folded embeddings give the codes of sixteen passes without a cache."""
    network = load_tiny(name).network
    predictor = network.code_predictor
    cache = predictor.new_buffers(ROWS)
    books: list[int] = []

    def choose(logits: torch.Tensor, book: int) -> torch.Tensor:
        books.append(book)
        return logits.argmax(-1)

    for seed in range(5):
        generator = torch.Generator().manual_seed(seed)
        hidden = torch.randn(ROWS, network.config.talker_config.hidden_size, generator=generator)
        first = torch.randint(predictor.config.vocab_size, (ROWS,), generator=generator)
        made = predictor.complete_frame(hidden, first, cache, choose)
        assert torch.equal(made, plainly(network, hidden, first))
    assert books == list(range(1, network.codebooks)) * 5


@torch.inference_mode()
def test_a_frame_s_embedding_is_the_sum_of_its_codes(load_tiny: LoadTiny) -> None:
    """The talker embeds codebook 0; the code predictor's own tables embed the other codebooks."""
    network = load_tiny("custom_voice-1b7").network
    codes = torch.arange(2 * network.codebooks).view(2, -1)
    expected = network.talker.codec_embedding[codes[:, 0]]
    for book, table in enumerate(network.code_predictor.embeddings, start=1):
        expected = expected + table[codes[:, book]]
    torch.testing.assert_close(network.embed_frames(codes), expected)
