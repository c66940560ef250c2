"""A synthesizer opens contexts on its workers, on the real espeak worker."""

import asyncio
from dataclasses import replace

import pytest

from testbed.contexts import SENTENCE, UNPACED, collect
from testbed.servers import StartSynthesizer, worker_of
from testbed.waiting import until
from voiceagent_tts.errors import OverloadedError
from voiceagent_tts.lexicon import check_entries
from voiceagent_tts.seam.engine_kind import WorkerSpec
from voiceagent_tts.synthesizer.options import ContextOptions
from voiceagent_tts.synthesizer.synthesizer import Synthesizer
from voiceagent_tts.synthesizer.workers import Supervisor


async def test_a_lexicon_is_kept_for_its_owner(start_synthesizer: StartSynthesizer) -> None:
    """Contexts of one key share it; no other key finds out by the time which lexicons there are."""
    synthesizer = await start_synthesizer()
    lexicon = check_entries({"nginx": "engine x"})
    (first, second, other) = (
        synthesizer.check(ContextOptions(lexicon=lexicon, owner=owner)).lexicons[0]
        for owner in ("one", "one", "two")
    )
    assert first is second
    assert other is not first


async def test_closing_ends_every_context(start_synthesizer: StartSynthesizer) -> None:
    synthesizer = await start_synthesizer()
    context = await synthesizer.open(UNPACED)
    context.push_text(SENTENCE * 50)
    collecting = asyncio.create_task(collect(context))
    await until(lambda: context.cut(10**9).text_spoken != "", "it speaks")
    await synthesizer.close()
    await synthesizer.close()
    assert (await collecting).report.reason == "cancelled"


async def test_rows_are_not_promised_twice(start_synthesizer: StartSynthesizer) -> None:
    """A context is refused while all rows are used; an ended one makes room at once."""
    synthesizer = await start_synthesizer()
    rows = worker_of(synthesizer).capabilities.max_rows
    contexts = [await synthesizer.open(UNPACED) for _ in range(rows)]
    with pytest.raises(OverloadedError) as refused:
        await synthesizer.open(UNPACED)
    assert refused.value.retry_after_ms
    contexts[0].abandon()
    await synthesizer.open(UNPACED)


async def test_a_request_that_only_the_full_engine_serves_is_told_to_wait() -> None:
    """The overflow has other languages and feedings; the client has made no mistake."""
    overflow = Supervisor(WorkerSpec("espeak"))
    main = Supervisor(WorkerSpec("espeak", {"max_rows": 1}))
    synthesizer = Synthesizer({"espeak": main}, overflow=overflow)
    await synthesizer.start()
    try:
        await synthesizer.open(UNPACED)
        other = overflow.free_worker
        assert other is not None
        other.capabilities = replace(other.capabilities, text_feeding=("token",))
        assert (await synthesizer.open(UNPACED)).worker is other
        with pytest.raises(OverloadedError):
            await synthesizer.open(replace(UNPACED, text_feeding="segment"))
    finally:
        await synthesizer.close()


async def test_workers_of_a_group_may_have_different_numbers_of_rows() -> None:
    """Their devices differ: a context goes to the worker with the most free rows, while one is."""
    specs = {
        name: WorkerSpec("espeak", {"max_rows": rows}, group="espeak")
        for name, rows in (("large", 3), ("small", 1))
    }
    synthesizer = Synthesizer({name: Supervisor(spec) for name, spec in specs.items()})
    await synthesizer.start()
    try:
        large, small = worker_of(synthesizer, "large"), worker_of(synthesizer, "small")
        opened = [(await synthesizer.open(UNPACED)).worker for _ in range(4)]
        assert opened[:2] == [large, large]
        assert opened.count(small) == 1
        with pytest.raises(OverloadedError):
            await synthesizer.open(UNPACED)
    finally:
        await synthesizer.close()
