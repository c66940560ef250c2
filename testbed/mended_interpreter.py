"""What Triton 3.6's interpreter does otherwise than a GPU or the NumPy of today, done right.

It rounds float32 to bfloat16 towards zero, where a GPU rounds to the nearest; and it makes the
bound of a loop of an array of one dimension, which NumPy 2.4 refuses.
"""

from typing import Any

import numpy as np
import torch
import triton.language as tl
from triton.runtime import interpreter


def mend() -> None:
    """Mend the interpreter of this process, before the first kernel runs."""
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
