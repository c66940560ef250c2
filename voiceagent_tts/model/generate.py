"""Prompts become codes: rows of one batch, each at its own frame, in plain PyTorch.

`Rows` is all that a batch remembers, as tensors of fixed shape that are written in place; `start`,
`predict` and `advance` are the three passes over them and never wait for the device. `Batch` drives
them for texts that are complete or still arriving. Knows no clock and no audio.
"""

from collections import deque
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from voiceagent_tts.model.network import Network
from voiceagent_tts.model.prompt import Prompt
from voiceagent_tts.model.sampling import (
    MIN_FRAMES,
    Chooser,
    Choosing,
    SamplingParams,
    first_scores,
    uniforms,
)
from voiceagent_tts.model.talker import KVCache, empty_cache

_WINDOW = 64
"""Keys are read in multiples of this many positions, so that few shapes occur."""
_ENDLESS = 2**62
_LEAST_FRAME_CAP = 192
_FRAMES_PER_TEXT_ID = 12


@dataclass(slots=True)
class Rows:
    """The state of every row of a batch.

    Attributes:
        cache: the talker's memory.
        frame_cache: the code predictor's, of one frame.
        positions: [B] int64, where each row's next position goes.
        frames: [B] int64, number of the frame that each row makes next.
        min_frames: [B] int64, how many each row makes at least.
        hidden: [B, hidden], the talker's state from which that frame follows.
        first: [B] int64, codebook 0 of that frame, or the id that ends the row.
        noise: [B, K] float32, that frame's random numbers.
        seen: [B, V] bool, the codes of codebook 0 that each row has had.
        seeds: [B] int64.
        penalty: [B, 1] float32, repetition penalty.
        talker_choice: how codebook 0 is chosen.
        predictor_choice: how the other codebooks are.
    """

    cache: KVCache
    frame_cache: KVCache
    positions: Tensor
    frames: Tensor
    min_frames: Tensor
    hidden: Tensor
    first: Tensor
    noise: Tensor
    seen: Tensor
    seeds: Tensor
    penalty: Tensor
    talker_choice: Choosing
    predictor_choice: Choosing


def empty_rows(network: Network, rows: int, capacity: int) -> Rows:
    """State for `rows` rows of at most `capacity` positions (prompt and frames)."""
    talker, device = network.config.talker_config, network.device
    predictor = talker.code_predictor_config

    def integers() -> Tensor:
        return torch.zeros(rows, dtype=torch.int64, device=device)

    return Rows(
        cache=empty_cache(talker, rows, capacity, network.talker.codec_embedding),
        frame_cache=empty_cache(
            predictor, rows, predictor.num_code_groups, network.code_predictor.embeddings
        ),
        positions=integers(),
        frames=integers(),
        min_frames=integers(),
        hidden=network.talker.codec_embedding.new_zeros(rows, talker.hidden_size),
        first=integers(),
        noise=torch.zeros(rows, network.codebooks, device=device),
        seen=torch.zeros(rows, talker.vocab_size, dtype=torch.bool, device=device),
        seeds=integers(),
        penalty=torch.ones(rows, 1, device=device),
        talker_choice=Chooser(rows, device),
        predictor_choice=Chooser(rows, device),
    )


def start(network: Network, rows: Rows, row: int, prompt: Prompt, sampling: SamplingParams) -> None:
    """Prefill `prompt` into `row` and choose codebook 0 of its first frame."""
    one = slice(row, row + 1)
    rows.positions[row] = len(prompt)
    rows.frames[row] = 0
    rows.min_frames[row] = MIN_FRAMES
    rows.seen[row] = False
    rows.seeds[row] = sampling.seed
    rows.penalty[row] = sampling.repetition_penalty
    rows.talker_choice.set_row(row, sampling.talker)
    rows.predictor_choice.set_row(row, sampling.predictor)
    hidden = network.talker.prefill(
        network.embed_prompt(prompt)[None],
        rows.positions[one],
        torch.tensor([row], device=network.device),
        rows.cache,
    )
    rows.hidden[one] = hidden
    rows.noise[one] = uniforms(rows.seeds[one], rows.frames[one], network.codebooks)
    rows.first[one] = _choose_first(network, rows, hidden, one)
    rows.seen[one] = rows.seen[one].scatter(1, rows.first[one, None], True)


