"""The forced aligner: sound and its words in, exact times out, several clips in one pass.

Qwen3-ForcedAligner-0.6B through transformers. Behind each word the network finds two places, and
names a time for each, in steps of 80 ms; what comes out of order is repaired, and no word stays
empty. Knows no processes, no deadlines and no other aligner. In this package torch is loaded here
and in `forced_load`, and nowhere else.

Source: arXiv 2601.21337, section 3 (Qwen3-ForcedAligner).
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from safetensors import SafetensorError
from torch import Tensor
from torch.nn.functional import pad
from torch.nn.utils.rnn import pad_sequence
from transformers import Qwen3ASRForTokenClassification, Qwen3ASRProcessor
from transformers.utils.logging import disable_progress_bar

from voiceagent_tts.aligner.forced.prompt import (
    LANGUAGES,
    Clip,
    PromptTokens,
    Unit,
    build_prompt,
    check_language,
    load_japanese,
    units_of,
    written,
)
from voiceagent_tts.aligner.forced.repair import Tail, apart, in_order
from voiceagent_tts.aligner.forced.windows import Window, WindowedClip
from voiceagent_tts.audio.pcm import pcm_to_float
from voiceagent_tts.audio.resample import Resampler
from voiceagent_tts.core import BYTES_PER_SAMPLE, SAMPLE_RATE_HZ, Word, WordTimestamp, ms_to_samples
from voiceagent_tts.errors import CheckpointError
from voiceagent_tts.hub import ALIGNER_ID, find_model
from voiceagent_tts.model.checkpoint import find_device

Precision = Literal["float32", "bfloat16", "float16"]

_SHORTEST_SAMPLES = ms_to_samples(40)
"""Half a step of the model's times: what a word gets whose start and end are one."""
_TAIL = Tail(length=ms_to_samples(80), room=ms_to_samples(200))
"""More than five words in the last step are words that are still to be spoken."""
_MAX_PASS_FRAMES = 32_000
"""Padded mel frames of one pass, 10 ms each: a longest window, or 64 clips of 5 s."""
_KIND = "qwen3_asr"
_AUDIO, _TIMESTAMP = "<|audio_pad|>", "<timestamp>"
_CONV_STRIDE = 8  # mel frames that the encoder's three convolutions make one of


@dataclass(frozen=True, slots=True)
class _Question:
    """One window of a clip, ready for the network.

    Attributes:
        clip: where the answer goes.
        window: what of the clip is asked.
        features: [128, frames], log-mel, padded to whole seconds.
        frames: how many of them are sound.
        ids: the prompt.
    """

    clip: WindowedClip
    window: Window
    features: Tensor
    frames: int
    ids: list[int]


@dataclass(frozen=True, slots=True)
class _Span:
    """Where the model hears a word, in samples of its clip."""

    word: Word
    start: int
    end: int


