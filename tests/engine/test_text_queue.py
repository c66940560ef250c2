"""Long texts are read in portions: the same ids, in bounded work per step, in turn."""

from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.engine_driving import Driver, load, pcm_of
from voiceagent_tts.engine import text_queue
from voiceagent_tts.engine.open_context import OpenContext
from voiceagent_tts.engine.sequence import TextState
from voiceagent_tts.engine.sequence_builder import SequenceBuilder
from voiceagent_tts.engine.text_queue import PORTION_CHARS, TextQueue
from voiceagent_tts.engine.voice_cache import LoadedVoice
from voiceagent_tts.model.prompt import Preset
from voiceagent_tts.seam.commands import Append, Cancel, Feeding, Flush, Submit
from voiceagent_tts.seam.events import Done

LONG = "The quick brown fox jumps over the lazy dog, and then it rests. " * 60


def make_context(id: int = 1, feeding: Feeding = "token") -> OpenContext:
    """A context without a row, which builds the ids of the tiny model."""
    builder = SequenceBuilder(load()[0].tokenizer, feeding, "en", ids_to_start=4)
    voice = LoadedVoice(Preset("Ryan"))
    return OpenContext(id, sequences=builder.sequences, voice=voice, builder=builder)


def submit(context: int, text: str, *, more: bool = False) -> Submit:
    """The first text of a context."""
    return Submit(context, text, 0, more, "Ryan", "en", feeding="token")


def unread_chars(context: OpenContext) -> int:
    """Characters of a context that its builder has not received."""
    return sum(len(part.text) for part in context.unread if not isinstance(part, Flush))


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.sampled_from([LONG[:700], "Ein Wort. ", "¿Qué? ", "好。", "\0", ""]), max_size=5)
)
def test_portions_give_the_ids_of_the_whole_text(texts: list[str]) -> None:
    """A text that is read in portions has the sequences of one that is read at once."""
    whole, context = make_context(), make_context()
    queue, base = TextQueue({1: context}), 0
    queue.push(context, submit(1, "Go. ", more=True))
    for text in texts:
        queue.push(context, Append(1, text, base + 4, True, "en"))
        base += len(text)
    queue.push(context, Append(1, "End", base + 4, False, "en"))
    while context.unread:
        queue.read()
    whole.builder.append("Go. " + "".join(texts) + "End", 0, "en")
    whole.builder.flush()
    assert [each.ids for each in context.sequences] == [each.ids for each in whole.sequences]
    assert [each.char_end for each in context.sequences] == [
        each.char_end for each in whole.sequences
    ]
    assert not context.expects_text


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


def test_a_flush_comes_after_the_text_before_it() -> None:
    """A flush waits for unread text; text after it belongs to the next sequence."""
    context = make_context()
    queue = TextQueue({1: context})
    queue.push(context, submit(1, LONG[:200], more=True))
    queue.push(context, Flush(1))
    queue.push(context, Append(1, "Next.", 200, False, "en"))
    while context.unread:
        queue.read()
    first, second = context.sequences
    assert first.text is second.text is TextState.COMPLETE
    assert (first.char_end, second.char_end) == (200, 205)


def test_a_segment_is_read_whole() -> None:
    """A segment, whose ids depend on all of its text, is not cut into portions."""
    context = make_context(feeding="segment")
    queue = TextQueue({1: context})
    queue.push(context, submit(1, LONG[:400]))
    assert len(context.sequences) == 1
    assert not context.unread


def test_a_long_text_sounds_as_if_it_was_read_at_once(monkeypatch) -> None:
    """Portions change no sample of a text that the client sends in one message."""
    sounds = list[bytes]()
    for chars in (PORTION_CHARS, 10**6):
        monkeypatch.setattr(text_queue, "PORTION_CHARS", chars)
        driver = Driver(rows=2)
        sounds.append(pcm_of(driver.run(*driver.open(1, LONG[:400], feeding="token")), 1))
    assert sounds[0] == sounds[1] != b""


def test_unread_text_of_a_cancelled_context_is_dropped() -> None:
    """A context that is cancelled with unread text frees its row, and the engine comes to rest."""
    driver = Driver(rows=2)
    driver.send(*driver.open(1, LONG * 10, feeding="token"))
    driver.engine.step()
    driver.run(Cancel(1))
    assert driver.engine.rows_used == 0
    events = driver.run(*driver.open(2, "Hello there.", feeding="token"))
    assert isinstance(events[-1], Done)
