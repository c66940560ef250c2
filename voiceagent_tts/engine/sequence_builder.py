"""Turns the text of a context into sequences of token ids.

In segment feeding each text becomes a sequence. In token feeding a sequence grows with the text,
and the next one begins at a sentence end once the sequence is long. For a voice that needs many ids
to start, the next one begins at every sentence end. Ids never change once they were added. Knows no
rows and no voices.
"""

from collections import deque

from voiceagent_tts.core import Reading
from voiceagent_tts.engine.sequence import Sequence, TextState
from voiceagent_tts.model.tokenizer import ROLE_TOKENS, OpenTurn, Tokenizer
from voiceagent_tts.seam.commands import Feeding
from voiceagent_tts.text.feed import Fed, TextFeed
from voiceagent_tts.text.readings import said

SEQUENCE_CHARS = 300
"""A growing sequence ends at the first sentence end after this many characters, about 20 s of
speech. Within that time the model keeps its timbre."""
_MOST_IDS_TO_START = 16
"""Some ten words. A listener waits for this much text to be written, but not for more."""


def read_first_text(tokenizer: Tokenizer) -> None:
    """Read a text, so that the first one of a listener does not wait for what is loaded with it.

    These are the rules of sentences in all languages, and the table of composed characters, which
    only a text that ends inside a word needs.
    """
    text = "That is all. " * (2 * SEQUENCE_CHARS // len("That is all. "))
    builder = SequenceBuilder(tokenizer, "token", None, ids_to_start=0)
    builder.append(text.removesuffix(". "), 0, None)
    builder.flush()


class SequenceBuilder:
    """Builds the sequences of one context from its text.

    Args:
        tokenizer: tokenizer of the model.
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
        self._feed = TextFeed(sequence_chars, language) if feeding == "token" else None
        self._turn: OpenTurn | None = None
        self._growing: Sequence | None = None

    @property
    def is_growing(self) -> bool:
        """Whether sequences grow with the text; then it may be appended in any portions."""
        return self._feed is not None

    def append(
        self,
        text: str,
        char_base: int,
        language: str | None,
        readings: tuple[Reading, ...] = (),
    ) -> None:
        """Append the context's next text, whose first character is `char_base`.

        Spans with a reading are said as that reading. In segment feeding its language may differ
        from that of the text before it.
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
        """Add words; those of a sequence together, as a call of the tokenizer costs most."""
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
