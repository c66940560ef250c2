"""Reads the text of contexts in portions, most of it while the device computes.

Building the ids of a growing text takes 5 µs per character of English on the engine's thread, and
12 µs per character of Chinese. So only text that a row waits for is read when it arrives: the first
words of every context and more of them until there is sound, and a little for rows that have run
out of text. The rest is read after a step was launched, in every step more characters than the rows
speak in that time, but not many more. Knows no time, and changes no rows.
"""

from collections.abc import Mapping
from dataclasses import replace

from voiceagent_tts.engine.open_context import OpenContext
from voiceagent_tts.engine.sequence import RowState
from voiceagent_tts.errors import EngineError
from voiceagent_tts.seam.commands import Append, Flush, Submit

PORTION_CHARS = 64
"""Characters that are read together: some ten words, enough for most sequences to start."""
_STEP_CHARS = 8
"""Characters read per step for each waiting context, in addition to one portion. A row speaks one
id per step, which is four to five characters."""


class TextQueue:
    """Text that has arrived and is not read yet, in the order of each context.

    Contexts take turns, in every step first those whose rows have run out of text.

    Args:
        contexts: open contexts by their number; the text of others is dropped.
    """

    def __init__(self, contexts: Mapping[int, OpenContext]) -> None:
        self._contexts = contexts
        self._spare_chars = PORTION_CHARS
        """Characters that contexts with sound may read at once before the next step."""
        self._waiting: dict[int, OpenContext] = {}
        self._read_contexts: dict[int, OpenContext] = {}

    @property
    def is_busy(self) -> bool:
        """Whether text waits, or was read since the last `take_read`."""
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

    def take_read(self) -> list[OpenContext]:
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
    """Whether a context cannot speak without more text."""
    if context.active is None:
        return not context.has_text_to_start
    return context.active.state is RowState.STARVED
