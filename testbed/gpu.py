"""Where tests of tensors run: here, and on an NVIDIA GPU where there is one."""

import pytest
import torch

ON_GPU = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]
"""Marks of what a CPU cannot do."""
DEVICES = ["cpu", pytest.param("cuda", marks=ON_GPU)]
