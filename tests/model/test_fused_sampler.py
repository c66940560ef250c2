"""The fused sampler chooses the codes of the plain sampler, in one launch."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields

import hypothesis
import pytest
import torch
from hypothesis import strategies as st
from torch import Tensor

from testbed.examples import examples
from testbed.gpu import ON_GPU
from voiceagent_tts.engine.generate import make_samplers
from voiceagent_tts.model.sampling import (
    LogitRules,
    RowSettings,
    Sampler,
    SamplingBounds,
    SamplingParams,
    SamplingSettings,
    corrected_scores,
)

BOUND = 1e-6
"""Largest difference between sums of probabilities that were added in different orders."""
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
SLOW_DTYPES = pytest.mark.parametrize(
    "dtype",
    [
        pytest.param(torch.float32, marks=pytest.mark.thorough),
        torch.bfloat16,
        pytest.param(torch.float16, marks=pytest.mark.thorough),
    ],
)
PUBLISHED = {"code predictor": (2048, False), "talker": (3072, True)}
"""The size of the vocabulary, and whether logit rules apply."""

pytestmark = pytest.mark.xdist_group("fused")  # shares an interpreter with `test_fused`


@dataclass(frozen=True)
class Case:
    logits: Tensor
    uniform: Tensor
    settings: list[SamplingSettings]
    rules: LogitRules | None

    @property
    def sampler_arguments(self) -> tuple[Tensor, Tensor, RowSettings, LogitRules | None]:
        """The arguments of `sample`; settings are columns of one matrix, as in a pass."""
        rows = zip(self.uniform.tolist(), self.settings, strict=True)
        packed = torch.tensor(
            [[u, row.is_sampled, row.temperature, row.top_k, row.top_p] for u, row in rows]
        )
        uniform, is_sampled, temperature, top_k, top_p = packed.split(1, dim=1)
        settings = RowSettings(is_sampled > 0, temperature, top_k.long(), top_p)
        return self.logits, uniform[:, 0], settings, self.rules

    @property
    def bounds(self) -> SamplingBounds:
        return SamplingBounds.of(self.settings)


Choose = Callable[[Case], Tensor]


def sampling(case: Case) -> Callable[..., Tensor]:
    # Imported here, and with it Triton: never during collection (see `pytest_collection`).
    from voiceagent_tts.model.fused_sampler import FusedSampler

    return FusedSampler(case.bounds).sample


@pytest.fixture(scope="module", params=["interpreted", pytest.param("cuda", marks=ON_GPU)])
def fused(request: pytest.FixtureRequest) -> Iterator[Choose]:
    """Choose with the kernel: in Triton's interpreter, and on the GPU if there is one."""
    if request.param == "cuda":
        yield lambda case: sampling(case)(*on_gpu(case)).cpu()
        return
    run = request.getfixturevalue("run_interpreted")
    yield lambda case: run(sampling(case), *case.sampler_arguments)


def on_gpu(case: Case) -> tuple[Tensor, Tensor, RowSettings, LogitRules | None]:
    def moved(settings: RowSettings | LogitRules) -> list[Tensor]:
        return [getattr(settings, of.name).cuda() for of in fields(settings)]

    logits, uniform, settings, rules = case.sampler_arguments
    there = None if rules is None else LogitRules(*moved(rules))
    return logits.cuda(), uniform.cuda(), RowSettings(*moved(settings)), there


def plain(case: Case) -> Tensor:
    return Sampler(case.bounds).sample(*case.sampler_arguments)


def probabilities(case: Case) -> Tensor:
    """Return the probabilities of the codes that top-k keeps: [R, V] float64."""
    logits, _, settings, rules = case.sampler_arguments
    scores = corrected_scores(logits, rules) / settings.temperature
    for row, k in zip(scores, settings.top_k[:, 0].tolist(), strict=True):
        if 0 < k < len(row):
            row[row < row.sort(descending=True).values[k - 1]] = float("-inf")
    return scores.double().softmax(-1)


def assert_agree(codes: Tensor, case: Case) -> None:
    """Check `codes` against the plain sampler.

    A random number within `BOUND` of the border between two codes may give either of them.
    """
    chances = probabilities(case)
    is_sampled = torch.tensor([row.is_sampled for row in case.settings])
    distance = (chances.cumsum(-1) - case.uniform[:, None]).abs().amin(-1)
    may_differ = is_sampled & (distance <= BOUND)
    assert codes[~may_differ].tolist() == plain(case)[~may_differ].tolist()
    assert (chances.gather(1, codes[:, None])[:, 0] > 0).all()


def tensor_of(draw: st.DrawFn, kind: st.SearchStrategy, *shape: int) -> Tensor:
    count = torch.Size(shape).numel()
    return torch.tensor(draw(st.lists(kind, min_size=count, max_size=count))).view(shape)


