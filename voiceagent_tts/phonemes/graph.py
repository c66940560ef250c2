"""Cuts a part out of an ONNX graph, from some of its tensors to others, and runs it.

A graph that is run in parts gives its first result sooner than one that is run as a whole. The file
is parsed as nested protocol buffers, so the package `onnx` is not needed.

Source: `onnx.proto3` of ONNX (field numbers), and the encoding of protocol buffers.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from voiceagent_tts.errors import CheckpointError

CPU, CUDA = "CPUExecutionProvider", "CUDAExecutionProvider"
Provider = str | tuple[str, dict[str, int]]
"""Execution provider of ONNX Runtime: its name, or its name and options."""

_GRAPH = 7  # field of ModelProto
_NODE, _INITIALIZER, _INPUT, _OUTPUT, _VALUE_INFO = 1, 5, 11, 12, 13  # fields of GraphProto
_NODE_INPUT, _NODE_OUTPUT = 1, 2
_TENSOR_NAME, _VALUE_NAME, _VALUE_TYPE = 8, 1, 2
_BYTES = 2  # wire type of everything with a length
_FLOAT_TENSOR = b"\x0a\x02\x08\x01"  # TypeProto: a tensor of float32, of any shape


def cut(model: bytes, inputs: Sequence[str], outputs: Sequence[str]) -> bytes:
    """Return a model that computes `outputs` from `inputs`, which may be float32 tensors inside it.

    Raises:
        ValueError: the graph has no such tensor, or is damaged.
    """
    try:
        part = _cut(_graph(model), inputs, outputs)
    except IndexError:
        raise ValueError("expected an ONNX file, got a damaged one") from None
    rest = b"".join(raw for field, _, raw in _fields(model) if field != _GRAPH)
    return rest + _field(_GRAPH, part)


def input_and_output_names(model: bytes) -> tuple[list[str], list[str]]:
    """Return the names of a model's inputs and of its outputs; errors as for `cut`."""
    try:
        fields = list(_fields(_graph(model)))
    except IndexError:
        raise ValueError("expected an ONNX file, got a damaged one") from None
    inputs, outputs = (
        [_name(value, _VALUE_NAME) for field, value, _ in fields if field == wanted]
        for wanted in (_INPUT, _OUTPUT)
    )
    return inputs, outputs


def providers(device: str | None, available: Sequence[str]) -> list[Provider]:
    """Return what may run a graph on a device; by default on the first GPU or the CPU.

    Raises:
        CheckpointError: the device is a GPU, and ONNX Runtime has no provider for one.
    """
    if device == "cpu" or (device is None and CUDA not in available):
        return [CPU]
    if CUDA not in available:
        raise CheckpointError(
            f"device {device}: expected an ONNX Runtime with {CUDA}, got one with "
            f"{', '.join(available)}; install onnxruntime-gpu in place of onnxruntime"
        )
    gpu: Provider = (CUDA, {"device_id": int((device or "").partition(":")[2] or 0)})
    return [gpu] if device else [gpu, CPU]


def session(model: bytes, provider: Provider = CPU) -> Any:
    """Load a model into ONNX Runtime; each of the threads that run it uses one core.

    Raises:
        RuntimeError: the provider cannot be used, such as CUDA's without its libraries.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    loaded = onnxruntime.InferenceSession(model, options, providers=[provider])
    wanted, used = provider if isinstance(provider, str) else provider[0], loaded.get_providers()[0]
    if used != wanted:  # ONNX Runtime only logs that it uses another one
        raise RuntimeError(f"expected {wanted} to run the model, got {used}")
    return loaded


def _graph(model: bytes) -> bytes:
    (graph,) = (value for field, value, _ in _fields(model) if field == _GRAPH)
    return graph


def _cut(graph: bytes, inputs: Sequence[str], outputs: Sequence[str]) -> bytes:
    fields = list(_fields(graph))
    nodes = [value for field, value, _ in fields if field == _NODE]
    needed = _needed(nodes, inputs, outputs)
    known = {_name(value, _VALUE_NAME): raw for field, value, raw in fields if field == _INPUT}
    parts = [_field(_NODE, node) for node in nodes if needed & _names(node, _NODE_OUTPUT)]
    parts += (
        raw
        for field, value, raw in fields
        if field == _INITIALIZER and _name(value, _TENSOR_NAME) in needed
    )
    parts += (known.get(name) or _field(_INPUT, _value(name, _FLOAT_TENSOR)) for name in inputs)
    parts += (_field(_OUTPUT, _value(name)) for name in outputs)
    others = (_NODE, _INITIALIZER, _INPUT, _OUTPUT, _VALUE_INFO)
    return b"".join([*parts, *(raw for field, _, raw in fields if field not in others)])


def _needed(nodes: Sequence[bytes], inputs: Sequence[str], outputs: Sequence[str]) -> set[str]:
    """Names of all tensors from which `outputs` follow, back to `inputs` and the weights."""
    maker = {name: node for node in nodes for name in _names(node, _NODE_OUTPUT)}
    needed: set[str] = set()
    waiting = list(outputs)
    while waiting:
        name = waiting.pop()
        if name in needed or name in inputs:
            continue
        needed.add(name)
        if name in maker:
            waiting += _names(maker[name], _NODE_INPUT)
        elif name in outputs:
            raise ValueError(f"expected a graph with the tensor {name}, got one without it")
    return needed


def _names(message: bytes, field: int) -> set[str]:
    return {value.decode() for found, value, _ in _fields(message) if found == field}


def _name(message: bytes, field: int) -> str:
    return next(iter(_names(message, field)), "")


def _value(name: str, kind: bytes = b"") -> bytes:
    typed = _field(_VALUE_TYPE, kind) if kind else b""
    return _field(_VALUE_NAME, name.encode()) + typed


def _fields(message: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """Each field's number, its value if it has a length, and its whole encoding."""
    at = 0
    while at < len(message):
        start = at
        tag, at = _varint(message, at)
        wire, value = tag & 7, b""
        if wire == _BYTES:
            size, at = _varint(message, at)
            value = message[at : at + size]
            at += size
        elif wire == 0:
            _, at = _varint(message, at)
        else:
            at += 8 if wire == 1 else 4
        if at > len(message):
            raise IndexError(at)
        yield tag >> 3, value, message[start:at]


def _field(number: int, value: bytes) -> bytes:
    return _encoded(number << 3 | _BYTES) + _encoded(len(value)) + value


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value, at
        shift += 7


def _encoded(value: int) -> bytes:
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*parts, value])
