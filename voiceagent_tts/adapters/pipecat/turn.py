"""`PipecatTurn`: a turn in one of Pipecat's audio contexts, with the words that Pipecat commits.

Decides which words can be heard in the audio that has arrived.
"""

import re
import unicodedata
from dataclasses import dataclass

from voiceagent_tts.adapters.turn import Turn, TurnWord, audible_at
from voiceagent_tts.core import SAMPLE_RATE_HZ
from voiceagent_tts.protocol.client_connection import OpenOptions
from voiceagent_tts.text.words import is_spoken

_LAST_TOKEN = re.compile(r"\S+\Z")


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
        word: None for a text that is no word.
        position_s: where in the turn's audio such a text is.
        turn_text: the turn's text, of which it is a part.
    """

    text: str
    word: TurnWord | None = None
    position_s: float = 0.0
    turn_text: str = ""

    @property
    def reported(self) -> str:
        """What Pipecat waits for: it looks for a word in a piece without white space."""
        return next(filter(_is_reported, self.text.split()), self.text)

    @property
    def sent(self) -> str:
        """The text that its server context has got, or all of them."""
        return self.turn_text if self.word is None else self.word.record.text

    @property
    def is_whole(self) -> bool:
        """Whether the server has sent all audio of its context."""
        return self.word is None or self.word.record.done is not None

    def is_unheard(self, heard_samples: int) -> bool:
        """Whether it starts after so much audio of the turn, by the best time known now.

        A word that has left by an estimate may turn out to be later.
        """
        best = self.word and self.word.best
        if self.word is None or best is None or best.confidence == 1.0:
            return False
        return audible_at(self.word.begun_at) > heard_samples

    @property
    def start_s(self) -> float:
        """Where in the turn's audio it has surely begun, by the best time known now."""
        return self.word.begun_at / SAMPLE_RATE_HZ if self.word else self.position_s


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
        """Whether there are words whose audio has not begun to arrive, or a context without any."""
        if self.record is None:
            return not self.is_over and bool(self.rest.strip())
        return not self.samples or is_spoken(self.text[self.voiced_char_end :])

    def close_context(self, char_end: int) -> None:
        """The server context speaks no more; noted is whether it has spoken a word, or noise."""
        self._has_noise |= self.has_lost_text
        if char_end > self.spoken_char_end:
            self.broken_off_at_s = None
        super().close_context(char_end)

    def commit(self, words: list[TurnWord]) -> list[SpokenWord]:
        """The text up to each of `words`, as Pipecat commits it.

        Tags after the last word belong to no word, and a context that has lost its text may have
        spoken words that it has not timed; they enter the history when all its audio is played.
        """
        commits: list[SpokenWord] = []
        for word in words:
            pieces = _pieces(self.text[self._committed_chars : word.char_end])
            commits += [SpokenWord(text, word) for text in pieces]
            self._committed_chars, self._has_noise = word.char_end, False
        if self.record is None:
            untimed, position_s = self._untimed, self.samples / SAMPLE_RATE_HZ
            commits += [
                SpokenWord(text, position_s=position_s, turn_text=self.text)
                for text in _pieces(untimed)
            ]
            self._committed_chars += len(untimed)
        return commits

    @property
    def _untimed(self) -> str:
        """What the contexts have spoken after the last word, up to white space: no part of one."""
        end = self.spoken_char_end
        text = self.text[self._committed_chars : end]
        goes_on = bool(self.text[end : end + 1].strip())
        return _LAST_TOKEN.sub("", text) if goes_on else text
