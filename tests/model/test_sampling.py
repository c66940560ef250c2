"""Sampling: the reference's filters in its order, with random numbers per row."""

import numpy as np
import pytest
import torch
from torch import Tensor

from testbed.parity_reference import REFERENCE
from voiceagent_tts.model.config import read_generation_config
from voiceagent_tts.model.sampling import (
    LogitRules,
    RowSettings,
    Sampler,
    SamplingBounds,
    SamplingParams,
    SamplingSettings,
    philox,
    sampling_params,
    uniforms,
)

VOCABULARY = 24
END = 20
SUPPRESSED = [19, 21, 22, 23]
DRAWS = 6000


def logits() -> Tensor:
    """[V] logits, some above and some below 0, two of them tied."""
    made = torch.randn(VOCABULARY, generator=torch.Generator().manual_seed(5)) * 2
    made[7] = made[3]
    return made


def reference_probabilities(
    settings: SamplingSettings, history: list[int], penalty: float
) -> Tensor:
    """Apply the library's processors to `logits`, in the order of its `generate`."""
    from transformers import (  # slow; here, so that workers without this test do not load it
        LogitsProcessorList,
        MinNewTokensLengthLogitsProcessor,
        RepetitionPenaltyLogitsProcessor,
        SuppressTokensLogitsProcessor,
        TemperatureLogitsWarper,
        TopKLogitsWarper,
        TopPLogitsWarper,
    )

    processors = LogitsProcessorList(
        [
            RepetitionPenaltyLogitsProcessor(penalty),
            MinNewTokensLengthLogitsProcessor(0, 2, END, device="cpu"),
            SuppressTokensLogitsProcessor(SUPPRESSED, device="cpu"),
            TemperatureLogitsWarper(settings.temperature),
        ]
    )
    if settings.top_k:
        processors.append(TopKLogitsWarper(settings.top_k))
    if settings.top_p < 1:
        processors.append(TopPLogitsWarper(settings.top_p))
    ids = torch.tensor([history], dtype=torch.int64)
    return processors(ids, logits()[None].clone()).softmax(-1)[0]


def draw(
    settings: SamplingSettings, history: list[int], penalty: float, rows: int = DRAWS
) -> Tensor:
    seen = torch.zeros(rows, VOCABULARY, dtype=torch.bool)
    seen[:, history] = True
    ids = torch.arange(VOCABULARY)
    rules = LogitRules(
        seen,
        penalty=torch.full((rows, 1), penalty),
        may_end=torch.full((rows, 1), int(len(history) >= 2)),
        is_control=torch.isin(ids, torch.tensor(SUPPRESSED)),
        is_end=ids == END,
    )
    numbers = one_number_each(rows, len(history))
    return sample(logits().expand(rows, -1), numbers, [settings] * rows, rules)


def one_number_each(rows: int, frame: int = 0) -> Tensor:
    return torch.from_numpy(
        uniforms(np.arange(rows, dtype=np.uint64), np.array([[frame]]), 1)[:, 0, 0]
    )


def sample(
    logits: Tensor,
    uniform: Tensor,
    settings: list[SamplingSettings],
    rules: LogitRules | None = None,
) -> Tensor:
    """Sample [R] codes, with separate settings for each row."""

    def column(name: str) -> Tensor:
        return torch.tensor([[getattr(row, name)] for row in settings])

    names = ("is_sampled", "temperature", "top_k", "top_p")
    sampler = Sampler(SamplingBounds.of(settings))
    return sampler.sample(logits, uniform, RowSettings(*map(column, names)), rules)


def chi_squared(drawn: Tensor, probabilities: Tensor) -> tuple[float, int]:
    """Return the chi-squared statistic and its degrees of freedom, with rare codes pooled."""
    expected = probabilities * len(drawn)
    observed = drawn.bincount(minlength=VOCABULARY).float()
    common = expected >= 5
    wanted = torch.cat((expected[common], expected[~common].sum()[None]))
    came = torch.cat((observed[common], observed[~common].sum()[None]))
    kept = wanted > 0
    statistic = ((came[kept] - wanted[kept]) ** 2 / wanted[kept]).sum()
    return float(statistic), int(kept.sum()) - 1


