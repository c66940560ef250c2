"""How the text of contexts becomes sequences of token ids, in portions.

In segment feeding each text becomes a sequence. In token feeding a sequence grows with the text,
and the next one begins at a sentence end once the sequence is long. For a voice that needs many ids
to start, the next one begins at every sentence end. Ids never change once they were added.

Building the ids of a growing text takes 5 µs per character of English on the engine's thread, and
12 µs per character of Chinese. So text that a row is waiting for is tokenized on arrival: the first
words of every context, more of them until there is sound, and a little for rows without text. The
rest is tokenized in bounded portions while the device computes.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from voiceagent_tts.core import Reading
from voiceagent_tts.engine.sequence import EngineContext, Sequence, SequenceState, TextState
from voiceagent_tts.engine.voice_cache import LoadedVoice
from voiceagent_tts.errors import EngineError, VoiceAgentError
from voiceagent_tts.model.tokenizer import ROLE_TOKENS, OpenTurn, Tokenizer
from voiceagent_tts.seam.commands import Append, Feeding, Flush, Submit
from voiceagent_tts.text.feed import Fed, TextFeed
from voiceagent_tts.text.readings import said

SEQUENCE_CHARS = 300
"""A growing sequence ends at the first sentence end after this many characters, about 20 s of
speech. Within that time the model keeps its timbre."""
_MOST_IDS_TO_START = 16
"""Some ten words. A listener waits for this much text to be written, but not for more."""
PORTION_CHARS = 64
"""Characters that are read together: some ten words, enough for most sequences to start."""
_STEP_CHARS = 8
"""Characters read per step for each waiting context, in addition to one portion. A row speaks one
id per step, which is four to five characters."""


def read_first_text(tokenizer: Tokenizer) -> None:
    """Tokenize a text, so that everything that the first text of a listener needs is loaded.

    That is the rules of sentences in all languages, and the table of composed characters, which
    only a text that ends inside a word needs.
    """
    text = "That is all. " * (2 * SEQUENCE_CHARS // len("That is all. "))
    builder = SequenceBuilder(tokenizer, "token", None, ids_to_start=0)
    builder.append(text.removesuffix(". "), 0, None)
    builder.flush()


class SequenceBuilder:
    """Builds the sequences of one context from its text.

    Args:
        feeding: how the text arrives.
        language: language code of a growing text; None if unknown.
        ids_to_start: number of ids of a growing sequence that the voice needs to start.
    """

    def __init__(
        self, tokenizer: Tokenizer, feeding: Feeding, language: str | None, ids_to_start: int
    ) -> None:
        self.sequences = deque[Sequence]()
        """Sequences in order; the context removes those that are finished."""
        self._tokenizer = tokenizer
        self._language = language
        sequence_chars = SEQUENCE_CHARS if ids_to_start <= _MOST_IDS_TO_START else 1
        self.is_growing = feeding == "token"
        """Whether sequences grow with the text; then it may be appended in any portions."""
        self._feed = TextFeed(sequence_chars, language) if self.is_growing else None
        self._turn: OpenTurn | None = None
        self._growing: Sequence | None = None

    def append(
        self, text: str, char_base: int, language: str | None, readings: tuple[Reading, ...] = ()
    ) -> None:
        """Append the context's next text, whose first character is `char_base`; in any language.

        Spans with a reading are said as that reading.
        """
        if self._feed is not None:
            self._feed.skip_to(char_base)
            self._grow_all(self._feed.push(text, readings))
        elif text:
            ids = self._tokenizer.encode_turn("assistant", said(text, char_base, readings).text)
            sequence = Sequence(False, ids, len(ids) - ROLE_TOKENS, language=language)
            sequence.char_end, sequence.text = char_base + len(text), TextState.COMPLETE
            self.sequences.append(sequence)

    def flush(self) -> None:
        """Complete the growing sequence: all text so far is spoken to its end."""
        if self._feed is not None:
            self._grow_all(self._feed.finish())

    def _grow_all(self, words: list[Fed]) -> None:
        """Add words, those of one sequence in one call of the tokenizer, as calls cost the most."""
        spoken = ""
        for number, fed in enumerate(words):
            spoken += fed.spoken
            if fed.ends_run or number == len(words) - 1:
                self._grow(Fed(spoken, fed.char_end, fed.ends_run))
                spoken = ""

    def _grow(self, fed: Fed) -> None:
        growing = self._growing
        if growing is None or growing.text is TextState.ENDED or self._turn is None:
            self._turn = self._tokenizer.open_turn("assistant")
            # The ids before the text are no text.
            growing = Sequence(True, text_ids=-ROLE_TOKENS, language=self._language)
            self._growing = growing
            self.sequences.append(growing)
        ids = self._turn.push(fed.spoken)
        if fed.ends_run:
            ids += self._turn.finish()
        growing.ids += ids
        growing.text_ids += len(ids)
        growing.char_end = fed.char_end
        if fed.ends_run:
            growing.text = TextState.COMPLETE
            self._growing = self._turn = None


@dataclass(slots=True, kw_only=True)
class OpenContext(EngineContext):
    """A context with the parts that its sequences are built from.

    Attributes:
        voice: the voice; a context keeps it when the voice's file is replaced.
        has_all_text: whether the client's last text has arrived; some of it may be unread.
        unread: text and flushes that the builder has not received, in order.
        fault: why the text cannot be read; None if it can.
    """

    voice: LoadedVoice
    builder: SequenceBuilder
    has_all_text: bool = False
    fault: VoiceAgentError | None = None
    unread: deque[Submit | Append | Flush] = field(default_factory=deque[Submit | Append | Flush])


class TextQueue:
    """Text that has arrived and is not read yet, in the order of each context.

    Contexts take turns, in every step first those whose rows have run out of text. The text of
    contexts that are no longer open is dropped.
    """

    def __init__(self, contexts: Mapping[int, OpenContext]) -> None:
        self._contexts = contexts
        self._spare_chars = PORTION_CHARS
        """Characters that contexts with sound may read at once before the next step."""
        self._waiting: dict[int, OpenContext] = {}
        self._read_contexts: dict[int, OpenContext] = {}

    @property
    def is_busy(self) -> bool:
        """Whether text waits, or was read since the last `pop_read`."""
        return bool(self._waiting or self._read_contexts)

    def push(self, context: OpenContext, command: Submit | Append | Flush) -> None:
        """Append text, or a flush after the text so far; read a portion if the row waits for it."""
        context.unread.append(command)
        if _is_awaited(context):
            if not context.has_spoken:
                self._read(context)
            elif self._spare_chars > 0:
                self._spare_chars -= self._read(context)
        if context.unread:
            self._waiting[context.id] = context

    def read(self) -> None:
        """Read a bounded part of the waiting text, that of rows that wait for it first."""
        chars = PORTION_CHARS + _STEP_CHARS * len(self._waiting)
        in_turn = sorted(self._waiting.values(), key=_is_awaited, reverse=True)
        self._waiting = {context.id: context for context in in_turn}
        while self._waiting and chars > 0:
            context = self._waiting.pop(next(iter(self._waiting)))
            if self._contexts.get(context.id) is not context:
                continue
            if context.unread:
                chars -= self._read(context)
            if context.unread:
                self._waiting[context.id] = context

    def pop_read(self) -> list[OpenContext]:
        """Return the contexts of which text was read since the last call, once per step."""
        self._spare_chars = PORTION_CHARS
        read, self._read_contexts = self._read_contexts, {}
        return list(read.values())

    def _read(self, context: OpenContext) -> int:
        """Read a portion of a context's oldest text; return its number of characters.

        An error is kept for the step in which the rows may be changed.
        """
        self._read_contexts[context.id] = context
        try:
            return self._read_portion(context)
        except Exception as error:  # the library of the tokenizer raises bare Exception
            context.unread.clear()
            context.fault = EngineError.of("the tokenizer", error)
            return 0

    def _read_portion(self, context: OpenContext) -> int:
        command = context.unread.popleft()
        if isinstance(command, Flush):
            context.builder.flush()
            return 0
        count = len(command.text)
        if context.builder.is_growing:
            count = min(count, PORTION_CHARS)
        portion, rest = command.text[:count], command.text[count:]
        context.builder.append(portion, command.char_base, command.language, command.readings)
        if rest:
            base = command.char_base + count
            context.unread.appendleft(replace(command, text=rest, char_base=base, readings=()))
        elif not command.more:
            context.expects_text = False
            context.builder.flush()
        return count


def _is_awaited(context: OpenContext) -> bool:
    if context.active is None:
        return not context.has_text_to_start
    return context.active.state is SequenceState.STARVED
