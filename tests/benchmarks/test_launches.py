"""Counts of operations: a layer with fused kernels is four matrices and four other launches."""

import pytest

from benchmarks.engine.launches import count
from voiceagent_tts.checks.random_weights import PUBLISHED
from voiceagent_tts.model.layers import Kernels

PREDICTOR_LAYERS = 15 * 5
TALKER_LAYERS = 28


@pytest.mark.parametrize("kernels", ["plain", "fused"])
def test_a_layer_is_four_matrices_and_little_else(kernels: Kernels) -> None:
    """A fused layer has four matrix products, an attention, two norms and a gate."""
    for name, layers, passes in (("predict", PREDICTOR_LAYERS, 15), ("advance", TALKER_LAYERS, 1)):
        counts = count(PUBLISHED, kernels)[name]
        assert counts["linear"] >= 4 * layers
        if kernels == "fused":
            assert counts["_attend"] == counts["_gate"] == layers
            assert counts["_add_norm"] == 2 * layers + passes
            assert counts["silu"] <= 1  # for the text's projection
            assert counts["scaled_dot_product_attention"] == counts["rms_norm"] == 0
        else:
            assert counts["scaled_dot_product_attention"] == layers


def test_a_frame_has_less_than_half_of_the_operations() -> None:
    """A whole frame, with sampling and embedding, has less than half of the operations."""
    plain, fused = (
        sum(counts.total() for counts in count(PUBLISHED, kernels).values())
        for kernels in ("plain", "fused")
    )
    assert fused < plain / 2
