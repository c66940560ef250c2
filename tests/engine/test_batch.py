"""Rows of a batch: a row's codes do not depend on other rows; it waits for text and ends."""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from testbed.engine_driving import load
from testbed.parity_reference import GREEDY, REFERENCE, LoadTiny, all_cases
from voiceagent_tts.engine.batch import Batch
from voiceagent_tts.engine.generate import Request
from voiceagent_tts.engine.passes import Passes
from voiceagent_tts.engine.sizes import Shapes, graph_sizes
from voiceagent_tts.model.checkpoint import Checkpoint, load_checkpoint
from voiceagent_tts.model.kv_pool import PAGE_POSITIONS
from voiceagent_tts.model.prompt import Preset, Prompt, PromptBuilder
from voiceagent_tts.model.sampling import (
    LogitRules,
    RowSettings,
    Sampler,
    SamplingBounds,
    SamplingParams,
    SamplingSettings,
    corrected_scores,
)

TEXT = "The quick brown fox jumps over the lazy dog 42 times; then it sleeps."
SAMPLED = SamplingParams(SamplingSettings(), SamplingSettings(), seed=11)
ROWS, CAPACITY = 8, 192
THOROUGH = pytest.mark.thorough


def prompt_of(checkpoint: Checkpoint, text: str = TEXT, *, is_streaming: bool = True) -> Prompt:
    build = PromptBuilder(checkpoint.config, checkpoint.tokenizer).build
    return build(text, Preset("Ryan"), "English", is_streaming=is_streaming)


@dataclass
class Listener:
    """A batch, and codebook 0 of each row's frames since the row joined."""

    checkpoint: Checkpoint
    shapes: Shapes | None = None
    capacity: int = CAPACITY
    first: dict[int, list[int]] = field(default_factory=dict)
    ended: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.batch = Batch(self.checkpoint.network, ROWS, self.capacity, shapes=self.shapes)

    def join(self, row: int, request: Request, **options: Any) -> None:
        self.first[row] = []
        self.ended.discard(row)
        self.batch.join(row, request.prompt, request.sampling, request.max_frames, **options)

    def step(self) -> tuple[int, ...]:
        """Run one step; return the rows that made a frame."""
        step = self.batch.step()
        for row, code in zip(step.made, step.first, strict=True):
            self.first[row].append(code)
        self.ended.update(step.ended)
        return step.made

    def cancel(self, row: int) -> None:
        self.batch.cancel(row)
        self.ended.discard(row)

    def codes(self, row: int) -> Tensor:
        """Return the codes of a row: [F, K]."""
        codes = self.batch.codes_of(row)
        assert codes[:, 0].tolist() == self.first[row]
        return codes

    def finish(self, row: int) -> Tensor:
        """Step until `row` has ended; return its codes."""
        while row not in self.ended:
            self.step()
        return self.codes(row)


def alone(checkpoint: Checkpoint, request: Request) -> Tensor:
    listener = Listener(checkpoint)
    listener.join(0, request)
    return listener.finish(0)


@pytest.fixture(scope="module")
def custom_voice() -> Checkpoint:
    """The tiny CustomVoice checkpoint with few codebooks, whose steps are several times faster."""
    return load()[0]


PADDED = Shapes(rows=(3, 8), windows=(128, 192, 256), prompts=(16, 64), prompt_rows=(1, 2, 4))
"""Few shapes, as on a GPU: prompts and rows are padded to them."""


@pytest.mark.parametrize("longest", [16, *(pytest.param(n, marks=THOROUGH) for n in (24, 64))])
def test_long_prompts_come_in_parts(base: Checkpoint, longest: int) -> None:
    """A prompt gives equal codes however it is split, padded and batched with other prompts."""
    cases = [case for case in all_cases() if case.checkpoint == "base-0b6"]
    requests = [Request(case.prompt(base), GREEDY, case.max_frames) for case in cases]
    assert max(len(request.prompt) for request in requests) > 64
    shapes = Shapes((2, ROWS), (64, 192, 256), (8, longest), (1, 2, 4))
    listener = Listener(base, shapes)
    for start in range(0, len(cases), ROWS):
        for row, request in enumerate(requests[start : start + ROWS]):
            listener.join(row, request)
        for row, case in enumerate(cases[start : start + ROWS]):
            assert listener.finish(row).tolist() == case.codes.tolist()
            listener.cancel(row)


