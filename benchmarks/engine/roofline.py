"""The least time that a card can take for a frame of many rows: bytes moved and products computed.

A part of a step takes at least as long as the slower of two things: moving what it reads and writes
through the card's memory once, and its multiplications at the card's full rate. Parts run one after
the other, and launches cost nothing; no implementation can be faster. Sizes come from a
checkpoint's configuration alone. This module uses no device and measures nothing.

Sources: a matrix product of m rows takes 2 m n k operations and reads n k weights; cards' figures
are the vendors' datasheets, dense (without sparsity).
"""

from collections.abc import Iterator
from dataclasses import dataclass

from voiceagent_tts.core import FRAME_SAMPLES
from voiceagent_tts.model.codec_layers import DILATIONS, KERNEL
from voiceagent_tts.model.config import CodecDecoderConfig, ModelConfig, TransformerConfig

STAGES = ("predictor", "talker", "codec", "host")
"""Stages of a step, in the order of reports; the host's has no least time."""
_CODEBOOK_KERNEL = 3
_MIXING_WIDENING = 4
"""Ratio of a ConvNeXt block's inner width to its outer one."""


@dataclass(frozen=True, slots=True)
class Card:
    """The highest rates of a GPU.

    Attributes:
        name: name of the model.
        bytes_per_s: rate between its memory and its processors.
        flop_per_s: rate of dense bfloat16 products.
    """

    name: str
    bytes_per_s: float
    flop_per_s: float


CARDS = (
    Card("H200", 4.8e12, 989e12),
    Card("H100 PCIe", 2.0e12, 756e12),
    Card("H100", 3.35e12, 989e12),
    Card("A100-SXM4-80GB", 2.039e12, 312e12),
    Card("A100 80GB PCIe", 1.935e12, 312e12),
    Card("A100", 1.555e12, 312e12),
    Card("L40S", 0.864e12, 362e12),
    Card("RTX 4090", 1.008e12, 165.2e12),
)
"""Known cards; the first whose name is part of the device's name applies."""


def known_card(device_name: str) -> Card | None:
    """Return the datasheet's figures of a device by its driver's name; None if it is unknown."""
    return next((card for card in CARDS if card.name in device_name), None)


@dataclass(frozen=True, slots=True)
class Work:
    """Bytes moved through the memory, and floating-point operations."""

    bytes: float = 0.0
    flop: float = 0.0

    def __add__(self, other: "Work") -> "Work":
        return Work(self.bytes + other.bytes, self.flop + other.flop)

    def __mul__(self, times: float) -> "Work":
        return Work(self.bytes * times, self.flop * times)

    def seconds(self, card: Card) -> float:
        """Return the least time for this work."""
        return max(self.bytes / card.bytes_per_s, self.flop / card.flop_per_s)


@dataclass(frozen=True, slots=True)
class StepTime:
    """Least seconds for one frame of all rows."""

    talker_s: float
    predictor_s: float
    codec_s: float

    @property
    def total_s(self) -> float:
        """Sum of all parts, which run one after the other."""
        return self.talker_s + self.predictor_s + self.codec_s


@dataclass(frozen=True, slots=True)
class Roofline:
    """The least work of a model's parts.

    Attributes:
        model: sizes of the checkpoint.
        codec: sizes of its codec.
        weight_bytes: bytes of one number of talker and code predictor.
        codec_bytes: bytes of one number of the codec.
    """

    model: ModelConfig
    codec: CodecDecoderConfig
    weight_bytes: int = 2
    codec_bytes: int = 2

    def talker(self, rows: int, positions: int, new: int = 1) -> Work:
        """Return the work of `rows` rows with `new` positions each, attending to `positions`."""
        config = self.model.talker_config
        head = config.hidden_size * config.vocab_size
        body = body_weights(config)
        seen = 2 * config.num_hidden_layers * config.num_key_value_heads * config.head_dim
        attended = 4 * config.num_hidden_layers * config.num_attention_heads * config.head_dim
        return Work(
            self.weight_bytes * (body + head + rows * positions * seen),
            rows * (2 * (body * new + head) + attended * new * positions),
        )

    def predictor(self, rows: int) -> Work:
        """Return the work of the code predictor for a frame: two positions, then one at a time."""
        config = self.model.talker_config.code_predictor_config
        body, books = body_weights(config), config.num_code_groups - 1
        heads = books * config.hidden_size * config.vocab_size
        has_projection = config.hidden_size != self.model.talker_config.hidden_size
        projection = config.hidden_size * self.model.talker_config.hidden_size * has_projection
        return Work(
            self.weight_bytes * (books * body + heads + projection),
            2.0 * rows * ((books + 1) * body + heads + projection),
        )

    def codec_window(self, rows: int, frames: int) -> Work:
        """Return the work of one codec call; values between its layers stay on the chip."""
        decoder = self.codec
        state = 2 * decoder.num_hidden_layers * decoder.num_key_value_heads * decoder.head_dim
        moved = codec_weights(decoder) + rows * (state * decoder.sliding_window)
        samples = rows * frames * FRAME_SAMPLES
        return Work(self.codec_bytes * (moved + samples), 2 * rows * frames * codec_macs(decoder))

    def step(self, card: Card, rows: int, positions: int, window_frames: int) -> StepTime:
        """Return the least time of a frame of `rows` rows, in codec windows of `window_frames`."""
        window_s = self.codec_window(rows, window_frames).seconds(card)
        return StepTime(
            self.talker(rows, positions).seconds(card),
            self.predictor(rows).seconds(card),
            window_s / window_frames,
        )


def body_weights(config: TransformerConfig) -> int:
    """Count the numbers in the matrices of all layers; norms are thousands of times fewer."""
    heads = config.num_attention_heads + config.num_key_value_heads
    attention = 2 * config.hidden_size * heads * config.head_dim
    mlp = 3 * config.hidden_size * config.intermediate_size
    return config.num_hidden_layers * (attention + mlp)


def codec_macs(config: CodecDecoderConfig) -> int:
    """Count the multiplications of the codec's decoder for one frame."""
    return sum(weights * positions for weights, positions in _codec_layers(config))


def codec_weights(config: CodecDecoderConfig) -> int:
    """Count the numbers in the matrices of the codec's decoder, without its codebooks."""
    return sum(weights for weights, _ in _codec_layers(config))


def _codec_layers(config: CodecDecoderConfig) -> Iterator[tuple[int, int]]:
    """Yield (weights, positions of a frame at which they are applied) of every layer."""
    width, hidden = config.latent_dim, config.hidden_size
    yield _CODEBOOK_KERNEL * config.codebook_dim * width, 1
    yield 2 * width * hidden, 1  # into the transformer, and out of it
    heads = config.num_attention_heads + config.num_key_value_heads
    mlp = 3 * hidden * config.intermediate_size
    yield config.num_hidden_layers * (2 * hidden * heads * config.head_dim + mlp), 1
    positions = 1
    for ratio in config.upsampling_ratios:
        yield ratio * width * width, positions
        positions *= ratio
        yield KERNEL * width + 2 * _MIXING_WIDENING * width * width, positions
    channels = config.decoder_dim
    yield KERNEL * width * channels, positions
    for rate in config.upsample_rates:
        yield 2 * rate * channels * (channels // 2), positions
        channels, positions = channels // 2, positions * rate
        yield len(DILATIONS) * (KERNEL + 1) * channels * channels, positions
    yield KERNEL * channels, positions
