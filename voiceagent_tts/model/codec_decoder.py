"""Streaming decoder of the codec: each frame of codes becomes 1,920 samples.

Portions of any size give the samples of one offline decode, so the first portion may be a single
frame. Rows of a batch start, pause and restart independently. A call has static shapes, writes its
state in place and never waits for the device.

Source: qwen-tts 0.1.1, `Qwen3TTSTokenizerV2Decoder`; sizes from the checkpoint.
"""

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from voiceagent_tts.core import FRAME_SAMPLES
from voiceagent_tts.model.codec_layers import (
    DILATIONS,
    KERNEL,
    CausalConvolution,
    Codebooks,
    ConvNeXt,
    SnakeBeta,
    Upsampling,
    UpsamplingBlock,
    causal_convolution,
)
from voiceagent_tts.model.codec_state import CodecState, DecodeCall, History
from voiceagent_tts.model.codec_transformer import CodecTransformer
from voiceagent_tts.model.config import CodecDecoderConfig
from voiceagent_tts.model.layers import Weights

_CODEBOOK_KERNEL = 3


class CodecDecoder(nn.Module):
    """Decodes codes to samples; all state is in a `CodecState`."""

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
        self._new_call: Callable[[CodecState, int, Tensor], DecodeCall] = DecodeCall
        self._run_convolutions: Callable[[Tensor, DecodeCall], Tensor] = self._convolve

    def fuse(self) -> None:
        """Use fused kernels from now on; the weights are loaded, and not packed."""
        from voiceagent_tts.model.codec_fused import FusedCall, FusedSynthesis  # needs Triton

        self.transformer.fuse()
        self._new_call = FusedCall
        self._run_convolutions = FusedSynthesis(self)

    @property
    def is_fused(self) -> bool:
        """Whether `fuse` was called."""
        return self._new_call is not DecodeCall

    @property
    def device(self) -> torch.device:
        """Device of the weights."""
        return self.codebooks.table.device

    def new_state(self, rows: int, max_frames: int) -> CodecState:
        """Return the state of rows that have not decoded anything."""
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
        """Decode the next frames to the samples that follow those already returned.

        codes: [B, K, F] int64, codebook 0 first. rows: [B] int64, distinct rows of `state`, which
        is updated in place; the others keep their state. None: all rows.

        Returns:
            [B, F * 1920] float32 in [-1, 1], 24 kHz.
        """
        call = self._start_call(codes, state, rows)
        samples = self._synthesize(self._transform(codes, call), call)
        call.advance()
        return samples

    def prime_part(self, codes: Tensor, following: int, state: CodecState) -> None:
        """Decode the next part of a cloned voice's reference, only for its effect on the state.

        Frames decoded afterwards continue the reference exactly, so nothing has to be cut off. All
        frames pass the transformer, but only the last parts the convolutions, which are most of the
        work and have a short left context. A part runs the kernels of a decoded window of its size.
        codes: as in `decode`, of which `following` frames of the reference come after.
        """
        call = self._start_call(codes, state, None)
        latents = self._transform(codes, call)
        if following < self.context_frames:
            self._synthesize(latents, call)
        call.advance()

    @property
    def context_frames(self) -> int:
        """Number of earlier frames that the convolutions after the transformer depend on."""
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

    def _start_call(self, codes: Tensor, state: CodecState, rows: Tensor | None) -> DecodeCall:
        rows = torch.arange(state.rows, device=codes.device) if rows is None else rows
        frames = codes.shape[-1]
        assert len(codes) == len(rows) and frames <= state.max_frames, (codes.shape, len(rows))
        return self._new_call(state, frames, rows)

    def _transform(self, codes: Tensor, call: DecodeCall) -> Tensor:
        """[B, K, F] -> [B, F, latent]."""
        return self.transformer(self.input(self.codebooks(codes), call), call)

    def _synthesize(self, latents: Tensor, call: DecodeCall) -> Tensor:
        """[B, F, latent] -> [B, F * 1920]."""
        x = self._run_convolutions(latents, call)
        return x.reshape(-1, latents.shape[1] * FRAME_SAMPLES).float().clamp_(-1.0, 1.0)

    def _convolve(self, x: Tensor, call: DecodeCall) -> Tensor:
        """[B, F, latent] -> [B, F * 1920, 1]."""
        for upsampling, mixing in zip(self.upsampling, self.mixing, strict=True):
            x = mixing(upsampling(x, call), call)
        x = self.head(x, call)
        for block in self.blocks:
            x = block(x, call)
        return self.output(self.activation(x), call)

    def _convolutions(self) -> Iterator[CausalConvolution]:
        return (module for module in self.modules() if isinstance(module, CausalConvolution))

    def weights(self) -> Weights:
        """Yield all tensors under the checkpoint's names, largest first to limit peak memory."""
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
