"""`Turn`: one turn of an agent, spoken by one server context after another.

When a context breaks off, the next one resumes the turn at the word that broke off. This module
sends the turn's text, decides where to resume, when a word is heard and whether the server is
silent, and translates each context's positions into the turn's. `adapters.reply` speaks a turn.

Positions are samples at 24 kHz of the turn's audio and characters of the turn's text; those of a
server context count from that context's start. Current times are arguments.
"""

import enum
import re
from bisect import bisect_left
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import pairwise
from operator import itemgetter

from voiceagent_tts.client import ClientSocket
from voiceagent_tts.core import (
    BYTES_PER_SAMPLE,
    SAMPLE_RATE_HZ,
    Pause,
    Word,
    WordTimestamp,
    ms_to_samples,
)
from voiceagent_tts.errors import EngineError, ErrorCode, InvalidRequestError
from voiceagent_tts.lexicon import check_entries
from voiceagent_tts.protocol.client_connection import (
    ClientAudio,
    ClientEvent,
    ContextRecord,
    Inbox,
    OpenOptions,
    error_of,
)
from voiceagent_tts.protocol.messages import DoneMessage, ErrorMessage
from voiceagent_tts.text.cleaning import speakable
from voiceagent_tts.text.entries import EntryMatcher
from voiceagent_tts.text.estimate import ESTIMATE_CONFIDENCE, typical_samples
from voiceagent_tts.text.markup import MAX_TAG_CHARS
from voiceagent_tts.text.punctuation import CLAUSE_ENDS, SENTENCE_ENDS, last_mark
from voiceagent_tts.text.reader import Passage, Reader
from voiceagent_tts.text.segmenter import complete_words_end
from voiceagent_tts.text.words import split_words

UNSPOKEN_MS = 40
"""Length of the silence for a text of which nothing is said: without audio, a turn is a failure to
both hosts."""
HEARD_SAMPLES = ms_to_samples(20)
"""Length of a word from which it counts as heard."""
_MAX_MISSING_SAMPLES = ms_to_samples(80)
"""A word that lacks more of its end than this, or than half of it, is spoken again."""
_PAUSE_DOUBT_SAMPLES = ms_to_samples(40)
"""Time by which an aligner may place a word too early, in the pause before it. It leaves an unheard
word in 0.3 % of the cuts of hibari's speech, in place of 0.65 %; as many are exact."""
_PAUSE_MARKS = SENTENCE_ENDS | CLAUSE_ENDS
_EMPHASIS = "*_`"
"""Signs of Markdown that may follow a mark."""
_BREAK_AT_END = re.compile(r"<break\b[^<>]*>$")
_MESSAGE_CHARS = 4_000
"""Text of one message: some limit its bytes, and JSON has up to twelve for a character."""
_UNKNOWN_WORD_SAMPLES = ms_to_samples(250)
"""Assumed length of a word whose end is not known."""
_FIRST_WORDS_CHARS = 256
"""Characters that contain any first word, with marks and markup around it."""


def silence(seconds: float, rate_hz: int) -> bytes:
    """PCM of silence."""
    return bytes(round(seconds * rate_hz) * BYTES_PER_SAMPLE)


class WholeCharacters:
    """Joins the halves of characters: some LLM servers stream UTF-16, and an emoji as two tokens.

    A half alone becomes U+FFFD; no message can carry it.
    """

    def __init__(self) -> None:
        self._half = ""

    def add(self, text: str) -> str:
        """The half that waits, and `text`, of which a first half at its end waits for the next."""
        text = self._half + text
        self._half = text[-1:] if "\ud800" <= text[-1:] <= "\udbff" else ""
        return whole_characters(text.removesuffix(self._half))

    def end(self) -> str:
        """What stands for the half that has waited in vain; empty without one."""
        half, self._half = self._half, ""
        return whole_characters(half)


