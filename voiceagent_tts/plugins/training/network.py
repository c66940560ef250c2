"""Talker and code predictor as plain differentiable modules with the checkpoint's names.

The networks of `model/` share weights between operations and write into caches, which gradients
cannot pass. Here every tensor of the checkpoint is one parameter, whole sequences run at once, and
each layer may recompute its activations in the backward pass. Norm and rotation are those of
`model/`. Knows no losses.

Source: Qwen3, as in qwen-tts 0.1.1.
"""

from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from voiceagent_tts.model.checkpoint import building, fill, open_weights
from voiceagent_tts.model.config import ModelConfig, TransformerConfig, read_model_config
from voiceagent_tts.model.layers import RMSNorm, Rotation, inverse_frequencies, rotation


class Attention(nn.Module):
    """Causal grouped-query attention with normalised heads."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.head_dim = config.head_dim
        inputs, heads = config.hidden_size, config.num_attention_heads * config.head_dim
        groups = config.num_key_value_heads * config.head_dim
        self.q_proj = nn.Linear(inputs, heads, bias=False)
        self.k_proj = nn.Linear(inputs, groups, bias=False)
        self.v_proj = nn.Linear(inputs, groups, bias=False)
        self.o_proj = nn.Linear(heads, inputs, bias=False)
        self.q_norm = RMSNorm(config.head_dim, config.rms_norm_eps)
        self.k_norm = RMSNorm(config.head_dim, config.rms_norm_eps)

    def forward(self, x: Tensor, rotated: Rotation) -> Tensor:
        """[B, T, hidden] -> [B, T, hidden]."""
        heads = (*x.shape[:2], -1, self.head_dim)
        queries = rotated.apply(self.q_norm(self.q_proj(x).view(heads)))
        keys = rotated.apply(self.k_norm(self.k_proj(x).view(heads)))
        values = self.v_proj(x).view(heads)
        is_grouped = queries.shape[2] != keys.shape[2]
        # Norms leave autocast's precision, which attention needs for a fast kernel.
        queries, keys, values = (
            each.to(values.dtype).transpose(1, 2) for each in (queries, keys, values)
        )
        attended = F.scaled_dot_product_attention(
            queries, keys, values, is_causal=True, enable_gqa=is_grouped
        )
        return self.o_proj(attended.transpose(1, 2).flatten(2))


class MLP(nn.Module):
    """Computes `down(silu(gate(x)) * up(x))`."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """[..., hidden] -> [..., hidden]."""
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    """Attention and MLP; each reads the normed residual stream and is added to it."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.self_attn = Attention(config)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.mlp = MLP(config)

    def forward(self, x: Tensor, rotated: Rotation) -> Tensor:
        """[B, T, hidden] -> [B, T, hidden]."""
        x = x + self.self_attn(self.input_layernorm(x), rotated)
        return x + self.mlp(self.post_attention_layernorm(x))


class Transformer(nn.Module):
    """Layers and a final norm.

    Attributes:
        recomputes: whether the backward pass recomputes the activations of each layer, which
            takes a third more time and a fraction of the memory.
    """

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Layer(config) for _ in range(config.num_hidden_layers)])
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.recomputes = False
        self._rotary = (config.head_dim, config.rope_theta)

    def run(self, x: Tensor) -> Tensor:
        """Run whole sequences from position 0: [B, T, hidden] -> [B, T, hidden], normalised."""
        frequencies = inverse_frequencies(*self._rotary).to(x.device)
        rotated = rotation(torch.arange(x.shape[1], device=x.device)[None], frequencies, x.dtype)
        for layer in self.layers:
            if self.recomputes and torch.is_grad_enabled():
                x = checkpoint(layer, x, rotated, use_reentrant=False)  # type: ignore[assignment]
            else:
                x = layer(x, rotated)
        return self.norm(x)


class TalkerModel(Transformer):
    """Embeddings and layers of the talker."""

    def __init__(self, config: ModelConfig) -> None:
        talker = config.talker_config
        super().__init__(talker)
        self.text_embedding = nn.Embedding(talker.text_vocab_size, talker.text_hidden_size)
        self.codec_embedding = nn.Embedding(talker.vocab_size, talker.hidden_size)


