"""8-bit weights for the talker and the code predictor: less memory, different codes.

Embeddings, norms and heads keep their precision; rounding a head would change codes directly. Knows
no rows. `benchmarks.parity` measures how much the codes differ.

Source: torchao, whose configurations replace the weight of a linear layer.
"""

import importlib
from typing import Literal

from torch import Tensor, nn

from voiceagent_tts.errors import ErrorCode, VoiceAgentError
from voiceagent_tts.model.layers import Linear
from voiceagent_tts.model.network import Network

Quantization = Literal["fp8", "int8"]


def quantize(network: Network, kind: Quantization) -> int:
    """Replace the weights of both transformers, in place.

    Args:
        network: network without packed weights.
        kind: `fp8` multiplies in 8 bits (GPUs from Ada and Hopper on); `int8` stores weights in
            8 bits and multiplies in the network's precision, on any device.

    Returns:
        Bytes of memory saved.

    Raises:
        VoiceAgentError: torchao is not installed, or does not support this device or precision.
    """
    try:
        torchao = importlib.import_module("torchao.quantization")
    except ImportError as error:
        raise VoiceAgentError(
            f"quantize {kind} needs torchao: install the extra `quantize`",
            code=ErrorCode.INVALID_PARAM,
        ) from error
    config = (
        torchao.Float8DynamicActivationFloat8WeightConfig(granularity=torchao.PerRow())
        if kind == "fp8"
        else torchao.Int8WeightOnlyConfig()
    )
    before = _bytes(network)
    try:
        for transformer in (network.talker.transformer, network.code_predictor.transformer):
            torchao.quantize_(transformer, config, filter_fn=_is_linear)
    except AssertionError as error:  # torchao's error for what it does not support
        raise VoiceAgentError(
            f"quantize {kind} cannot be used here: {error}", code=ErrorCode.INVALID_PARAM
        ) from error
    return before - _bytes(network)


def _is_linear(module: nn.Module, name: str) -> bool:
    return isinstance(module, Linear)


def _bytes(module: nn.Module) -> int:
    return sum(_tensor_bytes(parameter) for parameter in module.parameters())


def _tensor_bytes(tensor: Tensor) -> int:
    if not hasattr(tensor, "__tensor_flatten__"):
        return tensor.numel() * tensor.element_size()
    names, _ = tensor.__tensor_flatten__()  # pyright: ignore[reportAttributeAccessIssue]
    parts = (getattr(tensor, name) for name in names)
    return sum(_tensor_bytes(part) for part in parts if part is not None)
