"""Check that a checkpoint computes correctly on this machine and speaks like published weights.

The first checks hold for any weights: files, shapes, ids, equal codes for equal seeds, equal audio
for any portions, equal speech by a GPU's captured graphs. The others test what training put into
the weights: speech ends with its text, is as loud as speech, and survives the codec. This module
prints nothing.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from voiceagent_tts.core import FRAME_S
from voiceagent_tts.engine.batch import Batch
from voiceagent_tts.engine.device_choice import replace_products
from voiceagent_tts.engine.generate import Request, generate_codes
from voiceagent_tts.engine.guards import frame_cap
from voiceagent_tts.engine.options import Precision
from voiceagent_tts.engine.runner import Runner
from voiceagent_tts.engine.sizes import fixed_sizes
from voiceagent_tts.errors import CheckpointError, ErrorCode, InvalidRequestError
from voiceagent_tts.model.checkpoint import Checkpoint, load_checkpoint
from voiceagent_tts.model.codec import Codec, load_codec
from voiceagent_tts.model.config import ModelConfig
from voiceagent_tts.model.prompt import Cloned, Designed, Preset, PromptBuilder, Voice
from voiceagent_tts.model.sampling import SamplingParams, SamplingSettings, sampling_params
from voiceagent_tts.plugins.recordings.clone import ReferenceEncoder, load_speaker_encoder
from voiceagent_tts.plugins.recordings.codec_encoder import CodecEncoder, load_codec_encoder
from voiceagent_tts.plugins.recordings.speaker_encoder import SpeakerEncoder

_TEXT = "Hello there. How are you today?"
_TOKENIZER_TEXT = "Hello, Jürgen! ¿Qué tal? 你好，世界。こんにちは 안녕하세요 42% naïve e\u0301 🙂"
_INSTRUCT = "A calm middle-aged voice"
_GREEDY_FRAMES = 16
_CAPACITY = 1024
_FFT_SAMPLES = 1024
_GREEDY = SamplingParams(SamplingSettings(is_sampled=False), SamplingSettings(is_sampled=False))
_SAME_SOUND = 1e-3
"""Maximum difference of samples. Float32 rounding, which depends on the portions, is far below."""
_SAME_PCM = 8
"""Maximum difference of 16-bit samples: captured products may sum in another order."""
_LOUDNESS_DBFS = (-45.0, -8.0)
_MIN_SNR_DB = 5.0
"""Minimum SNR of spectral magnitudes. A codec trained for perception does not keep the phase."""


@dataclass(frozen=True, slots=True)
class Check:
    """Result of one check."""

    claim: str
    expected: str
    found: str
    holds: bool


@dataclass(frozen=True, slots=True)
class Reference:
    """A recording to clone: [S] float32 at 24 kHz, and its transcript, if known."""

    samples: Tensor
    text: str


def verify(
    folder: Path,
    dtype: torch.dtype,
    device: torch.device | str,
    reference: Reference | None,
    precision: Precision = "float32",
) -> Iterator[Check]:
    """Check a model; yields each result as soon as it is available.

    Args:
        folder: folder of the model.
        dtype: precision of talker and code predictor.
        device: device of all parts.
        reference: recording that a Base model clones.
        precision: precision of the products on a CPU.

    Raises:
        InvalidRequestError: the model is a Base model and `reference` is None.
    """
    try:
        started = time.perf_counter()
        checkpoint = _load(folder, dtype, device, precision)
        codec = load_codec(folder, device=device)
        encoder = load_codec_encoder(folder, device)
        is_base = checkpoint.config.has_speaker_encoder
        speaker_encoder = load_speaker_encoder(folder, device) if is_base else None
    except CheckpointError as error:
        yield Check("files, keys, shapes", "load", error.message, holds=False)
        return
    took_s = time.perf_counter() - started
    yield Check("files, keys, shapes", "load", _describe(checkpoint, took_s), holds=True)
    voice = _choose_voice(checkpoint.config, speaker_encoder, encoder, reference)
    yield from _Verifier(checkpoint, codec, encoder, voice).run()


def _load(
    folder: Path, dtype: torch.dtype, device: torch.device | str, precision: Precision
) -> Checkpoint:
    checkpoint = load_checkpoint(folder, dtype, device, is_packed=False)
    if checkpoint.network.device.type == "cpu":
        replace_products(checkpoint.network, precision)
    return checkpoint


def _choose_voice(
    config: ModelConfig,
    speaker_encoder: SpeakerEncoder | None,
    codec_encoder: CodecEncoder,
    reference: Reference | None,
) -> Voice:
    if config.tts_model_type == "custom_voice":
        return Preset(next(iter(config.talker_config.spk_id)))
    if config.tts_model_type == "voice_design":
        return Designed()
    if reference is None:
        raise InvalidRequestError(
            "--reference: expected a recording of 3 to 30 s for a Base model, got none",
            code=ErrorCode.INVALID_PARAM,
        )
    assert speaker_encoder is not None
    encoder = ReferenceEncoder(speaker_encoder, codec_encoder)
    return encoder.clone(reference.samples, reference.text)


def _describe(checkpoint: Checkpoint, took_s: float) -> str:
    config, network = checkpoint.config, checkpoint.network
    return (
        f"{config.tts_model_type} {config.tts_model_size}, {network.codebooks} codebooks, "
        f"{config.talker_config.num_hidden_layers} layers, in {took_s:.1f} s"
    )


def compare_graphs(checkpoint: Checkpoint, codec: Codec, request: Request) -> Check:
    """Check that captured graphs, which a worker replays on a GPU, speak as single passes do."""
    claim, expected = "captured graphs", "codes and sound of passes that are not captured"
    try:
        graphed, plain = (_spoken(checkpoint, codec, request, has) for has in (True, False))
    except RuntimeError as error:  # of the driver; a worker would go on without graphs
        return Check(claim, expected, str(error).partition("\n")[0], holds=False)
    if graphed[0] != plain[0]:
        return Check(claim, expected, "different codes", holds=False)
    difference = int((graphed[1] - plain[1]).abs().max())
    found = f"equal codes; samples differ by {difference} of 32768"
    return Check(claim, expected, found, holds=difference <= _SAME_PCM)


def _spoken(
    checkpoint: Checkpoint, codec: Codec, request: Request, has_graphs: bool
) -> tuple[list[int], Tensor]:
    """Return the codes of codebook 0 and the samples that a runner of one row makes."""
    sizes = fixed_sizes(1, _CAPACITY)
    runner = Runner(checkpoint, codec, 1, _CAPACITY, sizes=sizes, has_graphs=has_graphs)
    runner.capture(lambda done, total: None)
    runner.start(0, request.prompt, request.sampling, request.max_frames, is_open=False)
    codes, pcm, is_speaking = list[int](), bytearray(), True
    while is_speaking or runner.has_sound_in_flight:
        result = runner.step([0] if is_speaking else [], {0: 1} if is_speaking else {})
        codes += [frame.code for frame in result.frames]
        pcm += b"".join(sound.pcm for sound in result.sounds)
        is_speaking = is_speaking and not any(frame.is_end for frame in result.frames)
    return codes, torch.frombuffer(pcm, dtype=torch.int16).int()


class _Verifier:
    """The checks of a model that has loaded."""

    def __init__(
        self, checkpoint: Checkpoint, codec: Codec, encoder: CodecEncoder, voice: Voice
    ) -> None:
        self._checkpoint = checkpoint
        self._network = checkpoint.network
        self._codec = codec
        self._encoder = encoder
        self._builder = PromptBuilder(checkpoint.config, checkpoint.tokenizer)
        self._voice = voice

    def run(self) -> Iterator[Check]:
        """Run every check, those that hold for any weights first."""
        yield self._tokenizer_is_reversible()
        yield self._greedy_is_the_same()
        yield self._seeds_decide()
        yield self._pieces_are_the_whole_text()
        if self._network.device.type == "cuda":
            request = self._request(_GREEDY, _GREEDY_FRAMES)
            yield compare_graphs(self._checkpoint, self._codec, request)
        codes = self._speak(seed=1)
        sound = self._codec.decode(codes).cpu()
        yield self._windows_are_the_whole_sound(codes, sound)
        yield _is_finite(sound)
        yield self._text_ends(codes)
        yield _is_as_loud_as_speech(sound)
        yield self._codec_gives_back(sound)

    def _request(
        self, sampling: SamplingParams, max_frames: int, voice: Voice | None = None
    ) -> Request:
        voice = voice or self._voice
        instruct = _INSTRUCT if isinstance(voice, Designed) else ""
        prompt = self._builder.build(_TEXT, voice, "english", instruct, is_streaming=True)
        return Request(prompt, sampling, max_frames)

    def _speak(self, seed: int) -> Tensor:
        sampling = sampling_params(self._checkpoint.generation, seed)
        codes = self._generate(self._request(sampling, self._cap()))[0]
        return codes.to(self._network.device)

    def _cap(self) -> int:
        return frame_cap(len(self._checkpoint.tokenizer.encode(_TEXT)))

    def _generate(self, *requests: Request) -> list[Tensor]:
        return generate_codes(self._network, requests, len(requests), _CAPACITY)

    def _tokenizer_is_reversible(self) -> Check:
        tokenizer = self._checkpoint.tokenizer
        text = tokenizer.normalize(_TOKENIZER_TEXT)
        ids = tokenizer.encode(text)
        is_same = tokenizer.decode(ids) == text
        found = f"{len(ids)} ids, {'equal' if is_same else 'different'} text"
        return Check("tokenizer round trip", "equal text", found, is_same)

    def _greedy_is_the_same(self) -> Check:
        request = self._request(_GREEDY, _GREEDY_FRAMES)
        first, second = self._generate(request)[0], self._generate(request)[0]
        return _compared("greedy decoding, twice", first, second)

    def _seeds_decide(self) -> Check:
        first, same, other = (
            self._generate(
                self._request(sampling_params(self._checkpoint.generation, seed), _GREEDY_FRAMES)
            )[0]
            for seed in (1, 1, 2)
        )
        is_same, is_other = torch.equal(first, same), not torch.equal(first, other)
        found = f"same seed: {_equality(is_same)}; another seed: {_equality(not is_other)}"
        expected = "same seed: equal codes; another seed: different codes"
        return Check("sampling seeds", expected, found, is_same and is_other)

    def _pieces_are_the_whole_text(self) -> Check:
        """Compare the codes of a text that arrives token by token with those of the whole text."""
        voice = self._voice
        if isinstance(voice, Cloned):  # a reference's frames would consume the whole text at once
            voice = Cloned(voice.speaker_embedding)
        request = self._request(_GREEDY, _GREEDY_FRAMES, voice)
        batch = Batch(self._network, 1, _CAPACITY)
        prompt = replace(request.prompt, trailing_text_ids=())
        batch.join(0, prompt, _GREEDY, _GREEDY_FRAMES, is_open=True)
        *text, _ = request.prompt.trailing_text_ids
        while not (step := batch.step()).ended:
            if not step.made:
                batch.feed(0, text[:1], is_last=len(text) <= 1)
                text = text[1:]
        return _compared("text token by token", batch.codes_of(0), self._generate(request)[0])

    def _windows_are_the_whole_sound(self, codes: Tensor, sound: Tensor) -> Check:
        decoder = self._codec.decoder
        state = decoder.new_state(1, max_frames=1)
        with torch.inference_mode():
            frames = [decoder.decode(frame[None, :, None], state)[0] for frame in codes]
        difference = float((torch.cat(frames).cpu() - sound).abs().max())
        expected = f"equal to one decode, within {_SAME_SOUND:g}"
        found = f"difference {difference:.1e}"
        return Check("audio frame by frame", expected, found, difference < _SAME_SOUND)

    def _text_ends(self, codes: Tensor) -> Check:
        cap = self._cap()
        is_ended = len(codes) < cap
        found = f"{len(codes) * FRAME_S:.1f} s" if is_ended else f"no end in {cap * FRAME_S:.1f} s"
        return Check("end of a short text", f"within {cap * FRAME_S:.1f} s", found, is_ended)

    def _codec_gives_back(self, sound: Tensor) -> Check:
        device = next(self._encoder.parameters()).device
        with torch.inference_mode():
            codes = self._encoder.encode(sound.to(device))
            again = self._codec.decode(codes).cpu()[: len(sound)]
        before, after = _spectrum(sound), _spectrum(again)
        snr_db = _decibels(before.square().sum(), (before - after).square().sum())
        expected = f"spectral SNR above {_MIN_SNR_DB:g} dB"
        return Check("codec round trip", expected, f"{snr_db:.1f} dB", snr_db > _MIN_SNR_DB)


def _compared(claim: str, first: Tensor, second: Tensor) -> Check:
    is_same = torch.equal(first, second)
    return Check(claim, "equal codes", f"{len(first)} frames, {_equality(is_same)}", is_same)


def _equality(is_same: bool) -> str:
    return "equal codes" if is_same else "different codes"


def _is_finite(sound: Tensor) -> Check:
    finite = sound.isfinite()
    bad = int((~finite).sum())
    return Check("samples", "all finite", f"{bad} of {len(sound)} not finite", not bad)


def _is_as_loud_as_speech(sound: Tensor) -> Check:
    low, high = _LOUDNESS_DBFS
    dbfs = _decibels(sound.square().mean(), torch.ones(()))
    expected = f"{low:g} to {high:g} dBFS"
    return Check("loudness", expected, f"{dbfs:.1f} dBFS", low <= dbfs <= high)


def _spectrum(sound: Tensor) -> Tensor:
    """Return magnitudes over time, [bins, T]."""
    window = torch.hann_window(_FFT_SAMPLES)
    return torch.stft(sound, _FFT_SAMPLES, window=window, return_complex=True).abs()


def _decibels(power: Tensor, of: Tensor) -> float:
    return float(10 * torch.log10(power.clamp(min=1e-20) / of.clamp(min=1e-20)))
