"""Marking of many contexts at once: the same samples as one by one, in order, and fairly."""

import asyncio

from testbed.watermarks import TEST_KEY, speech_pcm
from voiceagent_tts.audio.output import DeliveredAudio
from voiceagent_tts.plugins.provenance.marking import Marking
from voiceagent_tts.plugins.provenance.watermark import mark

FRAME_BYTES = 3840


def frames_of(start: int, count: int, size: int = FRAME_BYTES) -> list[bytes]:
    """Frames of recorded speech from a sample on."""
    pcm = speech_pcm()[2 * start :]
    return [pcm[at : at + size] for at in range(0, count * size, size)]


async def test_contexts_marked_together_are_marked_as_alone() -> None:
    """Twenty contexts whose frames come together, of unequal sizes, are each marked as a whole."""
    marking = Marking(TEST_KEY)
    records = [DeliveredAudio(marking) for _ in range(20)]
    sent = [frames_of(500 * at, 6, FRAME_BYTES - 202 * at) for at in range(20)]
    marked = [list[bytes]() for _ in records]
    for frames in zip(*sent, strict=True):
        for delivered, pcm, pieces in zip(records, frames, marked, strict=True):
            delivered.filter(pcm, pieces.append)
    while any(len(pieces) < 6 for pieces in marked):
        await asyncio.sleep(0)
    assert [b"".join(pieces) for pieces in marked] == [
        mark(b"".join(frames), TEST_KEY) for frames in sent
    ]


async def test_many_contexts_do_not_keep_the_event_loop() -> None:
    """Of 100 frames that wait, at most eight are marked in an iteration of the event loop."""
    marking, marked = Marking(TEST_KEY), list[bytes]()
    for _ in range(100):
        DeliveredAudio(marking).filter(frames_of(0, 1)[0], marked.append)
    most = 0
    while (before := len(marked)) < 100:
        await asyncio.sleep(0)
        most = max(most, len(marked) - before)
    assert 0 < most <= 8


async def test_a_context_that_fails_costs_no_other_its_audio() -> None:
    """What receives the first of eight frames raises; the others get theirs."""
    loop, failures = asyncio.get_running_loop(), list[object]()
    loop.set_exception_handler(lambda _, failure: failures.append(failure["exception"]))
    marking, marked, [frame] = Marking(TEST_KEY), list[bytes](), frames_of(0, 1)

    def fail(pcm: bytes) -> None:
        raise ValueError(len(pcm))

    for on_marked in (fail, *7 * [marked.append]):
        DeliveredAudio(marking).filter(frame, on_marked)
    for _ in range(3):
        await asyncio.sleep(0)
    assert marked == 7 * [mark(frame, TEST_KEY)]
    assert [type(each) for each in failures] == [ValueError]
