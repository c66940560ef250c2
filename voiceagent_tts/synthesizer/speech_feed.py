"""Sends the segments of a context to its engine, announces their words, and inserts the breaks."""

from collections import deque
from collections.abc import Callable

from voiceagent_tts.core import AudioChunk, Segment
from voiceagent_tts.synthesizer.events import ContextWarned
from voiceagent_tts.synthesizer.intake import Intake
from voiceagent_tts.synthesizer.ipa import ipa_warning
from voiceagent_tts.synthesizer.options import ContextRequest
from voiceagent_tts.synthesizer.phrase_hold import PhraseHold
from voiceagent_tts.synthesizer.segment_source import SegmentSource
from voiceagent_tts.synthesizer.timers import MakeTimer
from voiceagent_tts.synthesizer.unserved import language_warning
from voiceagent_tts.synthesizer.words import WordPublisher
from voiceagent_tts.text.reader import Pause

_CHECKED_CHARS = 60
"""Characters of a text that grows by tokens after which their language is looked at."""


class SpeechFeed:
    """Takes the segments and breaks of one context from its intake to its engine and its words.

    Args:
        request: what the client asked for, resolved.
        intake: where the segments and breaks come from.
        engine: speaks the segments.
        words: expects their words.
        on_first: called when the engine has received the first text.
        warn: receives warnings for the client.
        make_timer: makes its timer.
    """

    def __init__(
        self,
        request: ContextRequest,
        intake: Intake,
        engine: SegmentSource,
        words: WordPublisher,
        *,
        on_first: Callable[[], None],
        warn: Callable[[ContextWarned], None],
        make_timer: MakeTimer,
    ) -> None:
        self._is_token_fed = request.feeding == "token"
        self._reads_ipa = request.reads_ipa
        self._language = request.language
        self._checks_language = bool(request.languages)
        self._checked_char_end = 0
        self._intake = intake
        self._engine = engine
        self._words = words
        self._on_first = on_first
        self._warn = warn
        self._hold = PhraseHold(request.phrases, request.language, self._send, make_timer)
        self._breaks: deque[Pause] = deque()
        """Breaks that wait for the audio of the text before them."""

    def push(self, segment: Segment, is_last: bool) -> None:
        """Speak a segment of the intake; in token feeding, a part of the text as it was written."""
        has_ipa = not self._reads_ipa and segment.readings
        if has_ipa and (warning := ipa_warning(segment, self._intake.text)):
            self._reads_ipa = True  # the client knows
            self._warn(warning)
        if self._is_token_fed:
            self._check_language(segment.char_end, least_chars=_CHECKED_CHARS)
            self._hold.push(segment)
            return
        if self._intake.segment_language is not None:
            self._engine.place(self._intake.segment_language)
        self._check_language(segment.char_end)
        self._send(segment, is_live=False, is_last=is_last)

    def _check_language(self, char_end: int, *, least_chars: int = 1) -> None:
        """Warn of text that the voice does not speak, once there is enough of it."""
        if not self._checks_language or char_end - self._checked_char_end < least_chars:
            return
        text = self._intake.text[self._checked_char_end : char_end]
        self._checked_char_end = char_end
        if warning := language_warning(text, self._language, self._engine.languages):
            self._checks_language = False  # the client knows
            self._warn(warning)

    def push_break(self, pause: Pause) -> None:
        """Keep a break until the text before it is spoken, and let the engine speak that text."""
        self._breaks.append(pause)
        self._words.timeline.expect_break(pause.char_end)
        self.complete_text()

    def complete_text(self) -> None:
        """Make the engine speak all submitted text of a token-fed context to its end."""
        self._check_language(self._intake.submitted_char_end)
        self._hold.flush()
        if self._is_token_fed and self._engine.is_speaking:
            self._engine.flush()
            self._words.complete_word()

    def finish(self) -> bool:
        """Speak the rest of the text, and tell the engine that no text follows.

        Returns:
            Whether the engine's `Done` follows; a context that never had any text needs no engine.
        """
        has_sent_end = self._intake.finish()
        self._check_language(self._intake.submitted_char_end)
        self._hold.flush()
        self._words.complete_word()
        if has_sent_end:
            return True  # the last segment carried the end of the text
        if self._engine.is_speaking:
            self._engine.end_text(self._intake.submitted_char_end)
        return self._engine.is_speaking

    def pop_breaks(self, char_end: int) -> list[AudioChunk]:
        """Return the silence of the breaks in the text before `char_end`, which is spoken."""
        silence: list[AudioChunk] = []
        while self._breaks and self._breaks[0].char_end <= char_end:
            pause = self._breaks.popleft()
            silence += self._words.timeline.push_break(pause.char_end, pause.samples)
        return silence

    def stop(self) -> None:
        """Hold no text back any more; what is held is dropped."""
        self._hold.stop()

    def _send(self, segment: Segment, is_live: bool, is_last: bool = False) -> None:
        """Speak text from the cache or with the engine, or where `is_live` with the engine."""
        is_first = not self._engine.is_speaking
        language = self._intake.segment_language
        is_spoken = self._engine.speak(segment, language, is_last=is_last, is_live=is_live)
        self._words.expect(segment, is_whole=not is_live, is_live=is_spoken)
        if is_first:
            self._on_first()
