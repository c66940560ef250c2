"""The online aligner: word times while the audio is generated.

The embedded voice speaks the same words and reports its phones and their times. A network names the
phones of the audio, and a Viterbi search follows them through that reference, frame by frame. What
is learnt about a voice's sound and pace is kept under its key for its next context.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np

from voiceagent_tts.aligner.online import tuning
from voiceagent_tts.aligner.online.confidence import PathEvidence
from voiceagent_tts.aligner.online.espeak_reference import GrowingReference, ReferenceVoice
from voiceagent_tts.aligner.online.features import Floats, Frames, FrameStream
from voiceagent_tts.aligner.online.phone_model import phone_model
from voiceagent_tts.aligner.online.viterbi import AlignmentPath, PathEnd, ViterbiSearch
from voiceagent_tts.aligner.online.voice_profile import VoiceProfile
from voiceagent_tts.aligner.sessions import AlignerSessions, ContextInput, aligner_capabilities
from voiceagent_tts.core import AudioChunk, Word, WordTimestamp
from voiceagent_tts.espeak.catalogue import VoiceCatalogue
from voiceagent_tts.lru import LRUCache
from voiceagent_tts.seam.aligner_messages import Aligned, AlignInbox, AlignOutbox, Expect, Finish
from voiceagent_tts.seam.events import SegmentEnd

_END_OF_TEXT = 1 << 62
_MAX_CONTEXTS = 1_024


class OnlineAligner:
    """Opens the sessions of all contexts, over the process's espeak-ng; used by one thread.

    Raises:
        EngineError: espeak cannot be loaded.
    """

    languages = VoiceCatalogue.languages

    def __init__(self, reference_voice: ReferenceVoice | None = None) -> None:
        self._reference_voice = reference_voice or ReferenceVoice()
        phone_model()  # loaded now, so that the first context does not wait for it
        self._profiles = LRUCache[str, VoiceProfile](tuning.MAX_VOICES)

    def open(self, language: str, voice: str) -> "OnlineSession":
        """Open the session of a new context, in one of `languages` with or without a region.

        The sound and pace of the voice are remembered under `voice`.

        Raises:
            InvalidRequestError: it is another language; `invalid_language`.
        """
        espeak_voice = self._reference_voice.voice_for(language)
        profile = self._profiles.get(voice)
        if profile is None:
            profile = VoiceProfile()
            self._profiles.put(voice, profile)
        return OnlineSession(GrowingReference(self._reference_voice, espeak_voice), profile)


class OnlineSession:
    """Aligns one context online; every call returns the words that became final.

    Positions are samples at 24 kHz on the context's clock. Each word becomes final once, in order,
    as a verbatim span of the text. A call raises `EngineError` if the embedded voice could not
    speak the words.
    """

    def __init__(self, reference: GrowingReference, profile: VoiceProfile) -> None:
        self._reference = reference
        self._profile = profile
        self._stream = FrameStream()
        self._search = ViterbiSearch()
        self._queued: deque[tuple[Frames, Floats]] = deque()
        """Frames whose words may not be written yet, and [N, SOUNDS], their sounds' costs."""
        self._centres = np.zeros(0, np.int64)
        """Centre samples of the frames that a backtrace includes."""
        self._log_energies = np.zeros(0, np.float32)
        """Log energies of the same frames."""
        self._last_centre = 0
        """Centre sample of the last frame, speech or silence."""
        self._last_start = 0
        self._is_at_start = True
        """Whether no word of the context is final."""
        self._newest_path: AlignmentPath | None = None
        """The cheapest path of all audio so far; None where it is not traced yet."""

    @property
    def end_sample(self) -> int:
        """End of the audio so far."""
        return self._stream.pushed_samples

    @property
    def remembered_frames(self) -> int:
        """Frames of audio and reference in memory."""
        return len(self._centres) + self._queued_frames + self._reference.kept_frames

    def append(self, words: Iterable[Word]) -> None:
        """Append more words of the context, in order; the text may still grow."""
        self._reference.append(words)

    def push(self, pcm: bytes) -> tuple[WordTimestamp, ...]:
        """Align the context's next audio: PCM16, mono, 24 kHz, of any length."""
        final: list[WordTimestamp] = []
        for frames in self._stream.push(pcm):
            self._enqueue(frames)
            self._search_queued(is_last=False)
            final += self._pop_final_words()
            self._drop_pause()
        return tuple(final)

    def tentative(self) -> tuple[WordTimestamp, ...]:
        """The best current times of the next words that are not final, in order.

        They are the words that have probably begun in the audio so far and the few after them. The
        times may change with every push; none is before the start of the last final word.
        """
        return tuple(self._tentative_words())

    def end_segment(self, char_end: int) -> tuple[WordTimestamp, ...]:
        """Make the words that begin before `char_end` final; later audio belongs to later words."""
        self._enqueue(self._stream.flush())
        self._search_queued(is_last=True)
        self._queued.clear()
        return tuple(self._pop_words(char_end))

    def finish(self) -> tuple[WordTimestamp, ...]:
        """Make all remaining words final."""
        return self.end_segment(_END_OF_TEXT)

    def cut(self) -> tuple[WordTimestamp, ...]:
        """Make the words final that the audio has reached.

        For audio that was cut off within its text: the words after the cut have no time.
        """
        self._enqueue(self._stream.flush())
        self._search_queued(is_last=True)
        path = self._path_to(self._search.end)
        reached = [word for word in self._reference.words if path.has_reached(word)]
        return tuple(self._final(path.time_of(word)) for word in reached)

    @property
    def _queued_frames(self) -> int:
        return sum(len(frames) for frames, _ in self._queued)

    def _enqueue(self, frames: Frames) -> None:
        if len(frames):
            self._last_centre = int(frames.centres[-1])
            self._queued.append((frames, self._profile.sound_costs(frames)))

    def _search_queued(self, *, is_last: bool) -> None:
        """Advance the search by the queued frames, as far as there are words for them."""
        self._extend_reference(is_last=is_last)
        while self._queued and self._frames_ahead > (
            0 if is_last else tuning.REFERENCE_LEAD_FRAMES
        ):
            self._advance(*self._queued.popleft())
            self._extend_reference(is_last=is_last)
        while self._queued_frames > tuning.MAX_WAITING_FRAMES:
            oldest = self._queued.popleft()
            if self._frames_ahead > 1:
                self._advance(*oldest)

    @property
    def _frames_ahead(self) -> int:
        """Reference frames from the head to the end; 1 at the last frame."""
        return self._reference.frames_after(self._search.head)

    def _extend_reference(self, *, is_last: bool) -> None:
        # At the end of the reference a path would lose to one that explains the audio worse.
        is_used_up = self._reference.frames_after(self._search.reach) == 1
        is_urgent = is_last or is_used_up or self._queued_frames > tuning.MAX_QUEUED_FRAMES
        duration_ratio = self._profile.rate.duration_ratio
        self._reference.extend(self._search.head, duration_ratio, is_urgent=is_urgent)

    def _advance(self, frames: Frames, sound_costs: Floats) -> None:
        window = self._search.window(self._reference.length, self._reference.forks)
        sounds = self._reference.sounds(window)
        self._search.advance(
            window,
            tuning.WORD_PER_PHONE * sound_costs[:, sounds],
            _gap_costs(sound_costs),
            self._reference.starts(window),
            self._reference.forks,
        )
        centres = np.concatenate((self._centres, frames.centres))
        energies = np.concatenate((self._log_energies, frames.log_energies))
        self._centres = centres[-tuning.MAX_TRACED_FRAMES :]
        self._log_energies = energies[-tuning.MAX_TRACED_FRAMES :]
        self._newest_path = None

    def _pop_final_words(self) -> Iterator[WordTimestamp]:
        """Remove and return the words that ended long enough ago."""
        words = self._reference.words
        is_between_words = self._search.end.is_gap
        passed = (
            self._search.head + 1
            if is_between_words
            else self._search.head - tuning.FINAL_AFTER_FRAMES // 2
        )
        if not words or words[0].end_frame > passed:
            return
        path = self._path()
        final_before = path.passed_before(
            tuning.FINAL_AFTER_FRAMES, self._last_centre - tuning.FINAL_AFTER_SAMPLES
        )
        # A word without sound is reached with the next speech.
        while words and words[0].end_frame <= final_before and path.has_reached(words[0]):
            word = words.popleft()
            if word.normal_frames:
                frames = path.frames_in(word)
                self._profile.rate = self._profile.rate.including(frames, word.normal_frames)
            yield self._final(path.time_of(word))
        self._drop_before_words(path)

    def _pop_words(self, char_end: int) -> Iterator[WordTimestamp]:
        synthesized, waiting = self._reference.pop_words(char_end)
        words = self._reference.words
        next_frame = words[0].first_frame if words else self._reference.length
        path = self._path_to(self._search.end_near(next_frame - 1))
        for word in synthesized:
            is_reached = path.has_reached(word)
            yield self._final(path.time_of(word) if is_reached else self._unreached(word.word))
        for word in waiting:
            yield self._final(self._unreached(word))
        self._centres, self._log_energies = self._centres[:0], self._log_energies[:0]
        self._search.restart(next_frame)
        self._reference.drop_frames(next_frame - 1)
        self._newest_path = None

    def _unreached(self, word: Word) -> WordTimestamp:
        """A word that the audio did not reach: at the end of the audio."""
        end = self.end_sample
        return WordTimestamp(word, end, end, confidence=0.0)

    def _final(self, time: WordTimestamp) -> WordTimestamp:
        """`time` moved inside the audio and after the words before it."""
        self._is_at_start = False
        end_of_audio = self.end_sample
        start = self._last_start = min(max(time.start_sample, self._last_start), end_of_audio)
        end = end_of_audio if time.end_sample is None else min(time.end_sample, end_of_audio)
        return WordTimestamp(time.word, start, max(start, end), time.confidence)

    def _tentative_words(self) -> Iterator[WordTimestamp]:
        path = self._path()
        last_start, delay = self._last_start, 0
        for count, word in enumerate(self._reference.words):
            if path.has_reached(word):
                time = path.time_of(word)
                is_first = self._is_at_start and count == 0
                time = self._with_doubt(time, is_first=is_first)
            else:
                start = self._projected_sample(path, word.first_frame)
                if not delay:
                    delay = max(0, self._earliest_start(path) - start)
                time = WordTimestamp(word.word, start + delay, None, confidence=0.0)
            last_start = max(time.start_sample, last_start)
            if (
                last_start > self._last_centre + tuning.TENTATIVE_SAMPLES
                and count >= tuning.TENTATIVE_WORDS
            ):
                return
            is_later = last_start > time.start_sample
            yield replace(time, start_sample=last_start) if is_later else time

    def _with_doubt(self, time: WordTimestamp, *, is_first: bool) -> WordTimestamp:
        """A tentative time with the confidence that the audio since its start allows."""
        heard_samples = self._last_centre - time.start_sample
        if heard_samples < tuning.CERTAIN_SAMPLES:
            return replace(time, confidence=0.0)
        if is_first and heard_samples < tuning.FIRST_CERTAIN_SAMPLES:
            return replace(time, confidence=min(time.confidence, tuning.BREATH_CONFIDENCE))
        return time

    def _earliest_start(self, path: AlignmentPath) -> int:
        silence = self._last_centre - (path.centres[-1] if path.centres else 0)
        return self._last_centre + (tuning.REST_SAMPLES if silence > tuning.PAUSE_SAMPLES else 0)

    def _projected_sample(self, path: AlignmentPath, frame: int) -> int:
        now = path.centres[-1] if path.centres else self._last_centre
        return now + self._reference.sample(frame) - self._reference.sample(self._search.head)

    def _path(self) -> AlignmentPath:
        if self._newest_path is None:
            self._newest_path = self._path_to(self._search.end)
        return self._newest_path

    def _path_to(self, end: PathEnd) -> AlignmentPath:
        frames, is_speech = self._search.backtrace(end)
        centres = self._centres[is_speech].tolist()
        energies = self._log_energies
        evidence = PathEvidence.of(self._search.evidence, frames, energies, is_speech)
        return AlignmentPath(frames[is_speech].tolist(), centres, evidence)

    def _drop_before_words(self, path: AlignmentPath) -> None:
        words = self._reference.words
        kept = words[0].first_frame if words else self._search.head
        before = bisect_left(path.reference_frames, kept) - 1
        if before > 0:
            self._drop_frames_before(path.centres[before] - tuning.KEPT_SAMPLES)
        window = self._search.window(self._reference.length, self._reference.forks)
        self._reference.drop_frames(min(kept, window.start) - 1)

    def _drop_pause(self) -> None:
        words, end = self._reference.words, self._search.end
        if end.is_gap and not (words and words[0].first_frame < end.frame):
            self._drop_frames_before(self._last_centre - tuning.FINAL_AFTER_SAMPLES)

    def _drop_frames_before(self, sample: int) -> None:
        if count := int(np.searchsorted(self._centres, sample)):
            self._centres, self._log_energies = self._centres[count:], self._log_energies[count:]
            self._search.drop_oldest(count)
            self._newest_path = None