class ForcedAligner:
    """One network for all clips; not for several threads at a time.

    Args:
        network: in evaluation mode, on its device.
        processor: its feature extractor and its tokenizer.

    Attributes:
        languages: codes of the languages that it knows.
        network: as given.
    """

    languages = LANGUAGES

    def __init__(
        self, network: Qwen3ASRForTokenClassification, processor: Qwen3ASRProcessor
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
        self._second_frames = 2 * self._extractor.n_window
        # A stream of its own, of the lowest priority: it neither waits for an engine nor delays it.
        device = network.device
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None

    @classmethod
    def load(
        cls, model: str | Path, device: str | None = None, precision: Precision | None = None
    ) -> "ForcedAligner":
        """Load the network from its folder, without any network to the outside.

        Args:
            model: a folder in the layout of transformers, or the id of one that was downloaded.
            device: `cpu`, `cuda`, `cuda:1`; None for a GPU where there is one.
            precision: None for bfloat16 on a GPU and float32 elsewhere.

        Raises:
            CheckpointError: a file or a key is missing, or it is another model.
            InvalidRequestError: there is no such device.
        """
        folder = find_model(str(model))
        _check_kind(folder)
        place = find_device(device)
        precision = precision or ("float32" if place.type == "cpu" else "bfloat16")
        network = _load_network(folder, getattr(torch, precision), place)
        processor = _load_processor(folder, network)
        load_japanese()
        return cls(network, processor)

    def align(self, clips: Sequence[Clip]) -> list[tuple[WordTimestamp, ...]]:
        """The times of every word of every clip.

        Clips that are about as long share a pass, so that together they take little more time
        than one; what is said of a clip does not depend on the others. One of more than 300 s
        takes a pass for each window.

        Args:
            clips: as many as there are; none is changed or kept.

        Returns:
            For each clip its words, in order, each once: in samples from the clip's start, starts
            non-decreasing, ends at most the next start, all inside the sound, 40 ms long at least
            where there is room. Words that are not spoken in the sound crowd its last 200 ms; a
            clip without sound has all its words at 0.

        Raises:
            InvalidRequestError: a language that is none of `languages`.
            RuntimeError: the device failed; `torch.OutOfMemoryError` where its memory is full.
        """
        windowed = [
            WindowedClip(
                units_of(clip.words, check_language(clip.language)),
                len(clip.pcm) // BYTES_PER_SAMPLE,
            )
            for clip in clips
        ]
        while questions := list(self._questions(clips, windowed)):
            for batch in _passes(questions):
                for question, times in zip(batch, self._answer(batch), strict=True):
                    question.clip.take(question.window, times)
        return [_timestamps(clip) for clip in windowed]

    def _questions(
        self, clips: Sequence[Clip], windowed: Sequence[WindowedClip]
    ) -> Iterator[_Question]:
        """The next window of every clip that has one."""
        for clip, windows in zip(clips, windowed, strict=True):
            if window := windows.next_window():
                start, end = (
                    position * BYTES_PER_SAMPLE
                    for position in (window.start_sample, window.end_sample)
                )
                features, frames = self._hear(clip.pcm[start:end])
                ids = build_prompt(
                    window.units, self._audio_tokens(frames), self._tokens, self._encode
                )
                yield _Question(windows, window, features, frames, ids)

    def _hear(self, pcm: bytes) -> tuple[Tensor, int]:
        """Log-mel features of a window by itself, so that no other clip changes its padding.

        Returns:
            [128, frames] float32, padded to whole seconds; and how many frames are sound.
        """
        extractor = self._extractor
        resampler = Resampler(SAMPLE_RATE_HZ, extractor.sampling_rate)
        samples = np.frombuffer(pcm, "<i2")
        heard = np.concatenate((resampler.push(samples), resampler.finish()))
        found = extractor(
            pcm_to_float(heard.tobytes()),
            sampling_rate=extractor.sampling_rate,
            padding=True,
            return_attention_mask=True,
        )
        return found["input_features"][0], int(found["attention_mask"][0].sum())

    def _audio_tokens(self, frames: int) -> int:
        """How many places the encoder makes of mel frames, a second at a time."""
        seconds, rest = divmod(frames, self._second_frames)
        return seconds * -(-self._second_frames // _CONV_STRIDE) + -(-rest // _CONV_STRIDE)

    def _encode(self, text: str) -> list[int]:
        return self._tokenizer.encode(text, add_special_tokens=False)

    def _answer(self, batch: Sequence[_Question]) -> list[list[int]]:
        """One pass: for each window start and end of each of its units, in its samples."""
        with torch.inference_mode(), torch.cuda.stream(self._stream):
            classes = self._logits(batch).argmax(dim=-1).tolist()
        counts = [2 * len(question.window.units) for question in batch]
        borders = pairwise(accumulate(counts, initial=0))
        return [self._samples(classes[first:last]) for first, last in borders]

    def _logits(self, batch: Sequence[_Question]) -> Tensor:
        """[places, classes]: of all places for times of all prompts, in order.

        Prompts are padded on the right. Attention looks back only, so that what follows a prompt
        changes nothing in it and needs no mask.
        """
        device, dtype = self.network.device, self.network.dtype
        ids = pad_sequence([torch.tensor(question.ids) for question in batch], batch_first=True)
        features, is_sound = _stack(batch)
        found = self.network.model(
            input_ids=ids.to(device),
            input_features=features.to(device, dtype),
            input_features_mask=is_sound.to(device),
            use_cache=False,
        )
        is_place = (ids == self._tokens.timestamp).to(device)
        return self.network.score(found.last_hidden_state[is_place])

    def _samples(self, classes: Sequence[int]) -> list[int]:
        """Times of one window, in order, in its samples."""
        times_ms = in_order([int(value * self._step_ms) for value in classes])
        return [ms_to_samples(time_ms) for time_ms in times_ms]


def _stack(batch: Sequence[_Question]) -> tuple[Tensor, Tensor]:
    """Features [B, 128, frames], zeros behind the shorter ones; [B, frames] where sound is."""
    longest = max(question.features.shape[-1] for question in batch)
    features = torch.stack(
        [pad(question.features, (0, longest - question.features.shape[-1])) for question in batch]
    )
    frames = torch.tensor([question.frames for question in batch])
    return features, (torch.arange(longest) < frames[:, None]).long()


def _passes(questions: Sequence[_Question]) -> Iterator[list[_Question]]:
    """Questions that share a pass: about as long as each other, within the memory of a pass."""
    batch: list[_Question] = []
    for question in sorted(questions, key=lambda question: question.features.shape[-1]):
        if batch and (len(batch) + 1) * question.features.shape[-1] > _MAX_PASS_FRAMES:
            yield batch
            batch = []
        batch.append(question)
    yield batch


def _timestamps(clip: WindowedClip) -> tuple[WordTimestamp, ...]:
    """Words with their times: inside the sound, none empty, one after the other."""
    spans = list(chain.from_iterable(map(_share, clip.units, clip.times[::2], clip.times[1::2])))
    starts = apart(
        [min(span.start, clip.samples) for span in spans], _SHORTEST_SAMPLES, clip.samples, _TAIL
    )
    return tuple(
        WordTimestamp(
            span.word,
            start,
            min(max(span.end, start + _SHORTEST_SAMPLES), following),
            is_exact=True,
        )
        for span, start, following in zip(spans, starts, [*starts, clip.samples][1:], strict=True)
    )


def _share(unit: Unit, start: int, end: int) -> Iterator[_Span]:
    """The words of a unit, each with as much of its time as it has letters."""
    letters = list(accumulate((len(written(word)) for word in unit), initial=0))
    borders = [start + (end - start) * count // max(letters[-1], 1) for count in letters]
    for word, (first, last) in zip(unit, pairwise(borders), strict=True):
        yield _Span(word, first, last)


def _check_kind(folder: Path) -> None:
    """Refuse what is no aligner in the layout of transformers, before its weights are read."""
    path = folder / "config.json"
    try:
        config = json.loads(path.read_bytes())
        kind = config.get("model_type")
    except (OSError, ValueError, AttributeError) as error:
        raise CheckpointError(f"{path}: expected a model's configuration; {error}") from error
    if kind != _KIND:
        raise CheckpointError(f"{path}: model_type: expected {_KIND}, got {kind}")
    if "thinker_config" in config:
        raise CheckpointError(
            f"{path}: thinker_config: expected the layout of transformers, as of {ALIGNER_ID}"
        )


def _load_network(
    folder: Path, dtype: torch.dtype, device: torch.device
) -> Qwen3ASRForTokenClassification:
    disable_progress_bar()  # a worker has no one to show it to
    try:
        loaded: Any = Qwen3ASRForTokenClassification.from_pretrained(
            folder,
            dtype=dtype,
            local_files_only=True,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # refused below, with the name of the key
        )
    except (OSError, ValueError, SafetensorError) as error:
        raise CheckpointError(f"{folder}: expected the weights of {ALIGNER_ID}; {error}") from error
    network, found = loaded
    for key in sorted(found["missing_keys"]):
        raise CheckpointError(f"{folder}: {key}: is not in the safetensors files")
    for key, stored, expected in found["mismatched_keys"]:
        raise CheckpointError(
            f"{folder}: {key}: shape is {list(stored)}, expected {list(expected)}"
        )
    return network.to(device).eval()


def _load_processor(folder: Path, network: Qwen3ASRForTokenClassification) -> Qwen3ASRProcessor:
    try:
        processor = Qwen3ASRProcessor.from_pretrained(folder, local_files_only=True)
    except (OSError, ValueError, AttributeError) as error:
        raise CheckpointError(
            f"{folder}: expected the tokenizer and the feature extractor of {ALIGNER_ID}; {error}"
        ) from error
    for key, token in (("audio_token_id", _AUDIO), ("timestamp_token_id", _TIMESTAMP)):
        expected = getattr(network.config, key)
        found = processor.tokenizer.convert_tokens_to_ids(token)
        if found != expected:
            raise CheckpointError(
                f"{folder}: config.json: {key}: is {expected}, but {token} is {found} in the "
                "tokenizer's files"
            )
    return processor
