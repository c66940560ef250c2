"""What one client sends keeps no other waiting: the event loop works on it in small steps."""

import asyncio
import importlib
import os
import signal

import pytest

from testbed.long_texts import CHARS, KINDS, LEXICONS, MOST_BYTES, MOST_CALLS, SPREAD, Lexicon
from testbed.loop_work import LoopWork, loop_work
from testbed.servers import StartSynthesizer
from testbed.speechless import BriefProxy, SpeechlessProxy
from testbed.waiting import until
from voiceagent_tts.lexicon import check_entries
from voiceagent_tts.plugins.cache.proxy import CachingProxy
from voiceagent_tts.plugins.cache.store import PhraseCache
from voiceagent_tts.synthesizer.events import ContextDone, ContextWords, DoneReason
from voiceagent_tts.synthesizer.options import ContextOptions
from voiceagent_tts.synthesizer.synthesizer import Synthesizer
from voiceagent_tts.text.language import detect_language

SAID_TOO_LONG = ("lexicon: said at length", "lexicon: respelled")
"""Kinds of which more is said than may wait to be spoken, and which end with `text_too_long`."""
TURNS = 12
"""Iterations of the loop after a message, in which its text is read."""
TOGETHER = 48
"""Contexts that do the same in one moment."""


async def _send(
    synthesizer: Synthesizer, words: str, *, has_markup: bool, lexicon: Lexicon
) -> None:
    """Send a text as one message, have it read for a while, and cancel it."""
    options = ContextOptions(lexicon=check_entries(lexicon), has_markup=has_markup)
    context = await synthesizer.open(options)
    context.push_text((words * CHARS)[:CHARS])
    context.finish()
    for _ in range(TURNS):
        await asyncio.sleep(0)
    context.abandon()


async def _read_whole(
    synthesizer: Synthesizer,
    words: str,
    *,
    has_markup: bool,
    lexicon: Lexicon,
    chars: int = CHARS,
) -> DoneReason:
    """Send a text as one message, and have all of it read; return how its context ended."""
    options = ContextOptions(
        lexicon=check_entries(lexicon), has_markup=has_markup, max_lead_s=0, language="en"
    )
    context = await synthesizer.open(options)
    context.push_text((words * chars)[:chars])
    context.finish()
    (done,) = [event async for event in context if isinstance(event, ContextDone)]
    return done.reason


async def _speechless(start_synthesizer: StartSynthesizer) -> Synthesizer:
    """A synthesizer whose voice says nothing."""
    synthesizer = await start_synthesizer()
    synthesizer.proxy = SpeechlessProxy(PhraseCache(10e6, 60.0, 2)).connect
    return synthesizer


async def _work_on(
    kind: str, synthesizer: Synthesizer, monkeypatch: pytest.MonkeyPatch
) -> tuple[DoneReason, LoopWork]:
    """Have a text of a kind read; return how its context ended, and the work of the loop."""
    words, has_markup, lexicon = KINDS[kind]
    with loop_work(monkeypatch) as work:
        await asyncio.sleep(0)
        reason = await _read_whole(synthesizer, words, has_markup=has_markup, lexicon=lexicon)
    return reason, work


@pytest.fixture(autouse=True, scope="module")
def _languages() -> None:
    """What tells languages and abbreviations is loaded, as a server does at its start."""
    detect_language("Hello.", None)
    importlib.import_module("voiceagent_tts.text.abbreviations")


