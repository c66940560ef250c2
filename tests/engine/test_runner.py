"""The runner of one model: frames and sound on request, and memory that may run out."""

import random
from collections.abc import Iterator

import pytest

from testbed.engine_driving import CUSTOM_VOICE, load
from testbed.runner_driving import TEXT, Listener, RowOutput, difference
from voiceagent_tts.core import FRAME_SAMPLES
from voiceagent_tts.engine.runner import Runner
from voiceagent_tts.engine.sizes import Sizes, exact_sizes, fixed_sizes, graph_sizes


def make_runner(rows: int = 4, capacity: int = 512, **options: object) -> Runner:
    checkpoint, codec = load(CUSTOM_VOICE)
    return Runner(checkpoint, codec, rows, capacity, **options)  # type: ignore[arg-type]


def sizes_of(name: str, rows: int = 4, capacity: int = 512) -> Sizes:
    kinds = {"exact": exact_sizes, "few": graph_sizes, "one": fixed_sizes}
    return kinds[name](rows, capacity)


def alone(text: str = TEXT, seed: int = 7, max_frames: int = 20, **options: object) -> RowOutput:
    listener = Listener(make_runner(**options))  # type: ignore[arg-type]
    listener.start(0, text, seed, max_frames)
    return listener.finish(0)


def test_frames_wait_until_they_are_asked_for() -> None:
    """Without a window no sound is returned; later windows return all of it, until a cancel."""
    listener = Listener(make_runner())
    listener.start(0)
    for _ in range(6):
        listener.step({})
    assert listener.rows[0].pcm == b""
    listener.step({0: 5}, [])
    assert len(listener.rows[0].pcm) == 2 * 5 * FRAME_SAMPLES
    listener.step({0: 50})  # the frame of this very step is included
    assert len(listener.rows[0].pcm) == 2 * 7 * FRAME_SAMPLES
    assert not listener.runner.has_sound_in_flight
    assert difference(listener.finish(0), alone()) <= 8


@pytest.mark.parametrize("sizes", ["exact", "few", "one"])
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.thorough)])
def test_a_row_among_others_speaks_as_if_alone(seed: int, sizes: str) -> None:
    """Rows that join, end and are cancelled change another row's sound by rounding only."""
    expected, numbers = alone(), random.Random(seed)
    listener = Listener(make_runner(sizes=sizes_of(sizes)))
    listener.start(2)
    while not listener.rows[2].has_ended:
        for row in listener.runner.batch.free:
            if numbers.random() < 0.4:
                text = " ".join(numbers.choices(TEXT.split(), k=numbers.randint(1, 9)))
                listener.start(row, text, numbers.getrandbits(32), numbers.randint(1, 15))
        row = numbers.choice([0, 1, 3])
        if numbers.random() < 0.2 or (row in listener.rows and listener.rows[row].has_ended):
            listener.cancel(row)
        speak = [row for row in listener.rows if numbers.random() < 0.8]
        listener.step({row: numbers.choice((1, 2, 5)) for row in listener.rows}, speak)
    spoken = listener.finish(2)
    assert spoken.codes == expected.codes
    assert difference(spoken, expected) <= 8


def fixed_runs() -> Iterator[bytes]:
    for others in ([], [0, 2, 3]):
        listener = Listener(make_runner(sizes=sizes_of("one")))
        listener.start(1)
        for row in others:
            listener.start(row, seed=row)
        for step in range(12):
            if step == 5 and others:
                listener.cancel(2)
            listener.step(dict.fromkeys(listener.rows, 1 + step % 3))
        yield listener.finish(1).pcm


def test_one_shape_gives_the_same_bits() -> None:
    first, second = fixed_runs()
    assert first == second