def _gap_costs(sound_costs: Floats) -> Floats:
    """Cost of each frame in a pause and in speech that the text lacks, [N, 2]."""
    silence, speech = sound_costs[:, 0], sound_costs[:, 1:]  # silence is the first of `SOUNDS`
    pause = tuning.MIN_PAUSE + tuning.PAUSE_PER_SILENCE * silence
    unwritten = tuning.MIN_UNWRITTEN + tuning.UNWRITTEN_PER_BEST * speech.min(axis=1)
    # Speech may pause where the text lacks it, too.
    return np.column_stack((pause, np.minimum(unwritten, pause)))


class OnlineSessions(AlignerSessions[OnlineSession]):
    """Answers every input of a context at once, from that context's session."""

    def __init__(self, inbox: AlignInbox, outbox: AlignOutbox, aligner: OnlineAligner) -> None:
        capabilities = aligner_capabilities("online", "espeak-ng reference", _MAX_CONTEXTS)
        super().__init__(inbox, outbox, capabilities)
        self._aligner = aligner

    def _open(self, language: str, voice: str) -> OnlineSession:
        return self._aligner.open(language, voice)

    def _handle(self, context: int, session: OnlineSession, received: ContextInput) -> None:
        match received:
            case AudioChunk(_, pcm):
                self._answer(context, session, session.push(pcm))
            case Expect(_, words):
                session.append(words)
            case SegmentEnd(_, char_end, _):
                self._answer(context, session, session.end_segment(char_end))
            case Finish():
                self._answer(context, session, session.finish())
                self._finish(context, session.end_sample)

    def _answer(
        self, context: int, session: OnlineSession, words: tuple[WordTimestamp, ...]
    ) -> None:
        self._outbox(Aligned(context, words, session.tentative(), session.end_sample))