class PredictorModel(Transformer):
    """Embeddings and layers of the code predictor."""

    def __init__(self, config: ModelConfig) -> None:
        talker, predictor = config.talker_config, config.talker_config.code_predictor_config
        super().__init__(predictor)
        self.codec_embedding = nn.ModuleList(
            nn.Embedding(predictor.vocab_size, talker.hidden_size)
            for _ in range(predictor.num_code_groups - 1)
        )


class TextProjection(nn.Module):
    """Projects text embeddings to the width of the talker."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.linear_fc1 = nn.Linear(inputs, inputs)
        self.linear_fc2 = nn.Linear(inputs, outputs)

    def forward(self, x: Tensor) -> Tensor:
        """[..., text width] -> [..., hidden]."""
        return self.linear_fc2(F.silu(self.linear_fc1(x)))


class CodePredictor(nn.Module):
    """The code predictor: the other codes of a frame, all at once, given the true ones."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        talker, predictor = config.talker_config, config.talker_config.code_predictor_config
        self.model = PredictorModel(config)
        self.lm_head = nn.ModuleList(
            nn.Linear(predictor.hidden_size, predictor.vocab_size, bias=False)
            for _ in range(predictor.num_code_groups - 1)
        )
        if talker.hidden_size != predictor.hidden_size:
            self.small_to_mtp_projection: nn.Module = nn.Linear(
                talker.hidden_size, predictor.hidden_size
            )
        else:
            self.small_to_mtp_projection = nn.Identity()

    def embed(self, codes: Tensor, book: int) -> Tensor:
        """Embed codes of codebook `book`, 1 and up: [...] -> [..., talker hidden]."""
        return self.model.codec_embedding[book - 1](codes)

    def forward(self, hidden: Tensor, first: Tensor, codes: Tensor) -> Tensor:
        """Predict codebooks 1 and up of N frames.

        Args:
            hidden: [N, talker hidden], the talker's states.
            first: [N, talker hidden], the talker's embeddings of codebook 0.
            codes: [N, K] int64.

        Returns:
            [N, K - 1, V], logits of codebooks 1 to K - 1.
        """
        books = range(1, codes.shape[1] - 1)
        rest = [self.embed(codes[:, book], book) for book in books]
        inputs = self.small_to_mtp_projection(torch.stack((hidden, first, *rest), dim=1))
        states = self.model.run(inputs)
        heads = enumerate(self.lm_head, start=1)
        return torch.stack([head(states[:, place]) for place, head in heads], dim=1)


class Talker(nn.Module):
    """The talker, with its code predictor, as the checkpoint nests them."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        talker = config.talker_config
        self.model = TalkerModel(config)
        self.text_projection = TextProjection(talker.text_hidden_size, talker.hidden_size)
        self.codec_head = nn.Linear(talker.hidden_size, talker.vocab_size, bias=False)
        self.code_predictor = CodePredictor(config)


class TrainingNetwork(nn.Module):
    """Talker and code predictor of a checkpoint; `named_parameters` has the checkpoint's names.

    Args:
        config: configuration of the checkpoint.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.talker = Talker(config)
        self.requires_grad_(True)

    def recompute(self, is_on: bool) -> None:
        """Set whether layers recompute their activations in the backward pass."""
        self.talker.model.recomputes = is_on
        self.talker.code_predictor.model.recomputes = is_on


def load_network(folder: Path, dtype: torch.dtype, device: torch.device) -> TrainingNetwork:
    """Load a checkpoint's network for training.

    Args:
        folder: folder of the checkpoint.
        dtype: precision of the weights.
        device: device of the weights.

    Raises:
        CheckpointError: a file is missing, incomplete, or not supported by this network.
    """
    config = read_model_config(folder)
    with building(dtype, torch.device("meta")):  # no time for random weights
        network = TrainingNetwork(config)
    network.to_empty(device=device)
    fill(network.named_parameters(), open_weights(folder), folder)
    return network
