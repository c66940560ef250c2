"""The form of a voice file, which holds a cloned voice: safetensors, whichever engine made it."""

import json
import struct
from typing import Any


def read_header(voice_file: bytes) -> tuple[dict[str, Any], int]:
    """Return the header of a voice file, and the offset in bytes at which its tensors begin.

    Args:
        voice_file: the file, or a beginning of it that holds the header.

    Raises:
        ValueError: there is no whole header.

    Source: the safetensors format, a JSON header after its length, and then the tensors.
    """
    try:
        (length,) = struct.unpack("<Q", voice_file[:8])
        header = json.loads(voice_file[8 : 8 + length])
    except (struct.error, RecursionError) as error:  # cut, or thousands of brackets
        raise ValueError("expected the header of a voice file") from error
    if not isinstance(header, dict):
        raise ValueError("expected a voice file's header to be an object")
    return header, 8 + length