LOGITS = st.one_of(
    st.integers(-20, 20).map(lambda quarters: quarters / 4),  # many are tied
    st.just(float("-inf")),
    st.floats(-20, 20, width=32),
)
CHOICES = st.builds(
    SamplingSettings,
    is_sampled=st.sampled_from((True, True, False)),
    temperature=st.floats(0.125, 2, width=32),
    top_k=st.sampled_from((0, 1, 2, 3, 5, 24, 30)),
)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Draw cases of up to three rows of at most 24 codes; the first code is always possible."""
    width, rows = draw(st.sampled_from((1, 2, 5, 24))), draw(st.integers(1, 3))
    logits = tensor_of(draw, LOGITS, rows, width)
    logits[:, 0] = logits[:, 0].clamp(min=-20)
    numbers = tensor_of(draw, st.integers(0, 2**23 - 1), rows) * 2.0**-23
    settings = draw(st.lists(CHOICES, min_size=rows, max_size=rows))
    dtype = draw(st.sampled_from(DTYPES))
    rules = None
    if draw(st.booleans()):
        rules = LogitRules(
            seen=tensor_of(draw, st.booleans(), rows, width),
            penalty=tensor_of(draw, st.floats(0.5, 2, width=32), rows, 1),
            may_end=tensor_of(draw, st.integers(0, 1), rows, 1),
            is_control=tensor_of(draw, st.booleans(), width),
            is_end=tensor_of(draw, st.booleans(), width),
        )
        rules.is_control[0] = rules.is_end[0] = False
    return Case(logits.to(dtype), numbers, settings, rules)


@hypothesis.settings(max_examples=examples(200))
@hypothesis.given(case=cases())
def test_the_codes_are_the_plain_ones(fused: Choose, case: Case) -> None:
    """With ties, impossible codes and settings that differ by row, the codes are the plain ones."""
    assert_agree(fused(case), case)


def published(name: str, dtype: torch.dtype, rows: int) -> Case:
    """Draw logits as a checkpoint computes them, at the published size."""
    width, has_rules = PUBLISHED[name]
    numbers = torch.Generator().manual_seed(9)

    def chance(*shape: int) -> Tensor:
        return torch.rand(shape, generator=numbers)

    ids, rules = torch.arange(width), None
    if has_rules:
        is_end = ids == width - 900
        rules = LogitRules(
            seen=chance(rows, width) < 0.05,
            penalty=torch.full((rows, 1), 1.05),
            may_end=(chance(rows, 1) < 0.5).long(),
            is_control=(ids >= width - 1024) & ~is_end,
            is_end=is_end,
        )
    logits = torch.randn(rows, width, generator=numbers) * 3 - 4
    settings = [SamplingSettings(temperature=0.9, top_k=k) for k in (50, 50, 50, 1, 0, 700)]
    return Case(logits.to(dtype), chance(rows), (settings * rows)[:rows], rules)


@SLOW_DTYPES
@pytest.mark.parametrize("name", PUBLISHED)
def test_published_vocabularies_are_chosen_from_plainly(
    fused: Choose, name: str, dtype: torch.dtype
) -> None:
    """At published vocabulary sizes, with ties at the 50th place, the codes are the plain ones."""
    case = published(name, dtype, 12)
    assert_agree(fused(case), case)


@pytest.mark.parametrize("has_rules", [False, True], ids=["without rules", "with rules"])
@pytest.mark.parametrize("start", [1.0, -1.0])
@SLOW_DTYPES
def test_scores_that_nearly_tie_are_told_apart(
    fused: Choose, dtype: torch.dtype, start: float, has_rules: bool
) -> None:
    """Among adjacent floating-point numbers exactly the k largest are kept.

    The ends of the random range draw the first and the last of them.
    """
    most, width = 6, 13
    rows, ids = torch.arange(2 * most), torch.arange(width)
    bits = torch.int32 if dtype == torch.float32 else torch.int16
    neighbours = (torch.tensor([start], dtype=dtype).view(bits) + ids).to(bits).view(dtype)
    logits = neighbours.masked_fill(ids == width - 1, float("-inf")).repeat(len(rows), 1)
    rules = None
    if has_rules:
        rules = LogitRules(
            seen=(ids % 2 > 0).repeat(len(rows), 1),
            # less than the step to the next bfloat16
            penalty=torch.full((len(rows), 1), 1 + 2.0**-20),
            may_end=(rows >= most)[:, None].long(),
            is_control=ids == 5,
            is_end=ids == (width - 2 if start > 0 else 0),  # the likeliest
        )
    ends = torch.tensor([0, 1 - 2**-23]).repeat(most)
    settings = [SamplingSettings(temperature=1.0, top_k=k // 2 + 1) for k in rows.tolist()]
    case = Case(logits, ends, settings, rules)
    kept = [chances.nonzero()[:, 0].tolist() for chances in probabilities(case)]
    assert [len(ids) for ids in kept] == [row.top_k for row in settings]
    assert fused(case).tolist() == [ids[-(row % 2)] for row, ids in enumerate(kept)]


def test_a_top_p_is_chosen_plainly() -> None:
    """Where any row may use top-p, which the kernel lacks, the plain sampler is used."""
    from voiceagent_tts.model.fused_sampler import FusedSampler

    params = SamplingParams(SamplingSettings(), SamplingSettings(top_p=0.9))
    talker, predictor = make_samplers([params, SamplingParams()], "fused")
    assert (type(talker), type(predictor)) == (FusedSampler, Sampler)
    assert talker.bounds.covers(SamplingSettings(top_k=3))
    assert not talker.bounds.covers(params.predictor)
    assert predictor.bounds.covers(params.predictor)