def predict(network: Network, rows: Rows) -> Tensor:
    """[B, K]: the frame that each row makes next; rows that ended get codes without meaning."""

    def choose(logits: Tensor, book: int) -> Tensor:
        return rows.predictor_choice.choose(logits.float(), rows.noise[:, book])

    predictor = network.code_predictor
    first = rows.first.clamp(max=predictor.config.vocab_size - 1)  # the end's id is no code
    return predictor.predict(rows.hidden, first, rows.frame_cache, choose)


def advance(
    network: Network,
    rows: Rows,
    codes: Tensor,
    text_ids: Tensor,
    is_active: Tensor,
    window: int,
) -> None:
    """Take one talker step and choose codebook 0 of the frame after `codes`.

    Args:
        network: the weights.
        rows: written in place.
        codes: [B, K] by `predict`.
        text_ids: [B] int64, the text token that goes beside each frame.
        is_active: [B] bool; other rows stay where they are.
        window: more than the position of every active row, at most the capacity.
    """
    x = network.embed_frames(codes) + network.talker.embed_text(text_ids)
    hidden = network.talker.step(x, rows.positions, rows.cache, window)
    rows.positions += is_active
    rows.frames += is_active
    rows.hidden.copy_(torch.where(is_active[:, None], hidden, rows.hidden))
    rows.noise.copy_(uniforms(rows.seeds, rows.frames, network.codebooks))
    first = _choose_first(network, rows, rows.hidden, slice(None))
    rows.first.copy_(torch.where(is_active, first, rows.first))
    rows.seen.scatter_(1, rows.first[:, None], True)


def _choose_first(network: Network, rows: Rows, hidden: Tensor, which: slice) -> Tensor:
    is_early = (rows.frames[which] < rows.min_frames[which])[:, None]
    banned = network.talker.is_control | (network.talker.is_end & is_early)
    logits = network.talker.head(hidden)
    scores = first_scores(logits, rows.seen[which], rows.penalty[which], banned)
    return rows.talker_choice.choose(scores, rows.noise[which, 0], which)


@dataclass(slots=True)
class _Sequence:
    """One row's text still to be fed, and how far it is: numbers of the host."""

    position: int
    frames_left: int
    text: deque[int]
    is_open: bool
    needs_all_text: bool
    frames: int = 0

    @property
    def is_starved(self) -> bool:
        return self.is_open and not self.text

    @property
    def min_frames(self) -> int:
        """The least that it makes: as many as take all of its text, where it must have that."""
        if not self.needs_all_text:
            return MIN_FRAMES
        return _ENDLESS if self.is_open else max(MIN_FRAMES, self.frames + len(self.text))


@dataclass(frozen=True, slots=True)
class Step:
    """What one step made.

    Attributes:
        codes: [B, K] int64, of every row of the batch.
        made: rows whose frame in `codes` is theirs.
        ended: rows that make no more frames; they are free.
    """

    codes: Tensor
    made: tuple[int, ...]
    ended: tuple[int, ...]


