"""Texts are read in portions: the same ids, in bounded work per step, in turn.

Text that no row waits for is read after a step was launched.
"""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from testbed.engine_driving import Driver, last_of, load
from testbed.texts import agent_text, any_text, chunked
from voiceagent_tts.engine.sequence import ActiveSequence, SequenceState, TextState
from voiceagent_tts.engine.text_queue import (
    PORTION_CHARS,
    OpenContext,
    SequenceBuilder,
    TextQueue,
    read_first_text,
)
from voiceagent_tts.engine.voice_cache import LoadedVoice
from voiceagent_tts.errors import ErrorCode
from voiceagent_tts.model import tokenizer
from voiceagent_tts.model.prompt import Preset
from voiceagent_tts.seam.commands import Append, Feeding, Flush, Submit
from voiceagent_tts.seam.events import Done, Failed

LONG = "The quick brown fox jumps over the lazy dog, and then it rests. " * 60


def make_context(id: int = 1, feeding: Feeding = "token") -> OpenContext:
    """A context without a row, which builds the ids of the tiny model."""
    builder = SequenceBuilder(load()[0].tokenizer, feeding, "en", ids_to_start=4)
    voice = LoadedVoice(Preset("Ryan"))
    return OpenContext(id, sequences=builder.sequences, voice=voice, builder=builder)


def submit(context: int, text: str, *, more: bool = False) -> Submit:
    return Submit(context, text, 0, more, "Ryan", "en", feeding="token")


def unread_chars(context: OpenContext) -> int:
    return sum(len(part.text) for part in context.unread if not isinstance(part, Flush))


def test_a_first_text_finds_everything_loaded() -> None:
    composing = tokenizer._composing
    composing.cache_clear()
    read_first_text(load()[0].tokenizer)
    loaded = composing.cache_info().misses
    context = make_context()
    for number, part in enumerate(("I met Jos", "é, Zo", "ë and 한", "국")):
        context.builder.append(part, 10 * number, "en")
    assert composing.cache_info().misses == loaded == 1


@settings(max_examples=60, deadline=None)
@given((agent_text() | any_text()).flatmap(lambda text: st.tuples(st.just(text), chunked(text))))
@example(("# Tom & Jerry\n50 % Rabatt", list("# Tom & Jerry\n50 % Rabatt")))
@example(("a | b, 5 - 3 = 2, 25 €", list("a | b, 5 - 3 = 2, 25 €")))
def test_both_feedings_give_the_same_ids(case: tuple[str, list[str]]) -> None:
    """A text has the ids of its segments, however it is cut into tokens."""
    text, tokens = case
    context, base = make_context(), 0
    for token in tokens:
        context.builder.append(token, base, "en")
        base += len(token)
    context.builder.flush()
    whole, start = make_context(feeding="segment"), 0
    for sequence in context.sequences:
        whole.builder.append(text[start : sequence.char_end], start, "en")
        start = sequence.char_end
    assert start == len(text)
    assert [each.ids for each in context.sequences if each.text_ids] == [
        each.ids for each in whole.sequences if each.text_ids
    ]


Written = list[tuple[int, str | None]]
"""Contexts, and the text that is written to each; None is a flush."""


def sequences_of(context: OpenContext) -> list[tuple[list[int], int, TextState]]:
    return [(each.ids, each.char_end, each.text) for each in context.sequences]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 2),
            st.sampled_from(
                ["Hel", "lo ", LONG[:700], "Ein Wort. ", "¿Qué? ", "好。", "ー", "\0", "", None]
            ),
        ),
        max_size=25,
    ),
    st.lists(st.integers(0, 3), min_size=25, max_size=25),
    st.booleans(),
)
def test_any_order_of_reads_gives_the_same_sequences(
    written: Written, reads: list[int], has_spoken: bool
) -> None:
    """Whatever is read at once and whatever later, a context has the sequences of its text."""
    contexts = {id: make_context(id) for id in range(3)}
    whole = {id: make_context(id) for id in range(3)}
    queue, bases = TextQueue(contexts), dict.fromkeys(contexts, 0)
    if has_spoken:
        contexts[0].record_sent(1920, 0.0)
    for (id, text), count in zip(written, reads, strict=False):
        if text is None:
            queue.push(contexts[id], Flush(id))
            whole[id].builder.flush()
        else:
            queue.push(contexts[id], Append(id, text, bases[id], True, "en"))
            whole[id].builder.append(text, bases[id], "en")
            bases[id] += len(text)
        for _ in range(count):
            queue.read()
    while any(context.unread for context in contexts.values()):
        queue.read()
    for id, context in contexts.items():
        assert sequences_of(context) == sequences_of(whole[id])


def test_a_step_reads_a_bounded_number_of_characters() -> None:
    """The longest text is read in parts; every context gets more than a row speaks in a step."""
    contexts = {id: make_context(id) for id in range(50)}
    queue = TextQueue(contexts)
    for id, context in contexts.items():
        queue.push(context, submit(id, LONG * 30 if id == 0 else LONG))
        assert unread_chars(context) == len(LONG * 30 if id == 0 else LONG) - PORTION_CHARS
    before = sum(map(unread_chars, contexts.values()))
    for _ in range(14):
        queue.read()
        now = sum(map(unread_chars, contexts.values()))
        assert before - now <= 2 * PORTION_CHARS + 8 * len(contexts)
        before = now
    # A row speaks one id per step: four to five characters.
    assert all(len(LONG) - unread_chars(contexts[id]) >= 14 * 5 for id in range(1, 50))


def test_rows_that_have_run_out_of_text_are_read_first() -> None:
    """However many long texts wait, a starved row gets its text after the next launch."""
    contexts = {id: make_context(id) for id in range(40)}
    queue = TextQueue(contexts)
    for context in contexts.values():
        queue.push(context, submit(context.id, LONG, more=True))
        context.active = ActiveSequence(context.id)
        context.record_sent(1920, 0.0)
    starved = contexts[17]
    queue.read()
    starved.unread.clear()
    starved.active = ActiveSequence(17, state=SequenceState.STARVED)
    queue.push(starved, Append(17, LONG[:PORTION_CHARS], len(LONG), True, "en"))
    queue.push(starved, Append(17, "and more", len(LONG) + PORTION_CHARS, True, "en"))
    assert starved.unread, "there was a portion to spare, and no more"
    queue.read()
    assert not starved.unread


def test_a_number_that_is_used_again_is_another_context() -> None:
    old, new = make_context(), make_context()
    contexts = {1: old}
    queue = TextQueue(contexts)
    queue.push(old, submit(1, LONG))
    contexts[1] = new
    queue.push(new, submit(1, LONG))
    while queue.is_busy:
        queue.read()
        queue.pop_read()
    assert not new.unread


def test_a_fault_in_reading_fails_its_context_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An error of the tokenizer ends one context, also in text that is read later."""
    append = SequenceBuilder.append

    def fail(builder: SequenceBuilder, portion: str, *how) -> None:
        if "Broken" in portion:
            raise RuntimeError(portion)
        append(builder, portion, *how)

    monkeypatch.setattr(SequenceBuilder, "append", fail)
    driver = Driver(rows=2)
    events = driver.run(
        *driver.open(1, LONG[:PORTION_CHARS] + "Broken.", feeding="token"),
        *driver.open(2, "Hello there.", feeding="token"),
    )
    failed = last_of(events, 1)
    assert isinstance(failed, Failed)
    assert failed.code is ErrorCode.ENGINE_ERROR
    assert "Broken" not in failed.message
    assert isinstance(last_of(events, 2), Done)
    assert driver.engine.rows_used == 0
