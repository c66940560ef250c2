"""`Turn`: one turn of an agent, spoken by one server context after the other.

Where a context breaks off, the next speaks the rest of the turn's text, from the word that broke
off; each word is handed on once. Positions are samples at 24 kHz of the turn's sound and characters
of the turn's text; those of a server context count from where it began.

Knows what has come and what is owed; no Pipecat, no socket, no clock.
"""

from dataclasses import replace

from voiceagent_tts.adapters.resumption import all_words, broken_off_at
from voiceagent_tts.core import SAMPLE_RATE_HZ, WordTimestamp, ms_to_samples, samples_to_ms
from voiceagent_tts.errors import VoiceAgentError
from voiceagent_tts.protocol.client_connection import ContextRecord
from voiceagent_tts.protocol.messages import DoneMessage, OpenOptions
from voiceagent_tts.text.borders import has_complete_word

_RESUME_ATTEMPTS = 3
"""So often in a row a turn goes on that gets no word further by it."""
_RESUME_WAIT_S = 0.3
"""Before the second and later attempts; the first comes at once."""

WordTime = tuple[str, float]
"""A word with all text since the word before it, and where it sounds in seconds of the turn."""


class Turn:
    """What is known of a turn.

    Args:
        context_id: Pipecat's audio context, and the first server context.
        options: how it is spoken, to its end.
        latency_s: how much of a word has come when it can be heard.
        now_s: the time.
    """

    def __init__(
        self, context_id: str, options: OpenOptions, *, latency_s: float, now_s: float
    ) -> None:
        self.context_id = context_id
        self.options = options
        self.text = ""
        self.record: ContextRecord | None = None
        """The server context that speaks; None where there is none."""
        self.active_at = now_s
        """When text was last sent or anything came."""
        self.is_ended = False
        """Whether no more text comes."""
        self.is_complete = False
        """Whether all of its text was spoken."""
        self.is_failed = False
        """Whether what has not been spoken never will be."""
        self._latency_samples = ms_to_samples(1000 * latency_s)
        self._contexts = 0
        self._failures = 0  # since a word was spoken
        self._char_base = 0  # where the text begins of the server context, or of the next
        self._start_sample = 0  # and where its sound does
        self._words_seen = 0  # of the server context's
        self._char_end = 0  # of the text that has been handed on as words

    @property
    def rest(self) -> str:
        """While no context speaks: the text that the next one is to speak."""
        return self.text[self._char_base :]

    @property
    def samples(self) -> int:
        """How much sound has come."""
        return self._start_sample + self._received_samples

    @property
    def is_owed_sound(self) -> bool:
        """Whether a server context has words, or an end, that it has not answered."""
        return self.record is not None and (
            self.is_ended or has_complete_word(self.text[self._char_end :])
        )

    @property
    def _received_samples(self) -> int:
        if self.record is None:
            return 0
        return self.record.samples_received * SAMPLE_RATE_HZ // self.record.audio.sample_rate

    def is_spoken_by(self, server_context_id: str | None) -> bool:
        """Whether this is the server context that speaks now."""
        return self.record is not None and self.record.context_id == server_context_id

    def next_server_context_id(self) -> str:
        """A name for the next server context."""
        self._contexts += 1
        return self.context_id if self._contexts == 1 else f"{self.context_id}-{self._contexts}"

    def played_ms(self, played_ms: int) -> int:
        """How much of the server context was heard when `played_ms` of the turn were."""
        return max(0, played_ms - samples_to_ms(self._start_sample))

    # Words.

    def moved(self, timestamp: WordTimestamp) -> WordTimestamp:
        """A word of the server context on the turn's clock, its place in the turn's text."""
        word = timestamp.word
        char_start, char_end = self._char_base + word.char_start, self._char_base + word.char_end
        word = replace(word, char_start=char_start, char_end=char_end)
        return replace(timestamp.later(self._start_sample), word=word)

    def take_words(self) -> list[WordTime]:
        """The words that can be heard in the sound that has come, each once."""
        return [] if self.record is None else self._take_heard(self.record.words)

    def _take_heard(self, words: list[WordTimestamp]) -> list[WordTime]:
        heard_samples = self._received_samples - self._latency_samples
        return self._take([w for w in words[self._words_seen :] if w.start_sample < heard_samples])

    def _take(self, words: list[WordTimestamp]) -> list[WordTime]:
        taken: list[WordTime] = []
        self._words_seen += len(words)
        for timestamp in map(self.moved, words):
            char_end = timestamp.word.char_end
            if char_end <= self._char_end:
                continue  # it broke off, and is said again
            text = self.text[self._char_end : char_end].strip()
            taken.append((text, timestamp.start_sample / SAMPLE_RATE_HZ))
            self._char_end = char_end
        return taken

    # The ends of a server context.

    def finish(self, done: DoneMessage) -> list[WordTime]:
        """The server context has spoken all that it took; returns the words that are left."""
        assert self.record is not None
        words = self._take(self.record.words[self._words_seen :])
        self._leave(self._char_base + done.chars)
        return words

    def break_off(self) -> list[WordTime]:
        """The server context has failed; returns the words that are left and have sound."""
        assert self.record is not None
        text, told, received = self.record.text, self.record.words, self._received_samples
        words = self._take_heard(all_words(text, told))
        spoken = broken_off_at(text, told, received)
        if spoken:
            self._failures = 0
        self._leave(self._char_base + spoken)
        return words

    def _leave(self, char_end: int) -> None:
        self._start_sample = self.samples
        self._char_base = char_end
        self._words_seen = 0
        self.record = None

    def retry_wait_s(self, error: VoiceAgentError) -> float | None:
        """How long to wait after `error` until another context; None where that is no use."""
        if not error.is_retryable or self._failures >= _RESUME_ATTEMPTS:
            return None
        wait_s = _RESUME_WAIT_S if self._failures else 0.0
        self._failures += 1
        return max(wait_s, (error.retry_after_ms or 0) / 1000)
