"""List the devices of tensor tests: the CPU, and an NVIDIA GPU if present."""

import pytest
import torch

ON_GPU = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]
"""Marks of tests that need a GPU."""
DEVICES = ["cpu", pytest.param("cuda", marks=ON_GPU)]
