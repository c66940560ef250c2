"""The forced aligner on a tiny network with random weights: everything but its accuracy."""

import json
import shutil
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn.functional import one_hot

from testbed.tiny_aligner import CONFIG, write_tiny_aligner
from voiceagent_tts.audio.pcm import pcm_to_float
from voiceagent_tts.audio.resample import Resampler
from voiceagent_tts.core import SAMPLE_RATE_HZ, WordTimestamp, ms_to_samples
from voiceagent_tts.errors import CheckpointError, ErrorCode, InvalidRequestError
from voiceagent_tts.plugins.forced.aligner import ForcedAligner
from voiceagent_tts.plugins.forced.load import load_aligner
from voiceagent_tts.plugins.forced.prompt import LANGUAGES, Clip, aligner_text, split_units
from voiceagent_tts.text.morphemes import japanese_tokenizer
from voiceagent_tts.text.words import split_words

if TYPE_CHECKING:
    from transformers import Qwen3ASRProcessor

STEP_SAMPLES = ms_to_samples(80)
SHORTEST_SAMPLES = ms_to_samples(40)
ROOM_SAMPLES = ms_to_samples(200)
ENGLISH = "Well, I've booked the **well-known** place (v2.1) for $45.99 🙂 -- see you!"
TEXTS = {
    "en-us": ENGLISH,
    "de": "Schöne Grüße: um 8 Uhr, naïve Größe e\u0301!",
    "zh": "你好，世界。今天用iPhone 15打车。",
    "ko": "안녕하세요, 오늘 날씨가 좋네요.",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a tiny aligner."""
    return write_tiny_aligner(tmp_path_factory.mktemp("aligner") / "tiny")


@pytest.fixture(scope="module")
def aligner(folder: Path) -> ForcedAligner:
    """The tiny aligner, loaded in float32."""
    return load_aligner(folder, "cpu")


@pytest.fixture(scope="module")
def processor(folder: Path) -> "Qwen3ASRProcessor":
    """The processor with which transformers prepares inputs."""
    # Imported here and below: collection would take seconds longer, in every worker.
    from transformers import Qwen3ASRProcessor

    return Qwen3ASRProcessor.from_pretrained(folder)


def noise(seconds: float, seed: int = 0) -> bytes:
    """White noise: PCM16 at 24 kHz."""
    samples = np.random.default_rng(seed).normal(0, 3000, round(seconds * SAMPLE_RATE_HZ))
    return samples.astype("<i2").tobytes()


def clip_of(text: str, seconds: float, language: str = "en", seed: int = 0) -> Clip:
    """The words of a text, with noise as audio."""
    return Clip(tuple(split_words(text)), noise(seconds, seed), language)


def resampled_to_16k(pcm: bytes) -> np.ndarray:
    """The audio that reaches the network."""
    resampler = Resampler(SAMPLE_RATE_HZ, 16_000)
    samples = np.frombuffer(pcm, "<i2")
    resampled = np.concatenate((resampler.push(samples), resampler.finish()))
    return pcm_to_float(resampled.tobytes())


class Recording:
    """Inputs and timestamp logits of each forward pass while aligning."""

    def __init__(self, aligner: ForcedAligner, clips: Sequence[Clip]) -> None:
        self.inputs: list[dict[str, Tensor]] = []
        self.logits: list[Tensor] = []
        network = aligner.network
        handles = (
            network.model.register_forward_pre_hook(self._enter, with_kwargs=True),
            network.score.register_forward_hook(lambda *call: self.logits.append(call[-1])),
        )
        self.times = aligner.align(clips)
        for handle in handles:
            handle.remove()

    def _enter(self, module: Any, positional: Any, inputs: dict[str, Tensor]) -> None:
        self.inputs.append(inputs)


@pytest.mark.parametrize("language", TEXTS)
def test_inputs_equal_those_of_transformers(
    aligner: ForcedAligner, processor: "Qwen3ASRProcessor", language: str
) -> None:
    """Prompt ids, features and their mask are those of `prepare_forced_aligner_inputs`."""
    clip = clip_of(TEXTS[language], 2.37, language)
    expected, words = processor.prepare_forced_aligner_inputs(
        resampled_to_16k(clip.pcm), TEXTS[language].replace("e\u0301", "é"), sampling_rate=16_000
    )
    assert words == [[aligner_text(word) for word in clip.words]]
    (given,) = Recording(aligner, [clip]).inputs
    assert torch.equal(given["input_ids"], expected["input_ids"])
    assert torch.equal(given["input_features"], expected["input_features"])
    assert torch.equal(given["input_features_mask"], expected["input_features_mask"].long())


def test_a_prompt_is_the_audio_and_the_words_alone(
    aligner: ForcedAligner, processor: "Qwen3ASRProcessor"
) -> None:
    """Nothing is before the audio, and two timestamp tokens follow each word."""
    (given,) = Recording(aligner, [clip_of("Don't “stop” <timestamp>, <|audio_pad|>!", 1.2)]).inputs
    assert processor.tokenizer.decode(given["input_ids"][0]) == (
        "<|audio_start|>" + 16 * "<|audio_pad|>" + "<|audio_end|>"
        "Don't<timestamp><timestamp>stop<timestamp><timestamp>"
        "timestamp<timestamp><timestamp>audiopad<timestamp><timestamp>"
    )


def test_logits_equal_those_of_transformers(
    aligner: ForcedAligner, processor: "Qwen3ASRProcessor"
) -> None:
    """One pass over several clips has the timestamp logits of transformers' own pass."""
    clips = [clip_of(ENGLISH, seconds, seed=seed) for seed, seconds in enumerate((1.0, 3.4))]
    inputs, _ = processor.prepare_forced_aligner_inputs(
        [resampled_to_16k(clip.pcm) for clip in clips], [ENGLISH] * 2, sampling_rate=16_000
    )
    with torch.inference_mode():
        everywhere = aligner.network(**inputs).logits
    expected = everywhere[inputs["input_ids"] == CONFIG["timestamp_token_id"]]
    (found,) = Recording(aligner, clips).logits
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-3)