@pytest.mark.parametrize(
    "kind", [pytest.param(k, marks=() if k in SPREAD else pytest.mark.thorough) for k in KINDS]
)
async def test_no_turn_is_long_until_the_end_of_a_text(
    kind: str, start_synthesizer: StartSynthesizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor in the middle of a text, and not at its end, of which the voice says nothing."""
    reason, work = await _work_on(kind, await _speechless(start_synthesizer), monkeypatch)
    assert reason == ("error" if kind in SAID_TOO_LONG else "complete")
    assert work.most <= MOST_CALLS and work.most_bytes <= MOST_BYTES


@pytest.mark.parametrize(
    "kind", [pytest.param(k, marks=() if k in SPREAD else pytest.mark.thorough) for k in KINDS]
)
async def test_no_turn_is_long_where_text_is_fed_token_by_token(
    kind: str, start_synthesizer: StartSynthesizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each few characters go through the hold before the cache, and to the engine at once."""
    # espeak takes whole segments; what answers in its place takes anything.
    monkeypatch.setattr("voiceagent_tts.synthesizer.synthesizer._feeding", lambda *_: "token")
    reason, work = await _work_on(kind, await _speechless(start_synthesizer), monkeypatch)
    assert reason == "complete"
    assert work.most <= MOST_CALLS and work.most_bytes <= MOST_BYTES, (work.most, work.most_bytes)


async def test_words_that_are_due_together_are_published_in_parts(
    start_synthesizer: StartSynthesizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without an aligner, all words are due when the audio ends, wherever playback is."""
    synthesizer = await start_synthesizer()
    synthesizer.proxy = BriefProxy(PhraseCache(10e6, 60.0, 2), has_aligner=False).connect
    options = ContextOptions(max_lead_s=0, language="en")
    with loop_work(monkeypatch) as work:
        await asyncio.sleep(0)
        context = await synthesizer.open(options)
        context.push_text("a " * 9_999)
        context.finish()
        events = [event async for event in context]
    words = [word for event in events if isinstance(event, ContextWords) for word in event.words]
    assert len(words) == 9_999
    assert work.most <= MOST_CALLS and work.most_bytes <= MOST_BYTES, (work.most, work.most_bytes)


async def test_parts_that_are_said_at_length_are_all_spoken(
    start_synthesizer: StartSynthesizer,
) -> None:
    """A segment of readings has many parts; those not sent yet keep no engine waiting."""
    synthesizer = await _speechless(start_synthesizer)
    words, lexicon = LEXICONS["respelled"]
    reason = await _read_whole(
        synthesizer, words, has_markup=False, lexicon=lexicon, chars=len(words) * 60
    )
    assert reason == "complete"


async def test_no_text_makes_a_long_turn_of_the_loop(
    start_synthesizer: StartSynthesizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever 20,000 characters say: they are read step by step, and linear in their length."""
    assert len(KINDS) >= 60
    synthesizer = await start_synthesizer()
    synthesizer.proxy = CachingProxy(PhraseCache(10e6, 60.0, 2)).connect
    most: dict[str, tuple[int, int]] = {}
    for name, (words, has_markup, lexicon) in KINDS.items():
        with loop_work(monkeypatch) as work:
            await asyncio.sleep(0)
            await _send(synthesizer, words, has_markup=has_markup, lexicon=lexicon)
        if work.most > MOST_CALLS or work.most_bytes > MOST_BYTES:
            most[name] = (work.most, work.most_bytes)
    assert most == {}


async def test_waits_that_end_together_make_no_long_turn(
    start_synthesizer: StartSynthesizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of many contexts whose text has waited for its end, a few are read in one iteration."""
    synthesizer = await _speechless(start_synthesizer)
    options = ContextOptions(language="en", max_buffer_delay_ms=0)
    contexts = [await synthesizer.open(options) for _ in range(TOGETHER)]
    with loop_work(monkeypatch) as work:
        for context in contexts:  # in one iteration, so that all waits end in the next one
            context.push_text("a word and " * 30)
        for context in contexts:
            while context._intake.divided_char_end < 300:
                await asyncio.sleep(0)
    assert work.most <= MOST_CALLS, work.most
    for context in contexts:
        context.abandon()


async def test_contexts_that_wait_for_a_worker_open_in_turns(
    start_synthesizer: StartSynthesizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many wait for it, one opens in each iteration."""
    synthesizer = await start_synthesizer()
    (supervisor,) = synthesizer.supervisors.values()
    assert supervisor.worker is not None
    os.kill(supervisor.worker.pid, signal.SIGKILL)
    await until(lambda: supervisor.worker is None, "the worker has ended")
    opening = [asyncio.create_task(synthesizer.open(ContextOptions())) for _ in range(TOGETHER)]
    opened = 0
    while opened < TOGETHER:
        await asyncio.sleep(0)
        before, opened = opened, sum(task.done() for task in opening)
        assert opened - before <= 2, "a turn that is free, and the next one"
    for task in opening:
        task.result().abandon()


async def test_a_short_text_waits_for_one_step_of_each_owner(
    start_synthesizer: StartSynthesizer,
) -> None:
    """However many long texts another owner has."""
    synthesizer = await _speechless(start_synthesizer)
    options = ContextOptions(language="en")
    long = [await synthesizer.open(options, owner="many") for _ in range(TOGETHER)]
    short = await synthesizer.open(options, owner="one")
    for context in long:
        context.push_text("a " * 4_000)
    short.push_text("Hello there.")
    short.finish()
    iterations = 0
    while short._can_read:
        await asyncio.sleep(0)
        iterations += 1
    assert iterations <= 4
    for context in (*long, short):
        context.abandon()