def beginning(prompt: Prompt, positions: int) -> Prompt:
    text_ids, codec_ids = prompt.text_ids[:positions], prompt.codec_ids[:positions]
    frames = prompt.reference_codes
    if frames is not None:
        frames = frames[: max(0, positions - len(prompt) + len(frames))]
    return replace(prompt, text_ids=text_ids, codec_ids=codec_ids, reference_codes=frames)


@pytest.mark.parametrize("name", ["custom_voice-1b7-02", "base-0b6-01"])
@pytest.mark.parametrize("share", [0.01, 0.5, 0.99])
def test_a_prepared_beginning_changes_no_code(load_tiny: LoadTiny, name: str, share: float) -> None:
    case = next(case for case in all_cases() if str(case) == name)
    checkpoint = load_tiny(case.checkpoint)
    prompt = case.prompt(checkpoint)
    listener = Listener(checkpoint, PADDED)
    begun = beginning(prompt, max(1, int(share * len(prompt))))
    prefix = listener.batch.prepare(begun, [ROWS])
    for row in (3, 0):
        listener.join(row, Request(prompt, GREEDY, case.max_frames), prefix=prefix)
        assert listener.finish(row).tolist() == case.codes.tolist()


@pytest.mark.parametrize("shapes", [None, graph_sizes(ROWS, CAPACITY).talker])
def test_pages_that_hold_no_numbers_are_harmless(
    custom_voice: Checkpoint, shapes: Shapes | None
) -> None:
    """A row whose numbers overflowed leaves NaN in its pages; the next row never reads them."""
    request = Request(prompt_of(custom_voice), SAMPLED, 20)
    listener = Listener(custom_voice, shapes)
    pool = listener.batch._rows.pool
    for cache in (pool.keys, pool.values):
        cache.fill_(torch.nan)
    listener.join(0, request)
    assert torch.equal(listener.finish(0), alone(custom_voice, request))


def test_a_row_that_gets_another_page_goes_on(custom_voice: Checkpoint) -> None:
    prompt = prompt_of(custom_voice, "Fox. " * 60, is_streaming=False)
    request = Request(prompt, SAMPLED, 2 + PAGE_POSITIONS - len(prompt))
    whole, growing = (Listener(custom_voice, capacity=2 * PAGE_POSITIONS) for _ in range(2))
    whole.join(0, request)
    growing.join(0, request, pages=[3])
    while not growing.batch.full_rows([0]):
        growing.step()
    growing.batch.set_pages(0, [3, 1])
    assert torch.equal(growing.finish(0), whole.finish(0))