class Batch:
    """Rows of one batch and the host's view of them.

    Args:
        network: the weights.
        rows: how many texts at once.
        capacity: positions of a row: its prompt and its frames.
    """

    def __init__(self, network: Network, rows: int, capacity: int) -> None:
        self._network = network
        self._capacity = capacity
        self._rows = empty_rows(network, rows, capacity)
        self._sequences: dict[int, _Sequence] = {}
        self._pad = network.config.tts_pad_token_id
        self._end = network.config.talker_config.codec_eos_token_id

    @property
    def free(self) -> list[int]:
        """Rows that can be joined."""
        return [row for row in range(len(self._rows.first)) if row not in self._sequences]

    @torch.inference_mode()
    def join(
        self,
        row: int,
        prompt: Prompt,
        sampling: SamplingParams,
        max_frames: int,
        *,
        is_open: bool = False,
        needs_all_text: bool = False,
    ) -> None:
        """Start to speak `prompt` in a free row.

        Args:
            row: a free one.
            prompt: fits, with one frame, into the row's capacity.
            sampling: how.
            max_frames: the row ends after so many, or where its capacity ends.
            is_open: `feed` brings the rest of the text.
            needs_all_text: the row does not end before it has been fed all of its text, whatever
                the model samples. The official package has no such rule.
        """
        assert row not in self._sequences, row
        room = self._capacity - len(prompt)
        start(self._network, self._rows, row, prompt, sampling)
        text = deque(prompt.trailing_text_ids)
        sequence = _Sequence(len(prompt), min(max_frames, room), text, is_open, needs_all_text)
        self._sequences[row] = sequence
        self._rows.min_frames[row] = sequence.min_frames

    def feed(self, row: int, text_ids: Iterable[int], *, is_last: bool = False) -> None:
        """More text of an open row; with `is_last` its end is put behind it."""
        sequence = self._sequences[row]
        sequence.text.extend(text_ids)
        if is_last:
            sequence.text.append(self._network.config.tts_eos_token_id)
            sequence.is_open = False
            self._rows.min_frames[row] = sequence.min_frames

    def cancel(self, row: int) -> None:
        """Free `row`, if it is in use."""
        if self._sequences.pop(row, None):
            self._rows.positions[row] = 0

    @torch.inference_mode()
    def step(self, rows: Collection[int] | None = None) -> Step:
        """Make one frame of every row that has the text for it; of `rows` where they are given."""
        made = tuple(
            row
            for row, held in sorted(self._sequences.items())
            if not held.is_starved and (rows is None or row in rows)
        )
        codes = predict(self._network, self._rows)
        self._advance(codes, made)
        first = self._rows.first.tolist()
        ended = [
            row for row in made if first[row] == self._end or not self._sequences[row].frames_left
        ]
        for row in ended:
            self.cancel(row)
        return Step(codes, made, tuple(ended))

    def _advance(self, codes: Tensor, made: Sequence[int]) -> None:
        text = [self._pad] * len(codes)
        is_active = [False] * len(codes)
        reached = 0
        for row in made:
            sequence = self._sequences[row]
            text[row] = sequence.text.popleft() if sequence.text else self._pad
            is_active[row] = True
            reached = max(reached, sequence.position + 1)
            sequence.position += 1
            sequence.frames_left -= 1
            sequence.frames += 1
        device = codes.device
        advance(
            self._network,
            self._rows,
            codes,
            torch.tensor(text, device=device),
            torch.tensor(is_active, device=device),
            min(-(-reached // _WINDOW) * _WINDOW, self._capacity),
        )


def frame_cap(text_ids: int) -> int:
    """Most frames that a text of so many ids may take: a guard against a model that never ends.

    Speech has about three frames an id. Once the end is unlikely it stays so (in 0.2 to 0.7 % of
    cloned texts, also with the official package), so that a row must be stopped from outside.
    """
    return max(_LEAST_FRAME_CAP, _FRAMES_PER_TEXT_ID * text_ids)


@dataclass(frozen=True, slots=True)
class Request:
    """A prompt to be spoken to its end."""

    prompt: Prompt
    sampling: SamplingParams = field(default_factory=SamplingParams)
    max_frames: int = 2048


def generate_codes(
    network: Network, requests: Sequence[Request], rows: int, capacity: int = 4096
) -> list[Tensor]:
    """Speak every request, up to `rows` of them at once.

    Returns:
        For each request its frames, [F, K] int64 on the CPU.
    """
    batch = Batch(network, rows, capacity)
    waiting = deque(enumerate(requests))
    speaking: dict[int, int] = {}
    frames: list[list[Tensor]] = [[] for _ in requests]
    while waiting or speaking:
        for row in batch.free[: len(waiting)]:
            number, request = waiting.popleft()
            batch.join(row, request.prompt, request.sampling, request.max_frames)
            speaking[row] = number
        step = batch.step()
        codes = step.codes.cpu()
        for row in step.made:
            frames[speaking[row]].append(codes[row])
        for row in step.ended:
            del speaking[row]
    empty = torch.zeros(0, network.codebooks, dtype=torch.int64)
    return [torch.stack(made) if made else empty for made in frames]
