"""The forced aligner: clips in, exact word times out, several clips per forward pass.

Qwen3-ForcedAligner-0.6B through transformers. The prompt has two timestamp tokens after each word,
and the network classifies each of them into a time, in steps of 80 ms. Times out of order are
repaired, and no word is left empty.

Source: arXiv 2601.21337, section 3 (Qwen3-ForcedAligner).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, pairwise
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad
from torch.nn.utils.rnn import pad_sequence

from voiceagent_tts.audio.pcm import pcm_to_float
from voiceagent_tts.audio.resample import Resampler
from voiceagent_tts.core import BYTES_PER_SAMPLE, SAMPLE_RATE_HZ, Word, WordTimestamp, ms_to_samples
from voiceagent_tts.plugins.forced.clip_times import Tail, make_monotonic, spread_starts
from voiceagent_tts.plugins.forced.prompt import (
    LONGEST_SAMPLES,
    Clip,
    PromptTokens,
    Unit,
    aligner_text,
    build_prompt,
    check_language,
    split_units,
)

if TYPE_CHECKING:
    from transformers import Qwen3ASRForTokenClassification, Qwen3ASRProcessor

_MIN_WORD_SAMPLES = ms_to_samples(40)
"""Half a step of the model's times: length of a word whose start and end are in one step."""
_CONFIDENCE = 0.99
"""Assumed: the published mean error is 32 ms, but words in long silences are known to go astray.
Source: arXiv 2601.21337, table 9; Qwen3-ASR issue 153."""
_TAIL = Tail(length=ms_to_samples(80), room=ms_to_samples(200))
"""More than five words in the last step are words that are not spoken yet."""
_PASS_FRAMES = 32_000
"""Maximum padded mel frames (10 ms each) of one pass: one longest clip, or 64 clips of 5 s."""
_CONV_STRIDE = 8  # mel frames per audio token, through the encoder's three convolutions


@dataclass(frozen=True, slots=True)
class _ClipInput:
    """The network's input for one clip.

    Attributes:
        times: number of times to find.
        features: [128, frames] float32, log-mel, padded to whole seconds.
        frames: number of frames that are audio, not padding.
        ids: token ids of the prompt.
    """

    number: int
    times: int
    features: Tensor
    frames: int
    ids: list[int]