@pytest.mark.parametrize(
    "history",
    [
        pytest.param([], marks=pytest.mark.thorough),
        pytest.param([3, 5, 3], marks=pytest.mark.thorough),
        [0, 1, 2, 3, 7, 11, 20],
    ],
)
@pytest.mark.parametrize(
    "settings",
    [
        SamplingSettings(temperature=1.0, top_k=0),
        SamplingSettings(temperature=0.9, top_k=5),
        SamplingSettings(temperature=1.7, top_k=0, top_p=0.7),
        SamplingSettings(temperature=0.6, top_k=8, top_p=0.9),
    ],
)
def test_draws_follow_the_reference_s_filters(
    settings: SamplingSettings, history: list[int]
) -> None:
    probabilities = reference_probabilities(settings, history, 1.3)
    drawn = draw(settings, history, 1.3)
    assert (probabilities[drawn] > 0).all(), "a code that is filtered out was drawn"
    statistic, freedom = chi_squared(drawn, probabilities)
    assert statistic < freedom + 5 * (2 * freedom) ** 0.5


def test_ties_with_the_last_of_top_k_stay() -> None:
    """Codes as likely as the k-th are kept, as in the reference."""
    first, second = logits().topk(2).values
    scores = torch.where(logits() == second, first, logits())[None]
    drawn = sample(scores.expand(200, -1), one_number_each(200), [SamplingSettings(top_k=1)] * 200)
    assert len(drawn.unique()) == 2


def test_greedy_takes_the_likeliest() -> None:
    settings = [SamplingSettings(is_sampled=False), SamplingSettings(temperature=5.0, top_k=0)]
    scores = logits().expand(2, -1)
    drawn = [sample(scores, torch.tensor([u, u]), settings) for u in (0.0, 0.5, 1 - 2**-23)]
    assert {int(codes[0]) for codes in drawn} == {int(logits().argmax())}
    assert len({int(codes[1]) for codes in drawn}) > 1


def test_the_last_random_number_draws_a_possible_code() -> None:
    """The ends of [0, 1) never draw a code with probability zero."""
    scores = logits().clone()
    scores[[0, 1, VOCABULARY - 1]] = float("-inf")
    settings = [SamplingSettings(temperature=1.0, top_k=0)]
    lowest = sample(scores[None], torch.tensor([0.0]), settings)
    highest = sample(scores[None], torch.tensor([1 - 2**-23]), settings)
    assert (int(lowest), int(highest)) == (2, VOCABULARY - 2)


@pytest.mark.parametrize(
    ("counter", "key", "words"),
    [
        ([0] * 4, [0] * 2, [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
        ([0xFFFFFFFF] * 4, [0xFFFFFFFF] * 2, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
        (
            [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
            [0xA4093822, 0x299F31D0],
            [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
        ),
    ],
)
def test_philox_gives_its_published_words(
    counter: list[int], key: list[int], words: list[int]
) -> None:
    """The generator reproduces its authors' known answers (Random123, kat_vectors)."""
    x0, x1, x2, x3, k0, k1 = (np.array([word], np.uint64) for word in (*counter, *key))
    assert [int(word) for (word,) in philox((x0, x1, x2, x3), (k0, k1))] == words


def test_random_numbers_are_of_seed_frame_and_codebook() -> None:
    frames = np.array([[0, 1, 3, 2**31]])
    seeds = np.array([1, 2, 2**64 - 7, 2**62 + 1, 2**64 - 1], np.uint64)
    together = uniforms(seeds, frames, 16)
    alone = uniforms(seeds[3:4], frames[:, 2:3], 16)[0]
    assert (together[3, 2] == alone).all()
    assert (uniforms(seeds[2:3], frames, 5) == together[2, :, :5]).all()
    shifted = uniforms(seeds, frames + np.arange(5)[:, None], 16)
    assert (shifted[3] == uniforms(seeds[3:4], frames + 3, 16)).all()
    assert len(np.unique(together)) == together.size
    assert together.dtype == np.float32
    assert 0 <= together.min() and together.max() < 1


def test_a_checkpoint_s_own_settings_are_read() -> None:
    params = sampling_params(read_generation_config(REFERENCE / "base-0b6"), seed=3)
    assert params == SamplingParams(SamplingSettings(), SamplingSettings(), 1.05, 3)