def whole_characters(text: str) -> str:
    """A complete text with its halves of characters joined, or replaced by U+FFFD."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def heard_samples(played: int, latency_s: float) -> int:
    """How much of the `played` audio has reached the listener, `latency_s` after the output."""
    return max(0, played - ms_to_samples(1000 * latency_s))


def audible_at(word_start: int, latency_s: float = 0.0) -> int:
    """How much an output has played once a word that starts at `word_start` counts as heard."""
    return word_start + HEARD_SAMPLES + ms_to_samples(1000 * latency_s)


def surely_begun_at(timestamp: WordTimestamp, text: str) -> int:
    """The position at which a word has surely begun; only an engine's own times are certain.

    Offsets of the word count in `text`.
    """
    char_start = timestamp.word.char_start
    before = text[max(0, char_start - MAX_TAG_CHARS) : char_start]
    is_doubtful = timestamp.confidence < 1.0 and _ends_with_pause(before)
    return timestamp.start_sample + (_PAUSE_DOUBT_SAMPLES if is_doubtful else 0)


def _ends_with_pause(text: str) -> bool:
    """Whether a voice pauses between `text` and the word after it: at a mark, a line or a break.

    Signs that join words, or are said, are no marks, and neither are signs of a vowel or a tone.
    """
    before = text.rstrip()
    is_line_end = bool(before) and "\n" in text[len(before) :]
    is_mark = last_mark(before.rstrip(_EMPHASIS)) in _PAUSE_MARKS
    return is_line_end or is_mark or _BREAK_AT_END.search(before) is not None


class TurnState(enum.Enum):
    """The progress of a turn."""

    OPEN = enum.auto()
    """More text may come."""
    FINISHING = enum.auto()
    """No more text arrives; the received text is being spoken."""
    COMPLETE = enum.auto()
    """All text was spoken."""
    FAILED = enum.auto()
    """The remaining text will not be spoken; text that still arrives is dropped."""


@dataclass(frozen=True, slots=True)
class TurnWord:
    """A word of a turn, and the server context that has spoken it, which may find a better time.

    Attributes:
        timestamp: its place in that context, and the time known when it was returned.
        context_start: where the audio of the context starts in the turn's.
        context_char_start: where the text of the context starts in the turn's.
    """

    timestamp: WordTimestamp
    record: ContextRecord
    context_start: int
    context_char_start: int

    @property
    def char_end(self) -> int:
        """Where it ends in the turn's text."""
        return self.context_char_start + self.timestamp.word.char_end

    @property
    def best(self) -> WordTimestamp | None:
        """The best time that the server has sent; None for a word that it does not report."""
        words, char_end = self.record.best_words, self.timestamp.word.char_end
        index = bisect_left(words, char_end, key=lambda each: each.word.char_end)
        is_there = index < len(words) and words[index].word.char_end == char_end
        return words[index] if is_there else None

    @property
    def start_sample(self) -> int:
        """Where in the turn's audio it starts, by the best time known now."""
        return self.context_start + (self.best or self.timestamp).start_sample

    @property
    def begun_at(self) -> int:
        """Where in the turn's audio it has surely begun, by the best time known now."""
        best = self.best or self.timestamp
        return self.context_start + surely_begun_at(best, self.record.text)