def test_prompts_of_a_burst_share_passes(
    custom_voice: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared: list[int] = []
    run = Passes.run

    def record(passes: Passes, name: str, count: int, length: int, window: int) -> None:
        shared.append(count)
        run(passes, name, count, length, window)

    monkeypatch.setattr(Passes, "run", record)
    shapes = graph_sizes(40, 512, has_windows=False).talker
    batch = Batch(custom_voice.network, 40, 512, shapes=shapes)
    for row in range(39):
        batch.join(row, prompt_of(custom_voice, "Yes."), SAMPLED, 4)
    batch.prefill()
    assert shared == [16, 16, 8]


def test_prompts_are_sent_through_a_buffer_of_the_largest_pass(custom_voice: Checkpoint) -> None:
    """Several prompts share a pass only while they have fewer positions together than one may."""
    shapes = graph_sizes(40, 512, has_windows=False).talker
    passes = Batch(custom_voice.network, 40, 512, shapes=shapes).passes
    largest = max(count * length for name, count, length, _ in passes.keys() if name == "prefill")
    assert len(passes._prompts.tensor) == largest == 512


def test_padding_writes_into_no_page_of_a_beginning_that_failed(
    custom_voice: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = Batch(custom_voice.network, ROWS, CAPACITY)
    before = batch._table.padded(np.zeros(0, int), 1)

    def fail(passes: Passes, name: str, *size: int) -> None:
        raise torch.OutOfMemoryError

    monkeypatch.setattr(Passes, "run", fail)
    with pytest.raises(torch.OutOfMemoryError):
        batch.prepare(prompt_of(custom_voice), [1])
    assert batch._table.padded(np.zeros(0, int), 1) == before


class _Impatient(Sampler):
    """A sampler that chooses the end as soon as the rules allow, and an allowed code until then."""

    def __init__(self, end: int) -> None:
        super().__init__(SamplingBounds())
        self.end = end

    def sample(
        self,
        logits: Tensor,
        uniform: Tensor,
        settings: RowSettings,
        rules: LogitRules | None = None,
    ) -> Tensor:
        """Choose the end id where the rules allow it, else the likeliest code."""
        scores = corrected_scores(logits, rules)
        may_end = scores[:, self.end].isfinite()
        return torch.where(may_end, self.end, scores.argmax(-1))


def test_the_end_comes_after_two_frames_at_least(custom_voice: Checkpoint) -> None:
    network = custom_voice.network
    talker = _Impatient(network.config.talker_config.codec_eos_token_id)
    batch = Batch(network, 1, CAPACITY, samplers=(talker, Sampler(SamplingBounds())))
    batch.join(0, prompt_of(custom_voice), GREEDY, 50)
    while not batch.step().ended:
        pass
    assert batch.frames(0) == 2


def test_a_row_that_needs_its_text_does_not_end_before() -> None:
    """A model that would end after two frames first gets all of its text, in parts or at once."""
    checkpoint = load_checkpoint(REFERENCE / "custom_voice-1b7", is_packed=False)
    request = Request(prompt_of(checkpoint), GREEDY, 100)
    head = checkpoint.network.talker.head.weight
    end = checkpoint.config.talker_config.codec_eos_token_id
    head[end] = 5 * head[alone(checkpoint, request)[2, 0]]
    assert len(alone(checkpoint, request)) == 2
    text = request.prompt.trailing_text_ids
    at_once, in_parts = Listener(checkpoint), Listener(checkpoint)
    at_once.join(0, request, needs_all_text=True)
    begun = replace(request, prompt=replace(request.prompt, trailing_text_ids=text[:5]))
    in_parts.join(0, begun, is_open=True, needs_all_text=True)
    for _ in range(10):
        in_parts.step()
    in_parts.batch.feed(0, text[5:-1], is_last=True)
    codes = at_once.finish(0)
    assert torch.equal(in_parts.finish(0), codes)
    assert len(text) <= len(codes) < 100


@pytest.mark.parametrize("shapes", [None, PADDED], ids=["exact", "padded"])
def test_a_frame_has_codes_only(custom_voice: Checkpoint, shapes: Shapes | None) -> None:
    """Rows that end leave codes in range and no end id, so that no table is read past its end."""
    network = custom_voice.network
    end = network.config.talker_config.codec_eos_token_id
    samplers = _Impatient(end), Sampler(SamplingBounds())
    batch = Batch(network, ROWS, CAPACITY, shapes=shapes, samplers=samplers)
    for row, most in ((1, 9), (4, 1)):
        batch.join(row, prompt_of(custom_voice), GREEDY, most)
    for _ in range(4):
        batch.step()
    assert (batch.frames(1), batch.frames(4)) == (2, 1)
    assert batch.codes.min() >= 0
    assert batch.codes.max() < network.code_predictor.config.vocab_size
