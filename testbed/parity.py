"""Codes and streams compared with those of the official package."""

import random
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from testbed.official_cases import GREEDY, Case
from voiceagent_tts.engine.replay import choices_along
from voiceagent_tts.model.codec_decoder import CodecDecoder
from voiceagent_tts.model.network import Network
from voiceagent_tts.model.prompt import Prompt

NEAR_TIE = 1e-5
"""Of two codes whose scores are this close either may be the greater on another machine."""
_MAX_WINDOW_FRAMES = 16

Verdict = Literal["equal", "near tie", "different"]


def compare_codes(network: Network, case: Case, prompt: Prompt, made: Tensor) -> Verdict:
    """Judge what the network has made of a case.

    A different choice makes all that follows different. So the network is led along the official
    codes, and everywhere where it would not have chosen them there must be a near tie.

    Args:
        network: the case's.
        case: with the official codes.
        prompt: the case's.
        made: [F, K] what the network made of the prompt.
    """
    expected = case.codes
    if torch.equal(made, expected):
        return "equal"
    end = network.config.talker_config.codec_eos_token_id
    # One frame more: whether to end is a choice too, except where no more frames were allowed.
    ending = torch.tensor([[end] + [0] * (network.codebooks - 1)])
    dictated = torch.cat((expected, ending))
    along = choices_along(network, prompt, dictated, GREEDY.repetition_penalty)
    differs = along.codes != dictated
    differs[-1, 1:] = False
    differs[-1, 0] &= len(expected) < case.max_frames
    is_explained = bool(differs.any()) and bool(along.margins[differs].max() < NEAR_TIE)
    return "near tie" if is_explained else "different"


def decode_in_windows(
    decoder: CodecDecoder, codes: Tensor, windows: Sequence[int], before: Tensor | None = None
) -> Tensor:
    """[F * 1920]: frames ([F, K]) decoded in windows of these lengths, as a stream.

    Args:
        decoder: the codec's.
        codes: to be decoded.
        windows: numbers of frames, F together.
        before: [F', K], frames that they follow and that are not heard.
    """
    state = decoder.new_state(1, max(windows))
    if before is not None:
        decoder.prime(before.T[None], state)
    portions = codes.T[None].split(list(windows), dim=-1)
    return torch.cat([decoder.decode(portion, state)[0] for portion in portions])


def random_windows(frames: int, rng: random.Random) -> list[int]:
    """Lengths of windows that `frames` frames are cut into."""
    windows: list[int] = []
    while (left := frames - sum(windows)) > 0:
        windows.append(min(left, rng.randint(1, _MAX_WINDOW_FRAMES)))
    return windows
