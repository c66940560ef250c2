"""Generates all frames of complete prompts, offline: for checks, tools and designed voices."""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from torch import Tensor

from voiceagent_tts.engine.batch import Batch
from voiceagent_tts.model.kernels import make_sampler
from voiceagent_tts.model.layers import Kernels
from voiceagent_tts.model.network import Network
from voiceagent_tts.model.prompt import Prompt
from voiceagent_tts.model.sampling import Sampler, SamplingBounds, SamplingParams


@dataclass(frozen=True, slots=True)
class Request:
    """A prompt whose frames are wanted."""

    prompt: Prompt
    sampling: SamplingParams = field(default_factory=SamplingParams)
    max_frames: int = 2048


def make_samplers(
    requests: Iterable[SamplingParams], kernels: Kernels = "plain"
) -> tuple[Sampler, Sampler]:
    """Return samplers of the talker and of the code predictor that support all `requests`."""
    requests = list(requests)
    of_talker = SamplingBounds.of(params.talker for params in requests)
    of_predictor = SamplingBounds.of(params.predictor for params in requests)
    return make_sampler(kernels, of_talker), make_sampler(kernels, of_predictor)


def generate_codes(
    network: Network, requests: Sequence[Request], rows: int, capacity: int = 4096
) -> list[Tensor]:
    """Generate the frames of every request, up to `rows` requests at a time.

    Returns:
        The frames of each request, [F, K] int64 on the CPU.
    """
    samplers = make_samplers((request.sampling for request in requests), network.kernels)
    batch = Batch(network, min(rows, len(requests)), capacity, samplers=samplers)
    waiting = deque(enumerate(requests))
    active: dict[int, int] = {}
    codes: dict[int, Tensor] = {}
    while waiting or active:
        for row in batch.free[: len(waiting)]:
            number, request = waiting.popleft()
            batch.join(row, request.prompt, request.sampling, request.max_frames)
            active[row] = number
        for row in batch.step().ended:
            codes[active.pop(row)] = batch.codes_of(row)
            batch.cancel(row)
    return [codes[number] for number in range(len(requests))]
