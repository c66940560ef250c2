"""The online aligner: word times while the sound is made, from a reference of the same words.

The embedded voice says the words too and knows when each begins; the sound is followed through that
reference, frame by frame, and never looks ahead. What is learnt of a voice's sound and pace is kept
under its key for its next context. Knows no processes, no deadlines and no listeners.
"""

from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from voiceagent_tts.aligner.online.espeak_reference import GrowingReference, ReferenceVoice
from voiceagent_tts.aligner.online.features import Floats, Frames, FrameStream
from voiceagent_tts.aligner.online.trace import PAUSE_SAMPLES, Trace
from voiceagent_tts.aligner.online.viterbi import MAX_TRACED_FRAMES, Paths
from voiceagent_tts.aligner.online.voice_profile import TRACTS, TRIAL_FRAMES, Voice
from voiceagent_tts.core import Word, WordTimestamp, ms_to_samples

_PAUSE_COST = np.float32(30.0)
"""Of a pause inside a word."""
_MAX_STRAIN = 5.6
"""A voice costs up to 5.4 a frame through its own words, and mostly more through others."""
_LOOKAHEAD_FRAMES = 30
"""Frames with sound behind the end of a word after which its time is final."""
_HELD_FRAMES = 30
"""Of reference that the sound must have before it while text may still follow."""
_MAX_HELD_FRAMES = 40
"""Of sound: with more, words are said whose clause is not complete."""
_MAX_WAITING_FRAMES = 100
"""Of sound: with more, the oldest has no words. Text is there before its sound, but for the word
whose end is not written yet."""
_CERTAIN_SAMPLES = ms_to_samples(100)
"""Of sound behind a word's start, from which an outlook is more than a projection."""
_OUTLOOK_SAMPLES = ms_to_samples(1_500)
_OUTLOOK_WORDS = 3
"""How far the outlook goes: so far, and so many words, whichever is more."""
_REST_SAMPLES = ms_to_samples(40)
"""What is usually left of a pause."""
_MAX_VOICES = 1_000
_END_OF_TEXT = 1 << 62


class OnlineAligner:
    """Implements `aligner.Aligner` on the process's espeak-ng; for one thread.

    Args:
        reference_voice: says the words; the process's own, where it is not given.

    Raises:
        EngineError: espeak cannot be loaded.
    """

    def __init__(self, reference_voice: ReferenceVoice | None = None) -> None:
        self._reference_voice = reference_voice or ReferenceVoice()
        self._voices: OrderedDict[str, Voice] = OrderedDict()

    def open(self, language: str, voice: str) -> "OnlineSession":
        """Follow a new context.

        Raises:
            InvalidRequestError: there is no reference for this language; `invalid_language`.
        """
        speaker = self._reference_voice.speaker_of(language)
        known = self._voices.setdefault(voice, Voice())
        self._voices.move_to_end(voice)
        if len(self._voices) > _MAX_VOICES:
            self._voices.popitem(last=False)
        tracts = TRACTS if known.tract is None else (known.tract,)
        return OnlineSession(GrowingReference(self._reference_voice, speaker, tracts), known)


