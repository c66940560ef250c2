"""Captured passes replay what they should, from their own memory alone.

Graphs are recorded on the CPU: a replay repeats the recorded operations on the storages of the
capture, and every intermediate is poisoned before and after it.
"""

import pytest

from testbed.engine_driving import CUSTOM_VOICE
from testbed.parity_reference import REFERENCE
from testbed.recorded_graphs import recorded_graphs
from testbed.runner_driving import (
    Listener,
    RowOutput,
    converse,
    difference,
    few_graph_sizes,
    make_graph_runner,
)
from testbed.triton_here import interpreting
from voiceagent_tts.engine.runner import Runner
from voiceagent_tts.engine.sizes import Shapes, Sizes, graph_sizes
from voiceagent_tts.model.checkpoint import load_checkpoint
from voiceagent_tts.model.codec import load_codec
from voiceagent_tts.model.layers import Kernels


@pytest.mark.parametrize(
    "sizes",
    [few_graph_sizes(1, 4), pytest.param(graph_sizes(2, 512), marks=pytest.mark.thorough)],
    ids=["few", "all"],
)
def test_replays_speak_as_plain_passes(sizes: Sizes) -> None:
    """Rows that start, pause, are cancelled and end have the codes and samples of plain passes."""
    with recorded_graphs() as totals:
        runner = make_graph_runner(sizes, has_graphs=True)
        # Each graph is replayed once before the first start.
        assert totals.replays == totals.graphs == runner.graph_count
        replayed = converse(runner, 0, steps=14, contexts=5)
        assert totals.graphs == runner.graph_count
        assert totals.replays > 2 * totals.graphs
    plain = converse(make_graph_runner(sizes, has_graphs=False), 0, steps=14, contexts=5)
    assert replayed.keys() == plain.keys()
    for number, spoken in plain.items():
        assert replayed[number].codes == spoken.codes
        assert len(replayed[number].pcm) == len(spoken.pcm)


def _spoken(kernels: Kernels) -> tuple[RowOutput, int]:
    """Speak one row in captured passes with these kernels; with the launches of Triton."""
    folder = REFERENCE / CUSTOM_VOICE
    codec = load_codec(folder, is_packed=False)
    if kernels == "fused":
        codec.decoder.fuse()
    parts = load_checkpoint(folder, kernels=kernels, is_packed=False), codec
    talker = graph_sizes(1, 512, has_windows=False).talker
    sizes = Sizes(Shapes((1,), talker.windows[-1:], (32,), (1,)), {1: (1,)})
    with recorded_graphs() as totals:
        runner = Runner(*parts, 1, 512, sizes=sizes, has_graphs=True)
        listener = Listener(runner)
        listener.start(0, "Hi.", max_frames=2)
        return listener.finish(0), totals.launches


@pytest.mark.thorough
@pytest.mark.costly
@pytest.mark.timeout(900)  # the interpreter computes for three minutes, and longer beside others
def test_captured_fused_kernels_speak_as_plain_ones() -> None:
    """Recorded launches of interpreted Triton kernels give the codes and sound of plain passes."""
    with interpreting() as run:
        fused, launches = run(_spoken, "fused")
    plain, no_launches = _spoken("plain")
    assert fused.codes == plain.codes
    assert len(fused.pcm) == len(plain.pcm)
    assert difference(fused, plain) <= 8
    assert launches > 100
    assert no_launches == 0
