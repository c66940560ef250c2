"""Work of every pass at published sizes, counted on a device that is not the CPU."""

import json
from collections.abc import Iterator

import pytest

from benchmarks.engine.pass_work import (
    CODECS,
    TABLE,
    Work,
    all_work,
    codec_work,
    pass_work,
    run_every_pass,
)
from testbed.random_weights import PUBLISHED_CODEC
from testbed.triton_here import Run, separate_process
from voiceagent_tts.model.layers import Kernels

PREDICTOR_LAYERS = 15 * 5
TALKER_LAYERS = 28
GROWTH = 1.05

pytestmark = pytest.mark.xdist_group("fake device")


@pytest.fixture(scope="module")
def run() -> Iterator[Run]:
    """Runs functions in a process that may register a device."""
    with separate_process() as run:
        yield run


@pytest.fixture(scope="module")
def fused(run: Run) -> dict[str, Work]:
    """Work of the fused passes of 64 rows."""
    return run(pass_work, "fused", 64)


@pytest.fixture(scope="module")
def codecs(run: Run) -> dict[str, Work]:
    """Work of a call of 64 rows of each codec."""
    return {kernels: run(codec_work, 64, 1, kernels) for kernels in CODECS}


def check_against_table(found: dict[str, dict[str, float]]) -> None:
    """Fail if a pass launches or moves over 5 % more than the table says, or over 5 % less."""
    table = json.loads(TABLE.read_text())
    hint = "run `python -m benchmarks.engine.launches --save` if this is wanted"
    for name, totals in found.items():
        for unit, number in totals.items():
            known = table[name][unit]
            assert number <= GROWTH * known, f"{name}: {number} {unit}, was {known}; {hint}"
            assert number >= known / GROWTH, f"{name}: {number} {unit}, was {known}; {hint}"


def test_no_pass_grows(fused: dict[str, Work], codecs: dict[str, Work]) -> None:
    """Fused passes and a codec call of 64 rows launch and move what the committed table says."""
    found = {name: work.totals for name, work in fused.items()}
    for codec, work in codecs.items():
        found[f"codec, {codec}, 64 rows of 1 frames"] = work.totals
    check_against_table(found)


@pytest.mark.thorough
def test_no_pass_of_any_kind_grows(run: Run) -> None:
    """All entries of the table are current, and there are no others."""
    found = run(all_work)
    assert found.keys() == json.loads(TABLE.read_text()).keys()
    check_against_table(found)


def test_a_fused_layer_is_four_matrices_and_four_kernels(fused: dict[str, Work]) -> None:
    """A fused layer has four matrix products, an attention, two norms and a gate."""
    for name, layers, passes in (
        ("code predictor", PREDICTOR_LAYERS, 15),
        ("talker", TALKER_LAYERS, 1),
    ):
        counts = fused[f"{name}, fused, 64 rows"].launches
        assert counts["linear"] >= 4 * layers
        assert counts["_attend"] == counts["_gate"] == layers
        assert counts["_add_norm"] == 2 * layers + passes
        assert counts["silu"] <= 1  # for the text's projection
        assert counts["scaled_dot_product_attention"] == counts["rms_norm"] == 0


def test_a_lone_row_has_products_of_its_own(run: Run) -> None:
    """All products of a row are Triton's, but those of a frame's start, which has two positions."""
    work = run(pass_work, "fused", 1)
    counts = work["code predictor, fused, 1 rows"].launches
    starts = PREDICTOR_LAYERS // 15
    heads = 15
    assert counts["_multiply_row"] == 4 * (PREDICTOR_LAYERS - starts) + heads
    assert work["talker, fused, 1 rows"].launches["_multiply_row"] == 4 * TALKER_LAYERS + 1


def test_a_fused_codec_call_has_a_launch_between_two_products(run: Run) -> None:
    """A fused call has at most 180 launches, stores the state in one, and moves a third."""
    plain, fused = (run(codec_work, 64, 1, kernels) for kernels in ("plain", "fused"))
    layers = PUBLISHED_CODEC.num_hidden_layers
    counts = fused.launches
    assert counts.total() <= 180
    assert counts["_attend_window"] == counts["_gate"] == layers
    assert counts["index_copy_"] == 2  # the inputs of all convolutions, and the positions
    assert counts["sin_"] == counts["scaled_dot_product_attention"] == counts["index_put_"] == 0
    assert fused.bytes.total() < 0.36 * plain.bytes.total()


def test_a_fused_layer_of_a_prompt_has_two_kernels_of_attention(fused: dict[str, Work]) -> None:
    """A prompt's attention is two launches a layer: no gathered pages, and no mask."""
    for name in ("prefill of 16 x 32, fused", "prefill of 2 x 256, fused"):
        counts = fused[name].launches
        assert counts["_write_heads"] == counts["_attend_prompt"] == TALKER_LAYERS
        assert counts["scaled_dot_product_attention"] == counts["index_select"] == 0
        assert counts["rms_norm"] == 0


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("kernels", "passes"), [pytest.param("plain", 39, marks=pytest.mark.costly), ("fused", 20)]
)
def test_every_pass_runs_on_the_device_alone(run: Run, kernels: Kernels, passes: int) -> None:
    """No pass or codec call at published sizes touches the CPU or depends on data."""
    assert run(run_every_pass, kernels, 4) >= passes
