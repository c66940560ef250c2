"""The runner of one model: frames and sound on request, and memory that may run out."""

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest

from testbed.engine_driving import CUSTOM_VOICE, load
from testbed.failing_captures import failing_captures
from testbed.runner_driving import TEXT, Listener, RowOutput, difference, prompt_of, sampling
from voiceagent_tts.core import FRAME_SAMPLES
from voiceagent_tts.engine.cuda_graph import Download
from voiceagent_tts.engine.runner import Runner, StepResult
from voiceagent_tts.engine.sizes import Sizes, exact_sizes, fixed_sizes, graph_sizes
from voiceagent_tts.errors import InvalidRequestError, OverloadedError
from voiceagent_tts.model.kv_pool import PAGE_POSITIONS
from voiceagent_tts.model.sampling import SamplingParams, SamplingSettings


def make_runner(rows: int = 4, capacity: int = 512, **options: object) -> Runner:
    """Make a runner over a tiny CustomVoice model."""
    checkpoint, codec = load(CUSTOM_VOICE)
    return Runner(checkpoint, codec, rows, capacity, **options)  # type: ignore[arg-type]


def sizes_of(name: str, rows: int = 4, capacity: int = 512) -> Sizes:
    """Return sizes as on a CPU, as on a GPU, or a single one."""
    kinds = {"exact": exact_sizes, "few": graph_sizes, "one": fixed_sizes}
    return kinds[name](rows, capacity)


def test_a_size_that_was_not_captured_is_refused() -> None:
    """After the capture a new size is refused, because compiling it would stall active rows."""
    with failing_captures(after=10**9):
        runner = make_runner(sizes=sizes_of("one"), has_graphs=True)
    assert runner.has_graphs
    runner.capture(lambda done, total: None)
    with pytest.raises(
        RuntimeError, match=r"captured at the start, got \('code_predictor', 3, 0, 0\)"
    ):
        runner._batch.passes.code_predictor_step(3)
    with pytest.raises(RuntimeError, match=r"captured at the start, got \(4, 12\)"):
        runner._codec.calls[4, 12]()


def test_what_a_step_made_is_on_its_way_before_the_host_does_other_work(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The copy to the host is queued behind the passes, and does not wait for that work."""
    order, send = list[str](), Download.send
    monkeypatch.setattr(Download, "send", lambda self: (order.append("copy"), send(self)))
    runner = make_runner()
    Listener(runner).start(0)
    for _ in range(2):
        runner.step([0], {}, lambda: order.append("other work"))
    runner.step([], {}, lambda: order.append("other work"))
    assert order == ["copy", "other work"] * 2 + ["other work"]


def alone(text: str = TEXT, seed: int = 7, max_frames: int = 20, **options: object) -> RowOutput:
    """Speak in one row of a batch whose other rows are free."""
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
        for row in listener.runner.free_rows:
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


def test_a_full_row_waits_for_a_page() -> None:
    """A row whose pages are full makes no frame until it has another; other rows continue."""
    prompt = prompt_of("Fox. " * 60, is_streaming=False)
    assert PAGE_POSITIONS - 30 < len(prompt) < PAGE_POSITIONS
    runner = make_runner(rows=4, capacity=1024, pages=3)
    endless = replace(prompt, trailing_text_ids=prompt.text_ids[-1:] * 1000)
    for row in range(3):
        runner.start(row, endless, sampling(row), 1000, is_open=True, pages=[row + 1])
    with pytest.raises(AssertionError, match="row 3 has no pages of its own"):
        runner.start(3, prompt, sampling(), 5, is_open=False)
    assert runner.free_rows == [3]
    frames = PAGE_POSITIONS - len(prompt)
    for _ in range(frames):
        assert len(runner.step([0, 1], {}).frames) == 2
    assert runner.full_rows([0, 1, 2]) == [0, 1]
    with pytest.raises(AssertionError, match=r"rows without a page: \[0, 1\]"):
        runner.step([0, 1, 2], {0: 1})
    result = runner.step([2], {0: 1})
    assert [frame.row for frame in result.frames] == [2]
    assert [(sound.row, sound.frames) for sound in result.sounds] == [(0, 1)]
    assert runner.step([], {}) == StepResult()
    runner.cancel(0)
    assert runner.full_rows([0, 1, 2]) == [1]
    runner.set_pages(1, [2, 1])
    for _ in range(frames - 1):
        assert [frame.row for frame in runner.step([1, 2], {}).frames] == [1, 2]
    assert runner.full_rows([1, 2]) == [2]


@pytest.mark.parametrize(("positions", "pages"), [(1, 1), (255, 1), (256, 2), (600, 3)])
def test_a_prompt_needs_room_for_itself_and_a_frame(positions: int, pages: int) -> None:
    """A prompt that fills its page exactly needs another page for its first frame."""
    assert make_runner().pages_needed(positions) == pages


def test_prefixes_fill_what_is_kept_for_them() -> None:
    """Prefixes beyond their memory limit are refused; an unreferenced prefix frees its memory."""
    prompt = prompt_of()
    size = make_runner().prepare(prompt, [1]).kv.bytes
    runner = make_runner(prefix_bytes=2 * size)
    kept = [runner.prepare(prompt, [1]) for _ in range(2)]
    with pytest.raises(OverloadedError, match="prefixes use all"):
        runner.prepare(prompt, [1])
    del kept[0]
    runner.prepare(prompt, [1])


def test_sampling_that_was_not_prepared_is_refused() -> None:
    """Sampling settings beyond the checkpoint's own are refused; the row keeps no state."""
    runner = make_runner()
    with pytest.raises(InvalidRequestError, match="expected sampling within the bounds"):
        runner.start(0, prompt_of(), SamplingParams(SamplingSettings(top_p=0.3)), 5, is_open=False)
    assert runner.free_rows == [0, 1, 2, 3]


def fixed_runs() -> Iterator[bytes]:
    """A row's sound alone and beside others, with one fixed shape."""
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
    """With a fixed shape, rows with fixed seeds are bit-identical in codes and sound."""
    first, second = fixed_runs()
    assert first == second
