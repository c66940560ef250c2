"""What a frame launches at published sizes, counted on a device that is not the CPU."""

from collections.abc import Iterator

import pytest

from benchmarks.engine.launches import Launches, count_launches
from testbed.random_weights import PUBLISHED_CODEC
from testbed.triton_here import Run, separate_process

PREDICTOR_LAYERS = 15 * 5
TALKER_LAYERS = 28

pytestmark = pytest.mark.xdist_group("fake device")


@pytest.fixture(scope="module")
def run() -> Iterator[Run]:
    """Runs functions in a process that may register a device."""
    with separate_process() as run:
        yield run


def of(kind: str, counted: dict[str, Launches]) -> list[Launches]:
    """The launches of all passes of a kind."""
    return [launches for name, launches in counted.items() if name.startswith(kind)]


def test_fused_passes_launch_what_was_decided(run: Run) -> None:
    """Four products, an attention, two norms and a gate a layer, on the device alone."""
    counted = run(count_launches, "fused", 4)
    for name, layers, passes, most in (
        ("code_predictor 4", PREDICTOR_LAYERS, 15, 671), ("talker 4", TALKER_LAYERS, 1, 256),
    ):  # fmt: skip
        (counts,) = of(name, counted)
        assert counts.total() <= most
        assert counts["linear"] >= 4 * layers
        assert counts["_attend"] == counts["_gate"] == layers
        assert counts["_add_norm"] == 2 * layers + passes
        assert counts["scaled_dot_product_attention"] == counts["rms_norm"] == 0
    for counts in of("prefill", counted):
        assert counts.total() <= 296
        assert counts["_write_heads"] == counts["_attend_prompt"] == TALKER_LAYERS
        assert counts["scaled_dot_product_attention"] == counts["index_select"] == 0
    for counts in of("codec", counted):
        assert counts.total() <= 163
        assert counts["_attend_window"] == PUBLISHED_CODEC.num_hidden_layers
        assert counts["index_copy_"] == 2  # the inputs of all convolutions, and the positions
    # All products of a row are Triton's, but those of a frame's start, which has two positions.
    (predictor,), (talker,) = of("code_predictor 1 ", counted), of("talker 1 ", counted)
    assert predictor["_multiply_row"] == 4 * (PREDICTOR_LAYERS - PREDICTOR_LAYERS // 15) + 15
    assert talker["_multiply_row"] == 4 * TALKER_LAYERS + 1


@pytest.mark.thorough
@pytest.mark.costly
def test_plain_passes_run_on_the_device_alone(run: Run) -> None:
    """No pass or codec call touches the CPU or depends on data."""
    assert len(run(count_launches, "plain", 4)) >= 39
