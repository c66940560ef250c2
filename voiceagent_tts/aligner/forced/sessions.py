"""Which sound the forced aligner is asked about, and when: the clips of many contexts, together.

A context is asked about where a segment ends, and before that whenever enough sound has come. Then
its end may be cut off in a word, and only what lies well before it counts. Clips that are due at
once share a pass. Knows no network, no sockets, no deadlines and no listeners.
"""

import logging
from collections import deque
from collections.abc import Sequence, Set
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Protocol

from voiceagent_tts.aligner.forced.prompt import Clip
from voiceagent_tts.aligner.online.sessions import aligner_capabilities
from voiceagent_tts.core import BYTES_PER_SAMPLE, Word, WordTimestamp, ms_to_samples
from voiceagent_tts.errors import EngineError, ErrorCode, VoiceAgentError
from voiceagent_tts.seam.alignment import (
    AlignCommand,
    Aligned,
    AlignInbox,
    AlignOutbox,
    Expect,
    Finish,
    Follow,
)
from voiceagent_tts.seam.commands import Cancel
from voiceagent_tts.seam.events import AudioStep, Cancelled, Capabilities, Done, Failed, SegmentEnd

_MAX_CONTEXTS = 256
_UNSURE_SAMPLES = ms_to_samples(500)
"""Behind a word that ends so close to the end of an unfinished clip there may be more of it."""
_FASTEST_WORDS_PER_S = 8.0
_SECOND_SAMPLES = ms_to_samples(1000)

_logger = logging.getLogger(__name__)


class AlignsClips(Protocol):
    """What a forced aligner can do: see `forced.ForcedAligner`."""

    @property
    def languages(self) -> Set[str]:
        """Codes of the languages that it knows."""
        ...

    def align(self, clips: Sequence[Clip]) -> list[tuple[WordTimestamp, ...]]:
        """The times of every word of every clip, in samples of the clip."""
        ...


@dataclass(frozen=True, slots=True)
class Pacing:
    """How much is asked.

    Args:
        pass_samples: new sound of a segment that is still spoken, after which it is asked about.
        step_samples: sound of all clips of one step, or one clip.
    """

    pass_samples: int
    step_samples: int


@dataclass(frozen=True, slots=True)
class _Question:
    """A clip of a context.

    Attributes:
        words: those that may be in it.
        end_sample: of the clip, on the context's clock.
        char_end: the words before it end in the clip; None where it may be cut off in a word.
    """

    words: tuple[Word, ...]
    end_sample: int
    char_end: int | None


@dataclass(slots=True)
class _Heard:
    """What is kept of one context: the sound and the words that have no times yet.

    Attributes:
        start_sample: where `pcm` begins on the context's clock.
        asked_samples: how much of the context had been heard when it was asked about last.
        ends: (char_end, end_sample) of segments that have ended since.
        is_finished: nothing more comes.
    """

    language: str
    words: deque[Word] = field(default_factory=deque[Word])
    pcm: bytearray = field(default_factory=bytearray)
    start_sample: int = 0
    asked_samples: int = 0
    ends: deque[tuple[int, int]] = field(default_factory=deque[tuple[int, int]])
    is_finished: bool = False

    @property
    def end_sample(self) -> int:
        """How much of the context has been heard."""
        return self.start_sample + len(self.pcm) // BYTES_PER_SAMPLE

    def question(self, pass_samples: int) -> _Question | None:
        """What to ask next, if anything."""
        if self.ends:
            char_end, end_sample = self.ends[0]
            ending = takewhile(lambda word: word.char_start < char_end, self.words)
            return _Question(tuple(ending), end_sample, char_end)
        if self.is_finished:
            char_end = self.words[-1].char_end if self.words else 0
            return _Question(tuple(self.words), self.end_sample, char_end)
        if self.words and self.end_sample - self.asked_samples >= pass_samples:
            seconds = (self.end_sample - self.start_sample) / _SECOND_SAMPLES
            count = int(seconds * _FASTEST_WORDS_PER_S) + 1
            return _Question(tuple(self.words)[:count], self.end_sample, None)
        return None

    def clip(self, question: _Question) -> Clip:
        """The sound of a question."""
        end = (question.end_sample - self.start_sample) * BYTES_PER_SAMPLE
        return Clip(question.words, bytes(self.pcm[:end]), self.language)

    def take(
        self, question: _Question, times: Sequence[WordTimestamp]
    ) -> tuple[WordTimestamp, ...]:
        """Keep what is certain of an answer, in the context's clock, and forget its sound."""
        start = self.start_sample
        placed = [time.later(start) for time in times]
        self.asked_samples = question.end_sample
        if question.char_end is not None:
            if self.ends:
                self.ends.popleft()
            self._forget(len(placed), question.end_sample)
            return tuple(placed)
        sure = question.end_sample - _UNSURE_SAMPLES
        certain = tuple(takewhile(lambda time: (time.end_sample or 0) <= sure, placed))
        if certain:
            following = placed[len(certain) :]
            self._forget(len(certain), following[0].start_sample if following else sure)
        return certain

    def _forget(self, words: int, until_sample: int) -> None:
        for _ in range(words):
            self.words.popleft()
        until_sample = max(until_sample, self.start_sample)
        del self.pcm[: (until_sample - self.start_sample) * BYTES_PER_SAMPLE]
        self.start_sample = until_sample


