"""Patch three faults of Triton's interpreter (3.6 to 3.9).

The interpreter rounds float32 to bfloat16 towards zero, while a GPU rounds to nearest; it
multiplies matrices of bfloat16 as if their bits were integers; and it passes one-dimensional arrays
as loop bounds, which NumPy 2.4 rejects.
"""

from typing import Any

import numpy as np
import torch
import triton.language as tl
from triton.runtime import interpreter


def mend() -> None:
    """Patch the interpreter of this process; call before the first kernel runs."""
    builder, patch = interpreter.InterpreterBuilder, interpreter._patch_lang_tensor
    cast, dot = builder.cast_impl, builder.create_dot

    def round_to_nearest(self: Any, source: Any, goal: Any) -> Any:
        if (source.dtype.scalar, goal.scalar) != (tl.float32, tl.bfloat16):
            return cast(self, source, goal)
        rounded = torch.from_numpy(np.ascontiguousarray(source.data)).bfloat16()
        return interpreter.TensorHandle(rounded.view(torch.uint16).numpy(), tl.bfloat16)

    def patch_with_index(tensor: Any, scope: Any) -> None:
        patch(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    def multiply(self: Any, left: Any, right: Any, *rest: Any) -> Any:
        return dot(self, _widened(left), _widened(right), *rest)

    builder.cast_impl = round_to_nearest  # type: ignore[method-assign]
    builder.create_dot = multiply  # type: ignore[method-assign]
    interpreter._patch_lang_tensor = patch_with_index


def _widened(matrix: Any) -> Any:
    """Return a matrix of bfloat16 as float32, and others unchanged."""
    if matrix.dtype.scalar != tl.bfloat16:
        return matrix
    numbers = np.ascontiguousarray(matrix.data).view(np.uint16).astype(np.uint32) << 16
    return interpreter.TensorHandle(numbers.view(np.float32), tl.float32)
