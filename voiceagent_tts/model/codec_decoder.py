"""The codec's decoder as a stream: each frame of codes becomes 1,920 samples, once.

Any portions of a row's frames give the samples of one whole decode, so that the first portion may
be a single frame. Rows of a batch start, pause and start again without regard to each other. A call
has static shapes, writes its state in place and never waits for the device. Knows no files, no
requests and no clock.

Source: qwen-tts 0.1.1, `Qwen3TTSTokenizerV2Decoder`; sizes from the checkpoint.
"""

import math
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from voiceagent_tts.core import FRAME_SAMPLES
from voiceagent_tts.model.codec_layers import (
    DILATIONS,
    KERNEL,
    CausalConvolution,
    Codebooks,
    CodecTransformer,
    ConvNeXt,
    SnakeBeta,
    Upsampling,
    UpsamplingBlock,
    causal_convolution,
)
from voiceagent_tts.model.codec_state import CodecState, History, Past
from voiceagent_tts.model.config import CodecDecoderConfig
from voiceagent_tts.model.layers import Weights

_CODEBOOK_KERNEL = 3


class CodecDecoder(nn.Module):
    """Weights of the decoder, and what they do to a `CodecState`.

    Args:
        config: the checkpoint's.
    """

    def __init__(self, config: CodecDecoderConfig) -> None:
        super().__init__()
        self.config = config
        width, channels = config.latent_dim, config.decoder_dim
        self.codebooks = Codebooks(config)
        self.input = causal_convolution(config.codebook_dim, width, _CODEBOOK_KERNEL)
        self.transformer = CodecTransformer(config)
        self.upsampling = nn.ModuleList(
            [Upsampling(width, width, ratio, ratio) for ratio in config.upsampling_ratios]
        )
        self.mixing = nn.ModuleList([ConvNeXt(width) for _ in config.upsampling_ratios])
        self.head = causal_convolution(width, channels)
        self.blocks = nn.ModuleList(
            [UpsamplingBlock(channels >> n, rate) for n, rate in enumerate(config.upsample_rates)]
        )
        last_channels = channels >> len(config.upsample_rates)
        self.activation = SnakeBeta(last_channels)
        self.output = causal_convolution(last_channels, 1)
        for number, convolution in enumerate(self._convolutions()):
            convolution.number = number
        self.requires_grad_(False)

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.codebooks.table.device

    def new_state(self, rows: int, max_frames: int) -> CodecState:
        """State of rows that have decoded nothing.

        Args:
            rows: B.
            max_frames: the most frames that one call will decode.
        """
        config, like = self.config, self.codebooks.table
        ring = config.sliding_window - 1 + max_frames
        heads = (config.num_key_value_heads, config.head_dim)
        cache = (config.num_hidden_layers, rows, ring, *heads)
        layout, end = list[History](), 0
        for convolution in self._convolutions():
            layout.append(History(end, convolution.reach, convolution.inputs))
            end += convolution.reach * convolution.inputs
        return CodecState(
            positions=self.codebooks.first_rows.new_zeros(rows),
            keys=like.new_zeros(cache),
            values=like.new_zeros(cache),
            history=like.new_zeros(rows, end),
            layout=tuple(layout),
            window_frames=config.sliding_window,
        )

    def decode(self, codes: Tensor, state: CodecState, rows: Tensor | None = None) -> Tensor:
        """Turn the next frames into the samples that follow those already returned.

        Args:
            codes: [B, K, F] int64, codebook 0 first.
            state: left context of every row; updated in place.
            rows: [B] int64, rows of `state` that these frames are for, each once; the others keep
                their state. None: all.

        Returns:
            [B, F * 1920] float32 in [-1, 1], 24 kHz.

        Raises:
            ValueError: `codes` are not of as many rows, or there are more frames than `state`
                takes.
        """
        past = self._past(codes, state, rows)
        samples = self._synthesize(self._transform(codes, past), past)
        past.advance()
        return samples

    def prime(self, codes: Tensor, state: CodecState) -> None:
        """Decode frames whose sound nobody will hear: a cloned voice's reference.

        What is then decoded continues the reference, exactly; nothing has to be cut off. All
        frames pass the transformer, but only the last ones the convolutions that make samples,
        which are most of the work and remember no more.

        Args:
            codes: [B, K, F] int64 of any length.
            state: left context of every row; updated in place.

        Raises:
            ValueError: `codes` and `state` have different numbers of rows.
        """
        remaining = codes.shape[-1]
        for portion in codes.split(state.max_frames, dim=-1):
            past = self._past(portion, state, None)
            latents = self._transform(portion, past)
            kept = portion.shape[-1] - max(0, remaining - self.memory_frames)
            if kept > 0:
                self._synthesize(latents[:, -kept:], past)
            past.advance()
            remaining -= portion.shape[-1]

    @property
    def memory_frames(self) -> int:
        """How many frames before the current one the convolutions after the transformer hear."""
        reach, rate = 0.0, 1
        for ratio in self.config.upsampling_ratios:
            rate *= ratio
            reach += (KERNEL - 1) / rate
        reach += (KERNEL - 1) / rate
        for ratio in self.config.upsample_rates:
            reach += 1 / rate
            rate *= ratio
            reach += (KERNEL - 1) * sum(DILATIONS) / rate
        return math.ceil(reach + (KERNEL - 1) / rate)

    def _past(self, codes: Tensor, state: CodecState, rows: Tensor | None) -> Past:
        expected, frames = state.rows if rows is None else len(rows), codes.shape[-1]
        if len(codes) != expected:
            raise ValueError(f"codes of {len(codes)} rows for a state of {expected}")
        if frames > state.max_frames:
            raise ValueError(f"{frames} frames for a state that takes {state.max_frames} a call")
        return Past(state, frames, rows)

    def _transform(self, codes: Tensor, past: Past) -> Tensor:
        """[B, K, F] -> [B, F, latent]."""
        return self.transformer(self.input(self.codebooks(codes), past), past)

    def _synthesize(self, latents: Tensor, past: Past) -> Tensor:
        """[B, F, latent] -> [B, F * 1920]."""
        x = latents
        for upsampling, mixing in zip(self.upsampling, self.mixing, strict=True):
            x = mixing(upsampling(x, past), past)
        x = self.head(x, past)
        for block in self.blocks:
            x = block(x, past)
        x = self.output(self.activation(x), past)
        return x.view(-1, latents.shape[1] * FRAME_SAMPLES).float().clamp_(-1.0, 1.0)

    def _convolutions(self) -> Iterator[CausalConvolution]:
        return (module for module in self.modules() if isinstance(module, CausalConvolution))

    def weights(self) -> Weights:
        """All tensors under the checkpoint's names; the largest are read while memory is empty."""
        for number, block in enumerate(self.blocks, start=1):
            yield from block.weights(f"decoder.decoder.{number}")  # type: ignore[operator]
        yield from self.head.weights("decoder.decoder.0")
        after = len(self.blocks) + 1
        yield from self.activation.weights(f"decoder.decoder.{after}")
        yield from self.output.weights(f"decoder.decoder.{after + 1}")
        for number, pair in enumerate(zip(self.upsampling, self.mixing, strict=True)):
            for part, module in enumerate(pair):
                yield from module.weights(f"decoder.upsample.{number}.{part}")  # type: ignore[operator]
        yield from self.input.weights("decoder.pre_conv")
        yield from self.codebooks.weights("decoder.quantizer")
        yield from self.transformer.weights("decoder.pre_transformer")