class ForcedSessions:
    """Implements what `worker.host` runs, over a forced aligner.

    Args:
        inbox: where commands come from.
        outbox: where answers go.
        aligner: the network.
        pacing: how much it is asked.
    """

    def __init__(
        self, inbox: AlignInbox, outbox: AlignOutbox, aligner: AlignsClips, pacing: Pacing
    ) -> None:
        self._inbox = inbox
        self._outbox = outbox
        self._aligner = aligner
        self._pacing = pacing
        self._contexts: dict[int, _Heard] = {}

    @property
    def capabilities(self) -> Capabilities:
        """What this process is; it speaks nothing."""
        return aligner_capabilities("forced", "Qwen3-ForcedAligner", _MAX_CONTEXTS)

    @property
    def rows_used(self) -> int:
        """Contexts that are followed now."""
        return len(self._contexts)

    @property
    def figures(self) -> dict[str, float]:
        """Nothing beside what every worker tells."""
        return {}

    def step(self) -> float | None:
        """Take all commands, then ask about the clips that are due, segments that ended first."""
        for command in self._inbox():
            self._take(command)
        asked = self._questions()
        if asked:
            self._ask(asked)
        return 0.0 if asked else None

    def close(self) -> None:
        """Forget every context; idempotent."""
        self._contexts.clear()

    def _take(self, command: AlignCommand) -> None:
        match command:
            case Follow(context, language, _):
                self._follow(context, language)
            case AudioStep(rows):
                for row in rows:
                    if heard := self._contexts.get(row.context):
                        heard.pcm += row.chunk.pcm
            case Expect(context, words) if context in self._contexts:
                self._contexts[context].words.extend(words)
            case SegmentEnd(context, char_end, end_sample) if context in self._contexts:
                self._contexts[context].ends.append((char_end, end_sample))
            case Finish(context) if context in self._contexts:
                self._contexts[context].is_finished = True
            case Cancel(context):
                self._contexts.pop(context, None)
                self._outbox(Cancelled(context))
            case _:
                pass  # of a context that has failed before its sender knew

    def _follow(self, context: int, language: str) -> None:
        if language.partition("-")[0] not in self._aligner.languages:
            message = f"the forced aligner does not know language {language!r}"
            self._outbox(Failed(context, ErrorCode.INVALID_LANGUAGE, message))
        else:
            self._contexts[context] = _Heard(language)

    def _questions(self) -> dict[int, _Question]:
        """Those of one step: at most one of a context, and no more sound than a step takes."""
        due: list[tuple[bool, int, _Question]] = []
        for context, heard in self._contexts.items():
            if question := heard.question(self._pacing.pass_samples):
                due.append((question.char_end is None, context, question))
        due.sort(key=lambda entry: entry[0])
        chosen: dict[int, _Question] = {}
        samples = 0
        for _, context, question in due:
            samples += question.end_sample - self._contexts[context].start_sample
            if chosen and samples > self._pacing.step_samples:
                break
            chosen[context] = question
        return chosen

    def _ask(self, asked: dict[int, _Question]) -> None:
        clips = [self._contexts[context].clip(question) for context, question in asked.items()]
        try:
            answers = self._aligner.align(clips)
        except Exception as error:
            failure = EngineError.of("the forced aligner", error)
            _logger.error("%d clips: %s", len(clips), failure)
            for context in asked:
                self._fail(context, failure)
            return
        for (context, question), times in zip(asked.items(), answers, strict=True):
            self._answer(context, question, times)

    def _answer(self, context: int, question: _Question, times: tuple[WordTimestamp, ...]) -> None:
        heard = self._contexts[context]
        was_last = heard.is_finished and not heard.ends
        words = heard.take(question, times)
        self._outbox(Aligned(context, words, (), question.end_sample))
        if was_last:
            del self._contexts[context]
            self._outbox(Done(context, question.end_sample))

    def _fail(self, context: int, error: VoiceAgentError) -> None:
        del self._contexts[context]
        self._outbox(Failed(context, error.code, error.message))
