"""The codec beside the talker: any windows of any rows give the samples of one whole decode."""

import random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from testbed.engine_driving import CUSTOM_VOICE, load
from voiceagent_tts.core import FRAME_SAMPLES
from voiceagent_tts.engine.codec_stream import CodecStream, Sound, split_windows
from voiceagent_tts.engine.cuda_graph import Stream
from voiceagent_tts.engine.sizes import Sizes, exact_sizes, fixed_sizes, graph_sizes

ROWS, FRAMES = 3, 40
STREAM = Stream(torch.device("cpu"), is_captured=False)


@pytest.fixture(scope="module")
def codes() -> Tensor:
    """codes: [R + 1, F, K] of three rows and the scratch row."""
    _, codec = load(CUSTOM_VOICE)
    shape = (ROWS + 1, FRAMES, codec.codebooks)
    generator = torch.Generator().manual_seed(2)
    return torch.randint(codec.codebook_size, shape, generator=generator).to(torch.int16)


@pytest.fixture(params=[exact_sizes, graph_sizes, fixed_sizes])
def stream(codes: Tensor, request: pytest.FixtureRequest) -> CodecStream:
    return CodecStream(load(CUSTOM_VOICE)[1], codes, STREAM, request.param(ROWS, FRAMES).codec)


def whole(codes: Tensor, row: int, frames: int) -> Tensor:
    """Decode a row's first frames in one call: [S] int16."""
    samples = load(CUSTOM_VOICE)[1].decode(codes[row, :frames].long())
    return (samples * 32_767).round().to(torch.int16)


def difference(pcm: bytes, samples: Tensor) -> int:
    """Return the largest difference, of 32,767; random weights amplify rounding to a few."""
    heard = torch.frombuffer(bytearray(pcm), dtype=torch.int16)
    return int((heard.int() - samples.int()).abs().max())


def decode(stream: CodecStream, wanted: dict[int, int], made: int = FRAMES) -> tuple[Sound, ...]:
    stream.decode(wanted, dict.fromkeys(wanted, made), STREAM.mark())
    return stream.collect(is_waiting=False)


@torch.inference_mode()
@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(n, marks=pytest.mark.thorough) for n in (1, 2))]
)
def test_any_windows_are_the_whole_sound(stream: CodecStream, codes: Tensor, seed: int) -> None:
    rng = random.Random(seed)
    pcm = dict.fromkeys(range(ROWS), b"")
    for row in pcm:
        stream.start(row, None)
    for step in range(16):
        if step == 8:
            stream.start(1, None)
            pcm[1] = b""
        wanted = {row: rng.choice((1, 2, 3, 4, 8, 12, 17)) for row in pcm if rng.random() < 0.6}
        for sound in decode(stream, wanted):
            assert len(sound.pcm) == 2 * FRAME_SAMPLES * sound.frames
            pcm[sound.row] += sound.pcm
    for row, heard in pcm.items():
        assert heard
        assert difference(heard, whole(codes, row, len(heard) // 2 // FRAME_SAMPLES)) <= 8


@torch.inference_mode()
def test_a_dropped_row_is_not_heard(stream: CodecStream) -> None:
    for row in range(ROWS):
        stream.start(row, None)
    stream.decode({0: 2, 1: 2, 2: 2}, dict.fromkeys(range(ROWS), 2), STREAM.mark())
    stream.drop(1)
    stream.start(2, None)
    assert [sound.row for sound in stream.collect(is_waiting=True)] == [0]


def test_a_first_frame_waits_for_no_other_window() -> None:
    """Small windows are decoded first: their listeners have the shortest lead."""
    sizes = graph_sizes(8, 512).codec
    calls = split_windows({0: 12, 1: 1, 2: 13}, [0] * 3, sizes)
    assert [
        (frames, [(window.row, window.start) for window in windows]) for frames, windows in calls
    ] == [(1, [(1, 0), (2, 0)]), (12, [(0, 0), (2, 1)])]


@given(
    st.dictionaries(st.integers(0, 99), st.integers(0, 30), max_size=90),
    st.lists(st.integers(0, 50), min_size=100, max_size=100),
    st.sampled_from([exact_sizes(100, 512), graph_sizes(100, 512), fixed_sizes(100, 512)]),
)
def test_calls_are_each_frame_once(
    wanted: dict[int, int], decoded: list[int], sizes: Sizes
) -> None:
    taken: dict[int, list[int]] = {row: [] for row in wanted}
    for frames, windows in split_windows(wanted, decoded, sizes.codec):
        assert 0 < len(windows) <= sizes.codec[frames][-1]
        for window in windows:
            taken[window.row] += range(window.start, window.start + frames)
    expected = {row: [*range(decoded[row], decoded[row] + n)] for row, n in wanted.items()}
    assert taken == expected
