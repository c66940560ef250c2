"""The two passes of a frame over rows of a network, without a runner around them.

For benchmarks that look at one pass alone: how many operations it launches, and which take long.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from voiceagent_tts.engine.cuda_graph import Compile
from voiceagent_tts.engine.generate import make_samplers
from voiceagent_tts.engine.passes import Passes, empty_rows
from voiceagent_tts.engine.row_table import record_type
from voiceagent_tts.engine.sizes import graph_sizes
from voiceagent_tts.model.kv_pool import PAGE_POSITIONS, KVPool, empty_pool, pages_for
from voiceagent_tts.model.network import Network
from voiceagent_tts.model.sampling import SamplingParams


@dataclass(frozen=True, slots=True)
class FramePasses:
    """The passes of one frame of all rows.

    Attributes:
        predict: runs the code predictor.
        advance: runs one step of the talker.
        pool: keys and values of the talker.
        fill: places every row at a position, with random noise, before the passes run.
    """

    predict: Callable[[], None]
    advance: Callable[[], None]
    pool: KVPool
    fill: Callable[[int], None]


def frame_passes(network: Network, rows: int, capacity: int, compile: Compile) -> FramePasses:
    """Make the passes of `rows` rows of `capacity` positions.

    Args:
        network: the weights.
        rows: number of rows, all of which take part.
        capacity: positions of a row.
        compile: made of each pass, when it runs for the first time.
    """
    kernels = network.kernels
    shapes = graph_sizes(rows, capacity, has_windows=kernels == "plain").talker
    row_pages = pages_for(shapes.positions)
    weights = network.talker.codec_embedding
    pool = empty_pool(network.config.talker_config, rows * row_pages, weights)
    state = empty_rows(network, rows, capacity, pool)
    layout = record_type(network.codebooks, row_pages)
    passes = Passes(
        network, state, layout, shapes, *make_samplers([SamplingParams()], kernels), compile
    )

    def fill(position: int) -> None:
        assert position < capacity, f"expected a position below {capacity}, got {position}"
        records = np.zeros(rows, layout)
        records["slot"] = np.arange(rows)
        records["position"], records["frame"] = position, 1
        records["length"] = records["penalty"] = records["may_end"] = 1
        for name in ("talker", "predictor"):
            records[name]["is_sampled"], records[name]["temperature"] = 1, 0.9
            records[name]["top_k"], records[name]["top_p"] = 50, 1.0
        records["noise"] = np.random.default_rng(0).random(records["noise"].shape)
        used = position // PAGE_POSITIONS + 1
        pages = 1 + np.arange(rows * row_pages).reshape(rows, row_pages)
        records["pages"][:, :used] = pages[:, :used]
        passes.send(records)

    return FramePasses(
        lambda: passes.code_predictor_step(rows),
        lambda: passes.talker_step(rows, shapes.windows[-1]),
        pool,
        fill,
    )
