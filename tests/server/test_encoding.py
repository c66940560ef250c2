"""The threads that encode answers are for all callers."""

import asyncio
import threading

from voiceagent_tts.server.encoding import STREAMS, computed


async def test_a_caller_waits_for_few_pieces_of_another() -> None:
    """However many streams that one has: its pieces wait for each other."""
    is_open, done = threading.Event(), list[str]()

    def piece(owner: str) -> list[str]:
        is_open.wait()
        done.append(owner)
        return []

    pieces = [
        asyncio.create_task(computed(STREAMS, owner, lambda each=owner: piece(each)))
        for owner in (*["many"] * 20, "one")
    ]
    for _ in range(3):  # all are waiting for a thread
        await asyncio.sleep(0)
    is_open.set()
    await asyncio.gather(*pieces)
    assert len(done) == 21 and done.index("one") <= 5