class Turn:
    """Tracks the text and audio of a turn, and which part of it the current context speaks.

    Args:
        context_id: name of the turn, and of its first server context.
        start_sample: where its audio starts: after silence that the host plays first.
        max_failures: attempts in a row to resume that may fail; 0 for no attempt.
        retry_wait_s: wait before the second and later attempts; the first one starts at once.
    """

    socket: ClientSocket
    """Of the server context that speaks, or that spoke last."""

    def __init__(
        self,
        context_id: str,
        options: OpenOptions,
        *,
        start_sample: int = 0,
        max_failures: int = 3,
        retry_wait_s: float = 0.3,
    ) -> None:
        self.context_id = context_id
        self.state = TurnState.OPEN
        self.text = ""
        """The turn's text that has arrived so far."""
        self.record: ContextRecord | None = None
        """The server context that speaks now; None between two contexts."""
        self.failures = 0
        """Attempts to resume that count, since a word was spoken."""
        self.options = options
        """Of the next server context."""
        self._attempts = 0  # since then, whether they count or not
        self._max_failures = max_failures
        self._retry_wait_s = retry_wait_s
        self._contexts_named = 0
        self._pieces: list[tuple[int, int]] = []  # ends of the text's, and the audio before each
        self._owed_from: int | None = None  # start of text that has begun with words that are said
        self.spoken_char_end = 0
        """End of the text that the contexts before the current one, or before the next, spoke."""
        self._sent_char_end = 0  # end of the text that the current context has
        self.context_start = start_sample
        """Where the audio of the current context starts in the turn's."""
        self.context_samples = 0
        """Audio of the current context that has arrived."""
        self._words_returned = 0  # of the current context
        self.returned_char_end = 0
        """End of the text that was returned as words; a word that is spoken again is not again."""
        self._answered_at_s = 0.0  # when its server last sent something, or owed nothing

    @property
    def rest(self) -> str:
        """The text that the next context has to speak, while no context speaks."""
        return self.text[self.spoken_char_end :]

    @property
    def has_lost_text(self) -> bool:
        """Whether the current context has made noise in place of words that the server has sent."""
        return self.record is not None and self.record.spoken_chars is not None

    @property
    def samples(self) -> int:
        """Audio of the turn that has arrived."""
        return self.context_start + self.context_samples

    @property
    def voiced_char_end(self) -> int:
        """End of the text whose audio has arrived, at least in part, while a context speaks.

        The last word counts by the time with which it was sent: later an aligner may find it at the
        end of the audio, or after it.
        """
        assert self.record is not None
        words, received = self.record.words, self.context_samples
        if words and self.record.last_start_sample >= received:
            words = [word for word in words[:-1] if word.start_sample < received]
        return self.spoken_char_end + (words[-1].word.char_end if words else 0)

    def is_spoken_by(self, server_context_id: str | None) -> bool:
        """Whether `server_context_id` is the context that speaks now."""
        return self.record is not None and self.record.context_id == server_context_id

    @property
    def is_over(self) -> bool:
        """Whether no more text is spoken."""
        return self.state in (TurnState.COMPLETE, TurnState.FAILED)

    def next_server_context_id(self) -> str:
        """A new name for the next server context."""
        self._contexts_named += 1
        if self._contexts_named == 1:
            return self.context_id
        return f"{self.context_id}-{self._contexts_named}"

    # Text to the server.

    def append(self, text: str, now_s: float) -> None:
        """Add text, and send it to the current context; after its end, the next one speaks it."""
        self._note_answer_unless_owed(now_s)
        self.text += whole_characters(text)
        self._pieces.append((len(self.text), self.samples))
        self._send_text()

    def flush(self) -> None:
        """Have the current context speak the text that it has; more than that needs no flush."""
        context_id = self._open_context_id
        if context_id is not None and self._sent_char_end == len(self.text):
            self.socket.send(self.socket.connection.flush(context_id))

    def end_text(self, now_s: float) -> None:
        """Mark the text as complete."""
        self._note_answer_unless_owed(now_s)
        self.state = TurnState.FINISHING
        self._send_text()

    def open_context(self, socket: ClientSocket, inbox: Inbox, now_s: float) -> ContextRecord:
        """Open a server context that speaks the rest; returns its record.

        Raises:
            VoiceAgentError: the server accepts no context now, or an option is wrong.
        """
        record = self._open_unused(socket, inbox)
        self.socket = socket
        self.start_context(record)
        self._answered_at_s = now_s
        self._send_text()
        return record

    def abandon_context(self) -> None:
        """Cancel the current context, if there is one, and receive no more of its events."""
        if self.record is not None:
            self.socket.abandon(self.record.context_id)

    @property
    def _open_context_id(self) -> str | None:
        record = self.record
        return record.context_id if record is not None and record.accepts_text else None

    def _send_text(self) -> None:
        if (context_id := self._open_context_id) is None:
            return
        connection = self.socket.connection
        while (start := self._sent_char_end) < (accepted_end := self._accepted_char_end()):
            self._sent_char_end = min(start + _MESSAGE_CHARS, accepted_end)
            text = self.text[start : self._sent_char_end]
            self.socket.send(connection.text(context_id, text))
        if self.state is TurnState.FINISHING and self._sent_char_end == len(self.text):
            self.socket.send(connection.end(context_id))

    def _accepted_char_end(self) -> int:
        ready = self.socket.connection.ready
        waiting_chars = ready.limits.max_text_chars // 2 if ready else _MESSAGE_CHARS
        if len(self.text) - self.spoken_char_end <= waiting_chars:
            return len(self.text)
        voiced_end = self.voiced_char_end
        if not self._owes_audio(voiced_end, self._sent_char_end):
            voiced_end = self._sent_char_end  # what it has there is not spoken
        return min(len(self.text), voiced_end + waiting_chars)

    def _note_answer_unless_owed(self, now_s: float) -> None:
        if not self.is_owed_audio:
            self._answered_at_s = now_s

    # The silence of the server.

    @property
    def is_owed_audio(self) -> bool:
        """Whether the current context still has to answer words or an end.

        No answer is due for a last word that may still grow: the server waits for its rest.
        """
        if self.record is None:
            return False
        if self.state is TurnState.FINISHING:
            return True
        voiced_end = self.voiced_char_end
        # Asked for each token: what begins with words that are said does so whatever comes next.
        if voiced_end != self._owed_from and self._owes_audio(voiced_end, len(self.text)):
            self._owed_from = voiced_end
        return voiced_end == self._owed_from

    def _owes_audio(self, char_start: int, char_end: int) -> bool:
        """Whether this part of the text begins with words that are said, whatever comes next."""
        assert self.record is not None
        text = self.text[char_start : min(char_end, char_start + _FIRST_WORDS_CHARS)]
        if complete_words_end(text) is None:
            return False
        # The beginning of a tag stays in the reader: what it says is not known.
        masked = _text_of(Reader(has_markup=self.record.has_markup).push(text))
        return bool(speakable(masked[: complete_words_end(masked) or 0]).spoken)

    def note_answer(self, now_s: float) -> None:
        """Note that the server has sent an event of the current context, and send on."""
        self._answered_at_s = now_s
        self._send_text()

    def silent_s(self, now_s: float) -> float | None:
        """How long the server has been silent while it owed audio; None while it owes none."""
        return now_s - self._answered_at_s if self.is_owed_audio else None

    # One server context.

    def _open_unused(self, socket: ClientSocket, inbox: Inbox) -> ContextRecord:
        """Open a context under a name that the socket has not had: a turn before may have had it.

        A host speaks a late piece of text in a turn of the same name.
        """
        while True:
            try:
                return socket.open(self.next_server_context_id(), inbox, **self.options)
            except InvalidRequestError as error:
                if error.code is not ErrorCode.CONTEXT_EXISTS:
                    raise

    def start_context(self, record: ContextRecord) -> None:
        """The server context of `record` speaks the rest from now on."""
        assert self.record is None, "expected the last context to be finished or broken off"
        self.record = record
        self.context_samples = self._words_returned = 0
        self._sent_char_end = self.spoken_char_end

    def receive(self, event: ClientEvent, now_s: float) -> list[TurnWord]:
        """Account for an event of the current context; returns the words that became audible.

        With `done`, these are its last words, and no context speaks.

        Raises:
            VoiceAgentError: the context has failed, and is still the current one.
        """
        self.note_answer(now_s)
        match event:
            case ClientAudio():
                self.receive_audio(event)
            case ErrorMessage(code=ErrorCode.CONTEXT_CLOSED):
                pass  # its `done` follows, once its audio has left; the rest is spoken then
            case ErrorMessage():
                raise error_of(event)
            case DoneMessage(reason="complete" | "idle"):
                return self.finish_context(event.chars)
            case DoneMessage(reason="limit") if self._broken_off()[1]:
                return self.break_off_context()
            case DoneMessage():  # also at a limit without a word: the next one would end as it did
                raise EngineError(f"the server ended a turn: {event.reason}")
            case _:
                pass
        return self.new_words()

    def receive_audio(self, audio: ClientAudio) -> None:
        """Account for audio of the current context."""
        assert self.record is not None
        end_offset = audio.sample_offset + len(audio.pcm) // BYTES_PER_SAMPLE
        self.context_samples = end_offset * SAMPLE_RATE_HZ // self.record.audio.sample_rate

    def placed(self, words: Iterable[WordTimestamp]) -> list[WordTimestamp]:
        """Words of the current context, at their positions in the turn."""
        start = self.spoken_char_end
        return [
            replace(
                timestamp.later(self.context_start),
                word=Word(word.text, start + word.char_start, start + word.char_end),
            )
            for timestamp in words
            for word in [timestamp.word]
        ]

    def new_words(self) -> list[TurnWord]:
        """The words that became audible with the audio that has arrived, each once."""
        return [] if self.record is None else self._return(self.record.words, is_audible=True)

    def _return(self, words: list[WordTimestamp], *, is_audible: bool = False) -> list[TurnWord]:
        """Those of the current context's `words` that were not returned before.

        Words that do not count as heard in the audio that has arrived may be left for another call.
        """
        assert self.record is not None
        new = words[self._words_returned :]
        if is_audible:
            audible = self.context_samples - HEARD_SAMPLES
            new = [timestamp for timestamp in new if timestamp.start_sample < audible]
        self._words_returned += len(new)
        returned: list[TurnWord] = []
        for timestamp in new:
            word = TurnWord(timestamp, self.record, self.context_start, self.spoken_char_end)
            if word.char_end > self.returned_char_end:
                self.returned_char_end = word.char_end
                returned.append(word)
        return returned

    # The end of a server context.

    def finish_context(self, chars: int) -> list[TurnWord]:
        """The current context has spoken its first `chars` characters; returns its last words."""
        assert self.record is not None
        words = self._return(self.record.words)
        self.close_context(self.spoken_char_end + chars)
        return words

    def break_off_context(self) -> list[TurnWord]:
        """The current context has failed; the next one resumes at the word that broke off.

        Returns:
            The context's last words that are audible; words that the server has not timed have
            estimated times. If the context has lost its text, those that it had spoken before.
        """
        words, spoken_chars = self._broken_off()
        returned = self._return(words, is_audible=True)
        self._count_attempt(spoken_chars)
        self.close_context(self.spoken_char_end + spoken_chars)
        return returned

    def _broken_off(self) -> tuple[list[WordTimestamp], int]:
        """The words of the current context if it ends now, and how much of its text is spoken."""
        assert self.record is not None
        known, spoken_chars = self.record.words, self.record.spoken_chars
        if spoken_chars is not None:
            return known, spoken_chars
        words = all_words(masked_text(self.record), known, self._earliest_sample)
        return words, resume_position(words, len(known), self.context_samples)

    def _earliest_sample(self, word: Word) -> int:
        """Where in the current context's audio a word can begin: after what came before its text.

        A slow LLM writes a word when the audio of those before it has arrived.
        """
        char_end = self.spoken_char_end + word.char_end
        piece = bisect_left(self._pieces, char_end, key=itemgetter(0))
        return max(0, self._pieces[piece][1] - self.context_start)

    def _count_attempt(self, spoken_chars: int) -> None:
        if spoken_chars:
            self._attempts = self.failures = 0
        elif self.context_samples:
            # A text that is lost twice at one place is lost again; each time is seconds of noise.
            self.failures += max(1, self._max_failures) if self.has_lost_text else 1

    def can_resume(self, *, is_retryable: bool) -> bool:
        """Whether another server context may speak on, as far as that depends on the turn."""
        return is_retryable and 0 < self._max_failures >= self.failures

    def next_wait_s(self, asked_s: float) -> float:
        """Wait before the next attempt to resume; the server asks for at least `asked_s`."""
        wait_s = self._retry_wait_s if self._attempts else 0.0
        self._attempts += 1
        return max(wait_s, asked_s)

    def close_context(self, char_end: int) -> None:
        """The current context speaks no more; the next one starts at character `char_end`."""
        self.context_start = self.samples
        self.context_samples = 0
        self.spoken_char_end = char_end
        self.record = None


