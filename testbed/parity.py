"""Compare codes and streamed audio with those of the official package."""

import random
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from testbed.official_cases import GREEDY, Case
from testbed.replay import choices_along
from voiceagent_tts.model.codec_decoder import CodecDecoder
from voiceagent_tts.model.codec_state import CodecState
from voiceagent_tts.model.network import Network
from voiceagent_tts.model.prompt import Prompt

NEAR_TIE = 1e-5
"""Difference of two scores below which another machine may order the codes differently."""
_MAX_WINDOW_FRAMES = 16

Verdict = Literal["equal", "near tie", "different"]


def compare_codes(network: Network, case: Case, prompt: Prompt, made: Tensor) -> Verdict:
    """Compare the network's codes of a case with the official ones.

    One different code changes all later ones. So the network is evaluated along the official codes,
    and wherever its best choice differs from them there must be a near tie.

    Args:
        network: network of the case's checkpoint.
        case: case with the official codes.
        prompt: prompt of the case.
        made: [F, K] codes that the network generated from the prompt.
    """
    expected = case.codes
    if torch.equal(made, expected):
        return "equal"
    end = network.config.talker_config.codec_eos_token_id
    # One more frame: ending is a choice too, except at the frame limit.
    ending = torch.tensor([[end] + [0] * (network.codebooks - 1)])
    dictated = torch.cat((expected, ending))
    along = choices_along(network, prompt, dictated, GREEDY.repetition_penalty)
    differs = along.codes != dictated
    differs[-1, 1:] = False
    differs[-1, 0] &= len(expected) < case.max_frames
    is_explained = bool(differs.any()) and bool(along.margins[differs].max() < NEAR_TIE)
    return "near tie" if is_explained else "different"


def prime(decoder: CodecDecoder, codes: Tensor, state: CodecState) -> None:
    """Decode a whole reference, [B, K, F], only for its effect on the state, as an engine does."""
    following = codes.shape[-1]
    for part in codes.split(state.max_frames, dim=-1):
        following -= part.shape[-1]
        decoder.prime_part(part, following, state)


def decode_in_windows(
    decoder: CodecDecoder, codes: Tensor, windows: Sequence[int], before: Tensor | None = None
) -> Tensor:
    """Decode frames as a stream, in windows of these lengths; returns [F * 1920] samples.

    Args:
        decoder: decoder of the codec.
        codes: [F, K] frames to decode.
        windows: frames per window, with sum F.
        before: [F', K] preceding frames, whose audio is not returned.
    """
    state = decoder.new_state(1, max(windows))
    if before is not None:
        prime(decoder, before.T[None], state)
    portions = codes.T[None].split(list(windows), dim=-1)
    return torch.cat([decoder.decode(portion, state)[0] for portion in portions])


def random_windows(frames: int, rng: random.Random) -> list[int]:
    """Draw the lengths of windows that cover `frames` frames."""
    windows: list[int] = []
    while (left := frames - sum(windows)) > 0:
        windows.append(min(left, rng.randint(1, _MAX_WINDOW_FRAMES)))
    return windows