class OnlineSession:
    """Implements `aligner.AlignSession`.

    Args:
        reference: of this context; in all `TRACTS` where the voice's own is not known.
        voice: what is known of its voice; it grows with the context.
    """

    def __init__(self, reference: GrowingReference, voice: Voice) -> None:
        self._reference = reference
        self._voice = voice
        self._tried_before = voice.tried_frames
        is_known = len(reference.tracts) == 1
        self._handicaps_before = np.zeros(1, np.float32) if is_known else voice.handicaps
        self._stream = FrameStream()
        self._paths = Paths(self._handicaps_before)
        self._held: deque[Frames] = deque()
        """Frames with sound whose words may not be written yet."""
        self._centres: deque[int] = deque(maxlen=MAX_TRACED_FRAMES)
        """Of the frames that the paths can be traced back through."""
        self._followed_frames = 0
        self._heard_sample = 0
        """Where the last frame is, with sound or without."""
        self._last_start = 0
        self._is_closed = False

    @property
    def remembered_frames(self) -> int:
        """Frames of the sound and of the reference that are kept now."""
        return len(self._centres) + self._held_frames + self._reference.kept_frames

    def append(self, words: Iterable[Word]) -> None:
        """More words of the context, in order; the text may still be growing."""
        self._reference.append(words)

    def push(self, pcm: bytes) -> tuple[WordTimestamp, ...]:
        """Follow the context's next audio.

        Raises:
            EngineError: the embedded voice could not say the words.
        """
        committed: list[WordTimestamp] = []
        for frames in self._stream.push(pcm):
            self._hear(frames)
            self._follow(is_last=False)
            committed += self._settled()
        return tuple(committed)

    def outlook(self) -> tuple[WordTimestamp, ...]:
        """The best guess now for the words that come next."""
        return tuple(self._outlook())

    def end_segment(self, char_end: int) -> tuple[WordTimestamp, ...]:
        """Commit the words that begin before `char_end`; what is pushed next follows them.

        Raises:
            EngineError: the embedded voice could not say the words.
        """
        self._hear(self._stream.flush())
        self._follow(is_last=True)
        self._held.clear()
        return tuple(self._end_words(char_end))

    def finish(self) -> tuple[WordTimestamp, ...]:
        """Commit what is left.

        Raises:
            EngineError: the embedded voice could not say the words.
        """
        committed = self.end_segment(_END_OF_TEXT)
        self.close()
        return committed

    def close(self) -> None:
        """Forget the context; what was learnt of its voice stays."""
        if not self._is_closed and self._paths.renderings > 1:
            costs = self._paths.handicaps - self._handicaps_before
            self._voice.compare(self._followed_frames, costs)
        self._is_closed = True

    @property
    def _held_frames(self) -> int:
        return sum(map(len, self._held))

    def _hear(self, frames: Frames) -> None:
        self._voice.sound, loud = self._voice.sound.hear(frames)
        if len(frames):
            self._heard_sample = int(frames.centres[-1])
        if len(loud):
            self._held.append(loud)

    def _follow(self, *, is_last: bool) -> None:
        """Move the paths on by the frames that are held, as far as there are words for them."""
        self._extend(is_last=is_last)
        while self._held and self._words_ahead > (0 if is_last else _HELD_FRAMES):
            self._advance(self._held.popleft())
            self._extend(is_last=is_last)
        while self._held_frames > _MAX_WAITING_FRAMES:
            oldest = self._held.popleft()
            if self._words_ahead > 1:
                self._advance(oldest)

    @property
    def _words_ahead(self) -> int:
        """Frames of the reference that the sound has before it; one at its last frame."""
        return self._reference.length - self._paths.head

    def _extend(self, *, is_last: bool) -> None:
        is_urgent = is_last or self._held_frames > _MAX_HELD_FRAMES
        slowness = self._voice.pace.slowness
        self._reference.extend(self._paths.head, slowness, is_urgent=is_urgent)

    def _advance(self, frames: Frames) -> None:
        window = self._paths.window(self._reference.length)
        distances = _distances(frames.features, self._reference.features(window))
        is_inside = self._reference.is_inside_word(window)
        distances[self._are_behind_pause(frames)] += is_inside * _PAUSE_COST
        self._paths.advance(window, distances)
        self._centres.extend(frames.centres.tolist())
        self._followed_frames += len(frames)
        if self._paths.renderings > 1:
            self._choose_tract()

    def _are_behind_pause(self, frames: Frames) -> npt.NDArray[np.bool_]:
        last = self._centres[-1] if self._centres else frames.centres[0]
        return np.diff(frames.centres, prepend=last) > PAUSE_SAMPLES

    def _choose_tract(self) -> None:
        """Go on with the voice's own alone, if that is known by now."""
        if self._voice.tract is None:
            if self._tried_before + self._followed_frames < TRIAL_FRAMES:
                return
            self._voice.tract = TRACTS[self._paths.best_rendering]
        best = TRACTS.index(self._voice.tract)
        self._paths.choose(best)
        self._reference.choose(best)

    def _settled(self) -> Iterator[WordTimestamp]:
        """The words that ended long enough ago."""
        words = self._reference.words
        if not words or words[0].end_frame > self._paths.head - _LOOKAHEAD_FRAMES // 2:
            return
        trace = self._trace(self._paths.head)
        if len(trace.path) < _LOOKAHEAD_FRAMES:
            return
        while words and words[0].end_frame <= trace.path[-_LOOKAHEAD_FRAMES]:
            word = words.popleft()
            frames = trace.frames_in(word)
            self._voice.pace = self._voice.pace.including(frames, word.normal_frames)
            yield self._commit(trace.time(word))
        self._forget(trace)

    def _end_words(self, char_end: int) -> Iterator[WordTimestamp]:
        said, unsaid = self._reference.take_words(char_end)
        words = self._reference.words
        next_frame = words[0].first_frame if words else self._reference.length
        trace = self._trace(self._paths.end(next_frame - 1))
        for word in said:
            yield self._commit(
                trace.time(word) if trace.has_begun(word) else self._missed(word.word)
            )
        for word in unsaid:
            yield self._commit(self._missed(word))
        self._centres.clear()
        self._paths.restart(next_frame)

    @property
    def _is_sure(self) -> bool:
        """Whether the sound is like its words at all."""
        return self._paths.strain < _MAX_STRAIN

    def _missed(self, word: Word) -> WordTimestamp:
        """A word that the sound did not come to."""
        end = self._stream.pushed_samples
        return WordTimestamp(word, end, end, is_exact=False)

    def _commit(self, time: WordTimestamp) -> WordTimestamp:
        """`time` inside the audio and behind the words before."""
        end_of_audio = self._stream.pushed_samples
        start = self._last_start = min(max(time.start_sample, self._last_start), end_of_audio)
        end = end_of_audio if time.end_sample is None else min(time.end_sample, end_of_audio)
        return WordTimestamp(time.word, start, max(start, end), time.is_exact and self._is_sure)

    def _outlook(self) -> Iterator[WordTimestamp]:
        """Words that have begun, by the path; then those that come, at the reference's pace."""
        trace = self._trace(self._paths.head)
        last_start, delay = self._last_start, 0
        for count, word in enumerate(self._reference.words):
            if trace.has_begun(word):
                time = trace.time(word)
                is_certain = self._heard_sample - time.start_sample >= _CERTAIN_SAMPLES
                time = replace(time, is_exact=time.is_exact and is_certain and self._is_sure)
            else:
                start = self._projected(word.first_frame) + delay
                if not delay:
                    delay = max(0, self._earliest - start)
                time = WordTimestamp(word.word, start + delay, None, is_exact=False)
            last_start = max(time.start_sample, last_start)
            if last_start > self._heard_sample + _OUTLOOK_SAMPLES and count >= _OUTLOOK_WORDS:
                return
            yield replace(time, start_sample=last_start)

    @property
    def _earliest(self) -> int:
        """Where a word may begin that has not begun in the frames so far."""
        silence = self._heard_sample - (self._centres[-1] if self._centres else 0)
        return self._heard_sample + (_REST_SAMPLES if silence > PAUSE_SAMPLES else 0)

    def _projected(self, frame: int) -> int:
        """When the sound may come to a frame of the reference."""
        since = self._centres[-1] if self._centres else self._heard_sample
        return since + self._reference.sample(frame) - self._reference.sample(self._paths.head)

    def _trace(self, frame: int) -> Trace:
        return Trace(self._paths.trace(frame), self._centres)

    def _forget(self, trace: Trace) -> None:
        """Drop what lies before the first word that is not committed."""
        words = self._reference.words
        kept = words[0].first_frame if words else self._paths.head
        for _ in range(int(np.searchsorted(trace.path, kept)) - 1):
            self._centres.popleft()
        self._paths.forget(len(trace.path) - len(self._centres))
        self._reference.forget(min(kept, self._paths.window(self._reference.length).start) - 1)


def _distances(features: Floats, reference: Floats) -> Floats:
    """[N, renderings, M] between `features` [N, WIDTH] and `reference` [M, renderings, WIDTH]."""
    flat = reference.reshape(-1, reference.shape[2])
    squares = np.square(features).sum(axis=1)[:, None] + np.square(flat).sum(axis=1)
    distances = np.sqrt(np.maximum(squares - 2.0 * (features @ flat.T), 0.0))
    return distances.reshape(len(features), *reference.shape[:2]).transpose(0, 2, 1)