def masked_text(record: ContextRecord) -> str:
    """A context's text, of the same length, in which the words are those that the server reports.

    An element of markup, and a span of the context's lexicon, is one word; other tags are none.
    """
    lexicons = [EntryMatcher(check_entries(record.lexicon))] if record.lexicon else []
    reader = Reader(lexicons, has_markup=record.has_markup)
    return _text_of([*reader.push(record.text), *reader.flush()])


def _text_of(parts: Iterable[Passage | Pause]) -> str:
    return "".join(part.text for part in parts if isinstance(part, Passage))


def all_words(
    text: str, known: list[WordTimestamp], earliest_sample: Callable[[Word], int]
) -> list[WordTimestamp]:
    """All words of a context's masked text: those that the server has timed, and estimates.

    Engines with native word times send each word with its audio, so no word is missing. Words of
    other engines are sent just before they are played, long after their audio. `earliest_sample`
    returns where a word can begin.
    """
    if not known or known[-1].confidence == 1.0:
        return known
    end = known[-1].word.char_end  # a word of a lexicon that only the server has may be several
    words = [word for word in split_words(text) if word.char_start >= end]
    return known + _estimate(known, words, earliest_sample)


def resume_position(words: list[WordTimestamp], known: int, received_samples: int) -> int:
    """Character at which another context resumes: the end of the last word with all its audio.

    The first `known` words are those that the server has timed.
    """
    complete = sum(_is_complete(word, end, received_samples) for word, end in _with_ends(words))
    if complete > known:
        complete -= 1  # an estimate may be late, and repeating a word is better than losing it
    return words[complete - 1].word.char_end if complete else 0


