"""Puts clips into batches: the ids of every position, and the codes to be predicted.

A clip's input is the prompt that `serve` would build for its text, followed by its frames and the
id that ends speech. Knows no weights.

Source: `finetuning/dataset.py` of the official repository, whose layout is that of
`PromptBuilder.build` for a whole text without a language.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from voiceagent_tts.model.config import ModelConfig
from voiceagent_tts.model.prompt import NO_CODEC, Cloned, Prompt, PromptBuilder
from voiceagent_tts.model.tokenizer import Tokenizer
from voiceagent_tts.plugins.training.dataset import Example

Layout = Literal["whole", "streaming"]
"""Whether the prompt holds the whole text, as in the official recipe, or each frame adds a token of
it, as when text is spoken while it is being written."""

IGNORED = -100
"""Target at positions where nothing is predicted."""


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Clips of a batch, padded at the end to the longest.

    Attributes:
        text_ids: [B, T] int64.
        codec_ids: [B, T] int64, an id of the talker's codec embedding, `NO_CODEC` or `SPEAKER`.
        codes: [B, T, K] int64, the frame at each position; zeros elsewhere.
        is_frame: [B, T] bool, True at frames.
        is_used: [B, T] bool, False at padding.
        targets: [B, T] int64, codes of codebook 0 and the end of speech at their own positions,
            `IGNORED` elsewhere.
    """

    text_ids: Tensor
    codec_ids: Tensor
    codes: Tensor
    is_frame: Tensor
    is_used: Tensor
    targets: Tensor

    def to(self, device: torch.device) -> "Batch":
        """Return this batch on a device."""
        return Batch(*(getattr(self, name).to(device) for name in Batch.__slots__))


class BatchBuilder:
    """Builds batches for one Base checkpoint.

    Args:
        config: configuration of the checkpoint.
        tokenizer: tokenizer of the checkpoint.
        layout: place of the text.
    """

    def __init__(self, config: ModelConfig, tokenizer: Tokenizer, layout: Layout = "whole") -> None:
        self._config = config
        self._prompts = PromptBuilder(config, tokenizer)
        self._is_streaming = layout == "streaming"

    def positions(self, example: Example) -> int:
        """Return the number of positions of a clip."""
        return len(self._prompt(example)) + len(example.codes) + 1

    def build(self, examples: Sequence[Example]) -> Batch:
        """Build a batch."""
        prompts = [self._prompt(example) for example in examples]
        starts = [len(prompt) for prompt in prompts]
        ends = [start + len(e.codes) for start, e in zip(starts, examples, strict=True)]
        shape = (len(examples), max(ends) + 1)
        books = self._config.talker_config.num_code_groups
        text_ids = torch.zeros(shape, dtype=torch.int64)
        codec_ids = torch.full(shape, NO_CODEC)
        codes = torch.zeros((*shape, books), dtype=torch.int64)
        targets = torch.full(shape, IGNORED)
        for row, (example, prompt) in enumerate(zip(examples, prompts, strict=True)):
            start, end = starts[row], ends[row]
            text_ids[row, : end + 1] = torch.tensor(self._text_column(prompt, end + 1))
            codec_ids[row, :start] = torch.tensor(prompt.codec_ids)
            targets[row, start:end] = example.codes[:, 0]
            targets[row, end] = self._config.talker_config.codec_eos_token_id
            codec_ids[row, start : end + 1] = targets[row, start : end + 1]
            codes[row, start:end] = example.codes
        places = torch.arange(shape[1])
        first, last = torch.tensor(starts)[:, None], torch.tensor(ends)[:, None]
        is_frame = (places >= first) & (places < last)
        return Batch(text_ids, codec_ids, codes, is_frame, places <= last, targets)

    def _prompt(self, example: Example) -> Prompt:
        voice = Cloned(torch.zeros(0))  # only its place in the prompt matters here
        return self._prompts.build(example.text, voice, is_streaming=self._is_streaming)

    def _text_column(self, prompt: Prompt, length: int) -> list[int]:
        """Return the text id of each position; padding after the last one."""
        ids = [*prompt.text_ids, *prompt.trailing_text_ids][:length]
        return ids + [self._config.tts_pad_token_id] * (length - len(ids))
