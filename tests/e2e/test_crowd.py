"""A tiny model behind the real server with all rows in use, and with several workers."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random

import pytest

from testbed.linked_models import link_with_short_quick_runs
from testbed.servers import StartServer
from testbed.waiting import PATIENCE_S, until
from voiceagent_tts.client import TTSClient
from voiceagent_tts.protocol.client_connection import ClientAudio
from voiceagent_tts.server.serve import RunningServer

MODEL = Path(__file__).parent.parent / "reference" / "custom_voice-1b7"
ROWS = 48
SURVIVORS = 24
SENTENCE = "Hello there, this is number {}."


@pytest.fixture
def short_runs(tmp_path: Path) -> str:
    """A model that ends every sequence after half a second."""
    return link_with_short_quick_runs(MODEL, tmp_path, frames=6)


@pytest.fixture
async def crowded(start_server: StartServer, short_runs: str) -> RunningServer:
    """A server with 48 rows in which a seed gives identical bits, whatever else runs."""
    return await start_server(
        engine="qwen3",
        models=(short_runs,),
        rows=ROWS,
        threads=1,
        deterministic=True,
        aligner="off",
    )


async def test_pain_02_survivors_do_not_hear_who_comes_and_goes(crowded: RunningServer) -> None:
    """Contexts that speak to their end are bit-identical among joins, cancels and disconnects.

    All rows are free afterwards.
    """
    alone = await speak_all(crowded.websocket_url)
    leaving = asyncio.create_task(come_and_go(crowded.websocket_url, Random(5)))
    among_others = await speak_all(crowded.websocket_url)
    left = await leaving
    assert left["cancelled"] and left["hung up"]
    assert all(alone)
    assert among_others == alone
    (supervisor,) = crowded.state.synthesizer.supervisors.values()
    worker = supervisor.worker
    assert worker is not None
    await until(lambda: worker.rows_used == 0, "every row is free")


async def speak_all(url: str) -> list[bytes]:
    """Return the audio of every context that speaks to its end."""
    async with TTSClient(url) as client:

        async def speak(number: int) -> bytes:
            pcm = b""
            async for event in client.say(
                SENTENCE.format(number), voice="vivian", seed=number, max_lead_s=0
            ):
                if isinstance(event, ClientAudio):
                    pcm += event.pcm
            return pcm

        return await asyncio.gather(*map(speak, range(SURVIVORS)))


async def come_and_go(url: str, random: Random) -> dict[str, int]:
    """Open contexts on separate sockets; cancel each or disconnect at a random time."""
    left = {"cancelled": 0, "hung up": 0}

    async def visit(seed: int, messages: int, *, is_polite: bool) -> None:
        # All visitors share this process with the server, which may take long to answer them.
        async with TTSClient(url, answer_timeout_s=PATIENCE_S) as client:
            context = await client.open(voice="ryan", seed=seed, max_lead_s=0)
            await context.send_text(SENTENCE.format("none"))
            await take(aiter(context), messages)
            if is_polite:
                await context.cancel()
        left["cancelled" if is_polite else "hung up"] += 1

    for _ in range(3):
        async with asyncio.TaskGroup() as group:
            for _ in range(6):
                visiting = visit(
                    random.randrange(99), random.randrange(3), is_polite=random.random() < 0.5
                )
                group.create_task(visiting)
    return left


async def take(events: AsyncIterator[object], messages: int) -> None:
    """Read audio messages of a context."""
    while messages:
        messages -= isinstance(await anext(events), ClientAudio)


async def test_workers_of_a_model_share_its_contexts(
    start_server: StartServer, short_runs: str
) -> None:
    """Every context goes to the least loaded worker; together they offer the rows of both."""
    server = await start_server(
        engine="qwen3", models=(short_runs,), workers=2, rows=2, threads=1, aligner="off"
    )
    supervisors = server.state.synthesizer.supervisors
    assert list(supervisors) == [short_runs, f"{short_runs}#2"]
    workers = [supervisor.worker for supervisor in supervisors.values()]

    def rows_used() -> list[int]:
        return [worker.rows_used for worker in workers if worker is not None]

    await until(lambda: rows_used() == [0, 0], "the start-up probe has gone")
    async with TTSClient(server.websocket_url) as client:
        contexts = [await client.open(voice="vivian") for _ in range(4)]
        for context in contexts:
            await context.send_text("Hello there, ")
            await take(aiter(context), 1)
        assert rows_used() == [2, 2]
        for context in contexts[1::2]:
            await context.cancel()
        await until(lambda: sorted(rows_used()) == [0, 2], "the second worker is free")
        await take(aiter(await opened(client)), 1)
        assert sorted(rows_used()) == [1, 2]


async def opened(client: TTSClient) -> AsyncIterator[object]:
    """Open another context and send it text."""
    context = await client.open(voice="vivian")
    await context.send_text("Hello there, ")
    return context
