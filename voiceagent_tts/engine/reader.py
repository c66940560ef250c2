"""A context's text becomes sequences of ids.

In segment feeding each text is a sequence. In token feeding a sequence grows with the text, and the
next begins at a sentence end once it is long; at every sentence end where a voice begins to speak
only when so much is written that a sentence is complete before. Ids that were given out never
change, whatever follows. Knows no rows and no voices.
"""

from collections import deque

from voiceagent_tts.engine.sequence import Sequence
from voiceagent_tts.model.tokenizer import ROLE_TOKENS, OpenTurn, Tokenizer
from voiceagent_tts.seam.commands import Feeding
from voiceagent_tts.text.feed import Fed, TextFeed
from voiceagent_tts.text.hygiene import speakable

RUN_CHARS = 300
"""A growing sequence ends with the first sentence that ends behind so many characters: about 20 s
of speech, within what the model keeps its timbre over."""
_MOST_IDS_TO_START = 16
"""Some ten words: a listener waits for so many to be written, not for more."""


class Reader:
    """One context's.

    Args:
        tokenizer: the model's.
        feeding: how the text comes.
        language: code of a growing text's language, if known.
        ids_to_start: how many ids the voice needs of a sequence that still grows.
        sequences: where they are put, in order.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        feeding: Feeding,
        language: str | None,
        ids_to_start: int,
        sequences: deque[Sequence],
    ) -> None:
        self._tokenizer = tokenizer
        self._language = language
        run_chars = RUN_CHARS if ids_to_start <= _MOST_IDS_TO_START else 1
        self._feed = TextFeed(run_chars, language) if feeding == "token" else None
        self._sequences = sequences
        self._turn: OpenTurn | None = None
        self._growing: Sequence | None = None

    def write(self, text: str, char_base: int, language: str | None) -> None:
        """Take the context's next text, whose first character is `char_base`.

        A text that is a sequence by itself may be in another language than the one before it.
        """
        if self._feed is not None:
            for fed in self._feed.push(text):
                self._grow(fed)
        elif text:
            ids = self._tokenizer.encode_turn("assistant", speakable(text).spoken)
            char_end = char_base + len(text)
            self._sequences.append(
                Sequence(False, ids, len(ids) - ROLE_TOKENS, char_end, language, is_open=False)
            )

    def end(self) -> None:
        """All text so far is to be spoken to its end: a flush, or no more text."""
        if self._feed is not None:
            for fed in self._feed.finish():
                self._grow(fed)

    def _grow(self, fed: Fed) -> None:
        if self._growing is None or self._growing.is_over or self._turn is None:
            self._turn = self._tokenizer.open_turn("assistant")
            # The ids before the text are no text.
            self._growing = Sequence(True, text_ids=-ROLE_TOKENS, language=self._language)
            self._sequences.append(self._growing)
        ids = self._turn.push(fed.spoken)
        if fed.ends_run:
            ids += self._turn.finish()
        self._growing.ids += ids
        self._growing.text_ids += len(ids)
        self._growing.char_end = fed.char_end
        if fed.ends_run:
            self._growing.is_open = False
            self._growing = self._turn = None
