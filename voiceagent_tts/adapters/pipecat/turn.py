"""`PipecatTurn`: a turn in one of Pipecat's audio contexts, with the words that Pipecat commits.

Decides which words can be heard in the audio that has arrived.
"""

import unicodedata
from dataclasses import dataclass

from voiceagent_tts.adapters.turn import HEARD_SAMPLES, Turn, audible_at, surely_begun_at
from voiceagent_tts.core import SAMPLE_RATE_HZ, WordTimestamp
from voiceagent_tts.protocol.client_connection import ContextRecord, OpenOptions
from voiceagent_tts.protocol.messages import DoneMessage
from voiceagent_tts.text.words import is_spoken


def _is_reported(piece: str) -> bool:
    """Whether Pipecat waits for `piece` as a word.

    It commits a symbol, such as a currency or an emoji, with a word before or after it; reported as
    one more word, the symbol at the end of a text would be committed twice.
    """
    return is_spoken(piece) or unicodedata.category(piece[0]).startswith("P")


def _pieces(text: str) -> list[str]:
    """Divide a text: each piece ends with one word that is reported, or with the text."""
    pieces, symbols = list[str](), list[str]()
    for piece in text.split():
        symbols.append(piece)
        if _is_reported(piece):
            pieces.append(" ".join(symbols))
            symbols.clear()
    if symbols:
        last = pieces.pop() if pieces else ""
        pieces.append(" ".join([last, *symbols]).strip())
    return pieces


@dataclass(frozen=True, slots=True)
class SpokenWord:
    """A piece of the text that Pipecat commits together, up to the end of a word.

    Attributes:
        text: the word as it stands in the text, with the tags and symbols beside it.
        first_start_s: where in the turn's audio it has surely begun, by the time known when it was
            returned.
        record: the server context that has spoken it; None for a text without audio.
    """

    text: str
    first_start_s: float
    record: ContextRecord | None = None
    context_start: int = 0
    char_end: int = 0

    @property
    def reported(self) -> str:
        """What Pipecat waits for: it looks for a word in a piece without white space."""
        return next(filter(_is_reported, self.text.split()), self.text)

    @property
    def sent(self) -> str:
        """The text that its server context has got."""
        return self.text if self.record is None else self.record.text

    @property
    def is_whole(self) -> bool:
        """Whether the server has sent all audio of its context."""
        return self.record is None or self.record.done is not None

    def is_unheard(self, heard_samples: int) -> bool:
        """Whether it starts after so much audio of the turn, by the best time known now.

        A word that has left by an estimate may turn out to be later.
        """
        best = self._best
        is_certain = best is None or best.confidence == 1.0
        return not is_certain and audible_at(round(self.start_s * SAMPLE_RATE_HZ)) > heard_samples

    @property
    def start_s(self) -> float:
        """Where in the turn's audio it has surely begun, by the best time known now."""
        if self.record is None or (best := self._best) is None:
            return self.first_start_s
        start = self.context_start + surely_begun_at(best, self.record.text)
        return start / SAMPLE_RATE_HZ

    @property
    def _best(self) -> WordTimestamp | None:
        words = self.record.best_words if self.record else []
        return next((each for each in words if each.word.char_end == self.char_end), None)


class PipecatTurn(Turn):
    """A turn with its words as Pipecat commits them."""

    def __init__(self, context_id: str, options: OpenOptions) -> None:
        super().__init__(context_id, options)
        self.broken_off_at_s: float | None = None
        """Since when no server context speaks the rest, or none has spoken one more word of it."""
        self._committed_chars = 0  # of the text that was returned as words
        self._has_noise = False  # whether a context made noise in place of the last of these

    @property
    def noise(self) -> str:
        """Text that was returned as words before the server knew that they were noise."""
        return self.text[self.spoken_char_end : self._committed_chars] if self._has_noise else ""

    @property
    def is_served(self) -> bool:
        """Whether a server context speaks the turn, on a socket that is open."""
        return self.record is not None and self.record.done is None and self.socket.lost is None

    @property
    def awaits_audio(self) -> bool:
        """Whether a server context has words whose audio has not begun to arrive, or no audio."""
        if self.record is None:
            return False
        return not self.samples or is_spoken(self.text[self.voiced_char_end :])

    def audible_words(self) -> list[SpokenWord]:
        """The words that became audible with the audio that has arrived, each once."""
        return self._to_commit(self.new_words(self._audible_samples), self._position)

    def finish(self, done: DoneMessage) -> list[SpokenWord]:
        """The server context has spoken all its text; returns the remaining words.

        Tags after the last word belong to no word; they enter the history when all audio is played.
        """
        self.broken_off_at_s = None
        position = self._position
        words = self._to_commit(self.finish_context(done.chars), position)
        tags = self.text[self._committed_chars : self.spoken_char_end].strip()
        if tags:
            self._committed_chars = self.spoken_char_end
            words.append(SpokenWord(tags, self.samples / SAMPLE_RATE_HZ))
        return words

    def break_off(self) -> list[SpokenWord]:
        """The server context has failed; returns the remaining words that are audible."""
        char_base, position = self.spoken_char_end, self._position
        self._has_noise |= self.has_lost_text
        words = self._to_commit(self.break_off_context(self._audible_samples), position)
        if self.spoken_char_end > char_base:
            self.broken_off_at_s = None
        return words

    @property
    def _audible_samples(self) -> int:
        """Words that start before this position count as heard in the audio that has arrived."""
        return self.samples - HEARD_SAMPLES

    @property
    def _position(self) -> tuple[ContextRecord | None, int, int]:
        return self.record, self.context_start, self.spoken_char_end

    def _to_commit(
        self, words: list[WordTimestamp], position: tuple[ContextRecord | None, int, int]
    ) -> list[SpokenWord]:
        """`words` as Pipecat commits them, without a word that broke off and is spoken again."""
        record, start_sample, char_base = position
        commits: list[SpokenWord] = []
        for timestamp in words:
            char_end = timestamp.word.char_end
            if char_end > self._committed_chars:
                start_s = surely_begun_at(timestamp, self.text) / SAMPLE_RATE_HZ
                commits += [
                    SpokenWord(text, start_s, record, start_sample, char_end - char_base)
                    for text in _pieces(self.text[self._committed_chars : char_end])
                ]
                self._committed_chars, self._has_noise = char_end, False
        return commits