class ForcedAligner:
    """Aligns clips with one network; used by one thread at a time."""

    def __init__(
        self, network: "Qwen3ASRForTokenClassification", processor: "Qwen3ASRProcessor"
    ) -> None:
        self.network = network
        self._extractor = processor.feature_extractor
        self._tokenizer = processor.tokenizer
        self._tokens = PromptTokens(
            processor.audio_bos_token_id,
            network.config.audio_token_id,
            processor.audio_eos_token_id,
            network.config.timestamp_token_id,
        )
        self._step_ms = processor.timestamp_segment_time
        self._frames_per_second = 2 * self._extractor.n_window

    def align(self, clips: Sequence[Clip]) -> list[tuple[WordTimestamp, ...]]:
        """Find the times of every word of every clip.

        Clips of similar length share a forward pass, so together they take little more time than
        one; the times of a clip do not depend on the others. A clip has at most 300 s.

        Returns:
            For each clip its words, in order, each once, in samples from the clip's start. Starts
            do not decrease, ends are at most the next start, all lie inside the audio, and each
            word has at least 40 ms where there is room. Words that are not spoken in the audio
            crowd its last 200 ms; the words of a clip without audio are at 0.

        Raises:
            InvalidRequestError: a language is none of `LANGUAGES`.
            RuntimeError: the device failed; `torch.OutOfMemoryError` if its memory is full.
        """
        units = [split_units(clip.words, check_language(clip.language)) for clip in clips]
        times = [[0] * (2 * len(of_clip)) for of_clip in units]
        inputs = [
            self._input(number, clip, of_clip)
            for number, (clip, of_clip) in enumerate(zip(clips, units, strict=True))
            if clip.pcm and of_clip
        ]
        for batch in _batches(inputs):
            for one, found in zip(batch, self._run(batch), strict=True):
                times[one.number] = found
        return [_timestamps(*of_clip) for of_clip in zip(clips, units, times, strict=True)]

    def _input(self, number: int, clip: Clip, units: Sequence[Unit]) -> _ClipInput:
        assert len(clip.pcm) <= LONGEST_SAMPLES * BYTES_PER_SAMPLE, len(clip.pcm)
        features, frames = self._extract_features(clip.pcm)
        ids = build_prompt(units, self._audio_tokens(frames), self._tokens, self._encode)
        return _ClipInput(number, 2 * len(units), features, frames, ids)

    def _extract_features(self, pcm: bytes) -> tuple[Tensor, int]:
        """Log-mel features of one clip, so that no other clip changes its padding.

        Returns:
            [128, frames] float32, padded to whole seconds, and the number of frames that are audio.
        """
        extractor = self._extractor
        resampler = Resampler(SAMPLE_RATE_HZ, extractor.sampling_rate)
        samples = np.frombuffer(pcm, "<i2")
        resampled = np.concatenate((resampler.push(samples), resampler.finish()))
        extracted = extractor(
            pcm_to_float(resampled.tobytes()),
            sampling_rate=extractor.sampling_rate,
            padding=True,
            return_attention_mask=True,
        )
        return extracted["input_features"][0], int(extracted["attention_mask"][0].sum())

    def _audio_tokens(self, frames: int) -> int:
        """Number of audio tokens for `frames` mel frames; the encoder handles each second alone."""
        seconds, rest = divmod(frames, self._frames_per_second)
        return seconds * -(-self._frames_per_second // _CONV_STRIDE) + -(-rest // _CONV_STRIDE)

    def _encode(self, text: str) -> list[int]:
        return self._tokenizer.encode(text, add_special_tokens=False)

    def _run(self, batch: Sequence[_ClipInput]) -> list[list[int]]:
        """One forward pass: for each clip, start and end of its units in samples of it."""
        with torch.inference_mode():
            classes = self._logits(batch).argmax(dim=-1).tolist()
        borders = pairwise(accumulate((one.times for one in batch), initial=0))
        return [self._samples(classes[first:last]) for first, last in borders]

    def _logits(self, batch: Sequence[_ClipInput]) -> Tensor:
        """[timestamp tokens, classes]: for all timestamp tokens of all prompts, in order.

        Prompts are padded on the right. Attention is causal, so the padding changes nothing before
        it and needs no mask.
        """
        device, dtype = self.network.device, self.network.dtype
        ids = pad_sequence([torch.tensor(one.ids) for one in batch], batch_first=True)
        features, is_audio = _stack(batch)
        output = self.network.model(
            input_ids=ids.to(device),
            input_features=features.to(device, dtype),
            input_features_mask=is_audio.to(device),
            use_cache=False,
        )
        is_timestamp = (ids == self._tokens.timestamp).to(device)
        return self.network.score(output.last_hidden_state[is_timestamp])

    def _samples(self, classes: Sequence[int]) -> list[int]:
        """Times of one clip, in order, in samples."""
        times_ms = make_monotonic([int(value * self._step_ms) for value in classes])
        return [ms_to_samples(time_ms) for time_ms in times_ms]


def _stack(batch: Sequence[_ClipInput]) -> tuple[Tensor, Tensor]:
    """Features [B, 128, frames], zero-padded, and an int64 mask [B, frames] of the audio."""
    longest = max(one.features.shape[-1] for one in batch)
    features = torch.stack(
        [pad(one.features, (0, longest - one.features.shape[-1])) for one in batch]
    )
    frames = torch.tensor([one.frames for one in batch])
    return features, (torch.arange(longest) < frames[:, None]).long()


def _batches(inputs: Sequence[_ClipInput]) -> Iterator[list[_ClipInput]]:
    """Inputs of similar length that share a pass of at most `_PASS_FRAMES` padded frames."""
    batch: list[_ClipInput] = []
    for one in sorted(inputs, key=lambda one: one.features.shape[-1]):
        if batch and (len(batch) + 1) * one.features.shape[-1] > _PASS_FRAMES:
            yield batch
            batch = []
        batch.append(one)
    if batch:
        yield batch


def _timestamps(
    clip: Clip, units: Sequence[Unit], times: Sequence[int]
) -> tuple[WordTimestamp, ...]:
    """Words with their times: inside the audio, none empty, without overlap."""
    samples = len(clip.pcm) // BYTES_PER_SAMPLE
    spans = list(chain.from_iterable(map(_divide, units, times[::2], times[1::2])))
    starts = spread_starts(
        [min(start, samples) for _, start, _ in spans], _MIN_WORD_SAMPLES, samples, _TAIL
    )
    return tuple(
        WordTimestamp(word, start, min(max(end, start + _MIN_WORD_SAMPLES), following), _CONFIDENCE)
        for (word, _, end), start, following in zip(
            spans, starts, [*starts, samples][1:], strict=True
        )
    )


def _divide(unit: Unit, start: int, end: int) -> Iterator[tuple[Word, int, int]]:
    """Divide the samples of a unit among its words, in proportion to their letters."""
    letters = list(accumulate((len(aligner_text(word)) for word in unit), initial=0))
    borders = [start + (end - start) * count // max(letters[-1], 1) for count in letters]
    for word, (first, last) in zip(unit, pairwise(borders), strict=True):
        yield word, first, last
