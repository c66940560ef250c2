"""Patch two faults of Triton 3.6's interpreter.

The interpreter rounds float32 to bfloat16 towards zero, while a GPU rounds to nearest; and it
passes one-dimensional arrays as loop bounds, which NumPy 2.4 rejects.
"""

from typing import Any

import numpy as np
import torch
import triton.language as tl
from triton.runtime import interpreter


def mend() -> None:
    """Patch the interpreter of this process; call before the first kernel runs."""
    builder, patch = interpreter.InterpreterBuilder, interpreter._patch_lang_tensor
    cast = builder.cast_impl

    def round_to_nearest(self: Any, source: Any, goal: Any) -> Any:
        if (source.dtype.scalar, goal.scalar) != (tl.float32, tl.bfloat16):
            return cast(self, source, goal)
        rounded = torch.from_numpy(np.ascontiguousarray(source.data)).bfloat16()
        return interpreter.TensorHandle(rounded.view(torch.uint16).numpy(), tl.bfloat16)

    def patch_with_index(tensor: Any, scope: Any) -> None:
        patch(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    builder.cast_impl = round_to_nearest  # type: ignore[method-assign]
    interpreter._patch_lang_tensor = patch_with_index