def test_later_words_change_no_earlier_times(aligner: ForcedAligner) -> None:
    """The logits of a word depend on the audio and the words up to it, even in a batch."""
    whole = clip_of(ENGLISH, 2.5)
    (logits,) = Recording(aligner, [whole]).logits
    for count in (1, 4, len(whole.words) - 1):
        prefix = Clip(whole.words[:count], whole.pcm, "en")
        (found,) = Recording(aligner, [prefix, clip_of(ENGLISH * 3, 2.5, seed=1)]).logits
        torch.testing.assert_close(found[: 2 * count], logits[: 2 * count], atol=1e-5, rtol=1e-4)


def test_clips_are_independent(aligner: ForcedAligner) -> None:
    """Clips of different lengths and languages have the times that each has alone."""
    texts = (*TEXTS.items(), ("en", ""), ("it", "Ciao"), ("fr", "l'été"))
    lengths_s = (6.01, 0.1, 2.0, 9.99, 1.0, 0.0, 0.7)
    clips = [
        clip_of(text, seconds, language, seed)
        for seed, ((language, text), seconds) in enumerate(zip(texts, lengths_s, strict=True))
    ]
    recording = Recording(aligner, clips)
    assert len(recording.inputs) == 1
    assert recording.times == [aligner.align([clip])[0] for clip in clips]


def test_a_pass_is_limited(aligner: ForcedAligner) -> None:
    """Clips of similar length share passes, and no pass exceeds its size limit."""
    clips = [clip_of("one two", 50 if seed % 2 else 1, seed=seed) for seed in range(14)]
    passes = [tuple(inputs["input_features"].shape) for inputs in Recording(aligner, clips).inputs]
    assert sum(rows for rows, *_ in passes) == len(clips)
    assert all(rows * frames <= 32_000 for rows, _, frames in passes)
    assert len(passes) == 3


def answers(aligner: ForcedAligner, classes: list[int]) -> Callable[[], None]:
    """Make the network answer these classes; call the result to stop it."""

    def answer(module: Any, inputs: Any, logits: Tensor) -> Tensor:
        return one_hot(torch.tensor(classes)).to(logits.dtype)

    return aligner.network.score.register_forward_hook(answer).remove


@pytest.mark.parametrize(
    ("classes", "expected"),
    [
        ([0, 5, 6, 9, 12, 20], [(0, 5), (6, 9), (12, 20)]),
        ([0, 5, 5, 5, 5, 9], [(0, 4.75), (4.75, 5.25), (5.25, 9)]),
        ([2, 5, 70, 6, 8, 9], [(2, 5), (5, 6), (8, 9)]),
        ([79] * 6, [(23.5, 24), (24, 24.5), (24.5, 25)]),
    ],
    ids=["in order", "an empty word", "out of order", "behind the end"],
)
def test_times_are_steps_of_80_ms(
    aligner: ForcedAligner, classes: list[int], expected: list[tuple[float, float]]
) -> None:
    """Classes become samples, repaired, inside the audio (25 steps), with no empty word."""
    clip = clip_of("one two three", 2.0)
    stop = answers(aligner, classes)
    (times,) = aligner.align([clip])
    stop()
    assert times == tuple(
        WordTimestamp(word, round(start * STEP_SAMPLES), round(end * STEP_SAMPLES), confidence=0.99)
        for word, (start, end) in zip(clip.words, expected, strict=True)
    )