def _with_ends(words: list[WordTimestamp]) -> list[tuple[WordTimestamp, int]]:
    """Each word with the position where its audio ends: where the next word starts."""
    ends = [word.start_sample for word in words[1:]]
    ends += [word.end_sample or word.start_sample + _UNKNOWN_WORD_SAMPLES for word in words[-1:]]
    return list(zip(words, ends, strict=True))


def _is_complete(word: WordTimestamp, end: int, received_samples: int) -> bool:
    length = end - word.start_sample
    return end - received_samples <= min(_MAX_MISSING_SAMPLES, length // 2)


def _estimate(
    known: list[WordTimestamp], words: list[Word], earliest_sample: Callable[[Word], int]
) -> list[WordTimestamp]:
    """Estimated times for `words`, which follow the `known` words at the pace of these."""
    usual = sum(typical_samples(timestamp.word) for timestamp in known[:-1])
    spoken = known[-1].start_sample - known[0].start_sample
    pace = spoken / usual if usual and spoken else 1.0
    estimates: list[WordTimestamp] = []
    start = float(known[-1].start_sample)
    for before, word in pairwise([known[-1].word, *words]):
        start = max(start + typical_samples(before) * pace, earliest_sample(word))
        estimates.append(WordTimestamp(word, round(start), None, ESTIMATE_CONFIDENCE))
    return estimates
