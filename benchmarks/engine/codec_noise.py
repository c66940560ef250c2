"""How far the fused codec's samples are from the plain codec's on the same device, in decibels."""

import math

import torch

from voiceagent_tts.model.codec_decoder import CodecDecoder

_ROWS, _FRAMES, _CALL_FRAMES = 4, 48, 12


@torch.inference_mode()
def signal_to_noise(plain: CodecDecoder, fused: CodecDecoder) -> float:
    """Return the ratio of the plain codec's power to that of the difference, in dB.

    Both decode equal random codes in several calls, so that the state between them counts, too.

    Args:
        plain: a decoder.
        fused: a decoder with the same weights on the same device, after `fuse_codec`.
    """
    config = plain.config
    shape = (_ROWS, config.num_quantizers, _FRAMES)
    generator = torch.Generator().manual_seed(0)
    codes = torch.randint(config.codebook_size, shape, generator=generator).to(plain.device)
    expected, found = (
        torch.cat(
            [decoder.decode(part, state).double() for part in codes.split(_CALL_FRAMES, -1)], 1
        )
        for decoder, state in (
            (plain, plain.new_state(_ROWS, _CALL_FRAMES)),
            (fused, fused.new_state(_ROWS, _CALL_FRAMES)),
        )
    )
    noise = float((found - expected).square().sum())
    return round(10 * math.log10(float(expected.square().sum()) / noise), 1) if noise else math.inf