@pytest.mark.parametrize("seconds", [0, 1 / SAMPLE_RATE_HZ, 0.499, 11.9])
def test_every_word_is_once_inside_the_audio(aligner: ForcedAligner, seconds: float) -> None:
    """Random weights give valid times for audio of any length."""
    for text in TEXTS.values():
        clip = clip_of(text, seconds)
        (times,) = aligner.align([clip])
        samples = len(clip.pcm) // 2
        gap = min(SHORTEST_SAMPLES, samples // len(clip.words), ROOM_SAMPLES // len(clip.words))
        assert tuple(time.word for time in times) == clip.words
        starts = [time.start_sample for time in times]
        assert starts[0] >= 0
        assert all(after - before >= gap for before, after in pairwise([*starts, samples]))
        for time, following in zip(times, [*starts[1:], samples], strict=True):
            assert time.is_exact and time.end_sample is not None
            assert time.start_sample + gap <= time.end_sample <= following
    assert aligner.align([Clip((), noise(seconds), "en")]) == [()]
    assert aligner.align([]) == []


def test_languages_are_the_published_ones(aligner: ForcedAligner) -> None:
    """The eleven of transformers are accepted, with or without a region; others are refused."""
    from transformers.models.qwen3_asr.processing_qwen3_asr import (
        FORCED_ALIGNER_LANGUAGES,
        LANGUAGE_CODE_TO_NAME,
    )

    names = {LANGUAGE_CODE_TO_NAME[code] for code in LANGUAGES}
    assert names == FORCED_ALIGNER_LANGUAGES
    clip = clip_of("uno dos", 1.0, "es-419")
    assert aligner.align([clip]) == aligner.align([Clip(clip.words, clip.pcm, "es")])
    with pytest.raises(InvalidRequestError, match="got 'nl'") as caught:
        aligner.align([clip, clip_of("een twee", 1.0, "nl")])
    assert caught.value.code == ErrorCode.INVALID_LANGUAGE


def test_japanese_is_aligned_by_morphemes(aligner: ForcedAligner) -> None:
    """The characters of a morpheme share its time evenly."""
    words = split_words("東京は、いい天気です！")
    units = split_units(words, "ja")
    assert ["".join(word.text for word in unit) for unit in units] == [
        "東京", "は、", "いい", "天気", "です！",
    ]  # fmt: skip
    stop = answers(aligner, [0, 4, 4, 6, 6, 8, 8, 12, 12, 16])
    (times,) = aligner.align([Clip(tuple(words), noise(2), "ja")])
    stop()
    assert [time.start_sample / STEP_SAMPLES for time in times] == [0, 2, 4, 6, 7, 8, 10, 12, 14]
    assert tuple(time.word for time in times) == tuple(words)


def test_japanese_without_janome_is_aligned_by_characters(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Without janome every character is a unit, and one warning says what to install."""
    monkeypatch.setitem(__import__("sys").modules, "janome.tokenizer", None)
    japanese_tokenizer.cache_clear()
    words = split_words("東京です")
    assert split_units(words, "ja") == [(word,) for word in words]
    split_units(words, "ja")
    assert [record.message.count("voiceagent-tts[japanese]") for record in caplog.records] == [1]
    japanese_tokenizer.cache_clear()


Break = Callable[[Path], Any]


def edit_config(change: dict[str, Any]) -> Break:
    """Change keys of config.json."""

    def edit(folder: Path) -> None:
        path = folder / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | change))

    return edit


def edit_weights(change: Callable[[dict[str, Tensor]], Any]) -> Break:
    """Change the tensors."""

    def edit(folder: Path) -> None:
        path = folder / "model.safetensors"
        tensors = load_file(path)
        change(tensors)
        save_file(tensors, path, {"format": "pt"})

    return edit


def cut_short(folder: Path) -> None:
    """Truncate the weights, as an interrupted copy does."""
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1000])


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (lambda folder: (folder / "config.json").unlink(), "config.json: expected a model's"),
        (edit_config({"model_type": "qwen3_tts"}), "model_type: expected qwen3_asr, got qwen3_tts"),
        (edit_config({"timestamp_token_id": 1061}), "timestamp_token_id: is 1061, but .* is 1062"),
        (
            edit_config({"num_labels": 90}),
            r"score.weight: shape is \[80, 64\], expected \[90, 64\]",
        ),
        (cut_short, "expected the weights of Qwen/"),
        (edit_weights(lambda tensors: tensors.pop("score.weight")), "score.weight: is not in"),
        (lambda folder: (folder / "processor_config.json").unlink(), "expected the tokenizer and"),
    ],
)
def test_a_wrong_folder_is_refused(
    folder: Path, tmp_path: Path, damage: Break, sentence: str
) -> None:
    """The error names the folder or file, and the key if there is one."""
    broken = Path(shutil.copytree(folder, tmp_path / "broken"))
    damage(broken)
    with pytest.raises(CheckpointError, match=f"{broken}.*{sentence}"):
        load_aligner(broken, "cpu")
