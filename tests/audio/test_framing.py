import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voiceagent_tts.audio.output import MessageQueue
from voiceagent_tts.core import MAX_MESSAGE_PCM_BYTES


def drain(queue: MessageQueue) -> list[bytes]:
    return list(iter(queue.pop, None))


def test_queued_frames_are_merged_up_to_the_maximum() -> None:
    queue = MessageQueue()
    frames = [bytes([n]) * 3_840 for n in range(3)]
    for frame in frames:
        queue.push(frame)
    messages = drain(queue)
    assert [len(message) for message in messages] == [4_096, 4_096, 3_328]
    assert b"".join(messages) == b"".join(frames)


@pytest.mark.parametrize("sample_bytes", [1, 2, 4])
@given(data=st.data())
def test_messages_joined_are_the_input(sample_bytes: int, data) -> None:
    """For any pushes and pops, all bytes are returned once, in order, in whole samples."""
    queue, pushed, popped = MessageQueue(), b"", []
    for samples in data.draw(st.lists(st.none() | st.integers(0, 5_000), max_size=20)):
        if samples is None:
            popped += [queue.pop() or b""]
        else:
            piece = bytes(i % 251 for i in range(samples * sample_bytes))
            queue.push(piece)
            pushed += piece
        assert queue.queued_bytes == len(pushed) - sum(map(len, popped))
    popped += drain(queue)

    assert b"".join(popped) == pushed
    assert all(len(message) <= MAX_MESSAGE_PCM_BYTES for message in popped)
    assert all(len(message) % sample_bytes == 0 for message in popped)


def test_a_pop_copies_only_its_message() -> None:
    """Popping from 8 MB queued in one piece does not copy the rest."""
    queue = MessageQueue()
    queue.push(bytes(8 << 20))
    tracemalloc.start()
    try:
        for _ in range(100):
            queue.pop()
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 8 * MAX_MESSAGE_PCM_BYTES
