"""One phoneme string to audio at 24 kHz, part by part, and the times of its words before it.

The network's durations are the times of the words. Their borders lag behind the sound, the first
sound of a text begins in the silence before it, and the last one ends in the pause after it. So
borders are moved, and these two are found in the audio or bounded. Samples count from the first of
the speech.
"""

from bisect import bisect_left
from collections.abc import Sequence

import numpy as np

from voiceagent_tts.audio.levels import AUDIBLE_LEVEL, leading_silence_samples
from voiceagent_tts.audio.pcm import float_to_pcm
from voiceagent_tts.core import BYTES_PER_SAMPLE, Word, WordTimestamp, ms_to_samples
from voiceagent_tts.phonemes.network import Network
from voiceagent_tts.phonemes.reading import PAUSES, Phonemes
from voiceagent_tts.seam.segment_engine import UNSPOKEN_CONFIDENCE

_ONSET_SAMPLES = ms_to_samples(125)
"""How early a text's first sound may begin: a fricative does so 90 ms before its duration."""
_LAG_SAMPLES = ms_to_samples(37.5)
"""By how much borders inside a phrase lag behind the sound. Source: 103 words of twelve sentences,
against a forced alignment by pocketsphinx, whose times of espeak's words were 4 ms off."""
_ATTACK_SAMPLES = ms_to_samples(50)
"""By how much the border of a word after a pause lags behind its first sound. Source: onsets."""
_LAST_SOUND_SAMPLES = ms_to_samples(125)
"""Longest sound before a pause: its duration contains the silence after it."""
_DECAY_SAMPLES = ms_to_samples(50)
"""After this sound it is silent, if no pause follows."""
_SILENCE_LEVEL = AUDIBLE_LEVEL // 2  # a natural voice begins softly: 60 ms from -54 to -40 dB
_KEPT_LEAD_SAMPLES = ms_to_samples(2)  # keeps the attack of the first sound


class Speech:
    """The audio of one phoneme string.

    Args:
        phonemes: what is said; has a sound.
        speed: 0.5 to 2.0.
        trims_lead: whether the silence before its first sound is left out.

    Attributes:
        words: times of the words; set by the first `next_part`.
    """

    def __init__(
        self,
        network: Network,
        phonemes: Phonemes,
        words: Sequence[Word],
        *,
        speed: float,
        noise: np.random.Generator,
        trims_lead: bool,
    ) -> None:
        self.words: tuple[WordTimestamp, ...] = ()
        self._network = network
        self._phonemes = phonemes
        self._spoken = words
        self._trims_lead = trims_lead
        self._prosody = network.prosody(phonemes.text, speed)
        self._at = self._start_frame() if trims_lead else 0
        self._origin = self._at * network.hop_samples
        """Sample of the network's clock at which the speech begins."""
        self._decoder = network.decoder(self._prosody, self._at, noise)
        self._parts = 0
        self._has_begun = False
        self._end: int | None = None
        """Frame at which the speech ends; None until its last sound is due."""

    def next_part(self, *, has_pause: bool) -> bytes:
        """Make the next part of the audio.

        The pause after the last sound belongs to the speech if the part with that sound
        `has_pause`.

        Returns:
            PCM16; empty after the last part.
        """
        pcm = self._make_part(has_pause)
        if not self._has_begun:
            self._has_begun = True
            if self._trims_lead:
                while not (pcm := self._without_lead(pcm)) and not self._is_complete:
                    pcm = self._make_part(has_pause)
            self.words = tuple(self._timed())
        return pcm

    @property
    def _is_complete(self) -> bool:
        return self._at == self._end

    def _make_part(self, has_pause: bool) -> bytes:
        if self._is_complete:
            return b""
        sizes = self._network.part_frames
        end = self._prosody.cut_near(self._at + sizes[min(self._parts, len(sizes) - 1)])
        self._parts += 1
        frames = self._prosody.frames
        sound_end = self._end_of(self._phonemes.sounds[-1]) + _DECAY_SAMPLES
        last_sound = -(-sound_end // self._network.hop_samples)
        if self._end is None and end >= last_sound:
            self._end = frames if has_pause else min(frames, max(last_sound, self._at + 1))
        self._at = min(end, self._end or frames)
        return float_to_pcm(self._decoder.samples(self._at, is_last=self._is_complete))

    def _without_lead(self, pcm: bytes) -> bytes:
        silent = leading_silence_samples(pcm, _SILENCE_LEVEL)
        is_silent = silent * BYTES_PER_SAMPLE == len(pcm)
        removed = silent if is_silent else max(0, silent - _KEPT_LEAD_SAMPLES)
        self._origin += removed
        return pcm[removed * BYTES_PER_SAMPLE :]

    def _start_frame(self) -> int:
        start = self._border(self._phonemes.sounds[0]) - _ONSET_SAMPLES
        return max(0, start) // self._network.hop_samples

    def _border(self, place: int) -> int:
        return self._prosody.borders[place] * self._network.hop_samples

    def _start_of(self, place: int) -> int:
        """Sample at which the word begins whose first sound is at `place`.

        The network writes a space between two words, which belongs to the second one's first sound.
        """
        before = self._phonemes.text[max(0, place - 2) : place]
        if before[-1:] == " " and before[0] not in PAUSES:
            return self._border(place - 1) - _LAG_SAMPLES
        return self._border(place) - _ATTACK_SAMPLES

    def _end_of(self, place: int) -> int:
        """Sample at which a sound ends; before a pause its duration is not taken at its word."""
        start, end = self._border(place), self._border(place + 1)
        following = self._phonemes.text[place + 1 : place + 2]
        is_before_pause = not following or following in PAUSES
        return min(end, start + _LAST_SOUND_SAMPLES) if is_before_pause else end - _LAG_SAMPLES

    def _timed(self) -> "list[WordTimestamp]":
        """The words, in order and without overlap; one without a sound has no length."""
        sounds = self._phonemes.sounds
        offsets = [self._phonemes.offsets[place] for place in sounds]
        timed: list[WordTimestamp] = []
        after = 0
        for word in self._spoken:
            first = bisect_left(offsets, word.char_start)
            last = bisect_left(offsets, word.char_end, first)
            if first == last:
                timed.append(WordTimestamp(word, after, after, UNSPOKEN_CONFIDENCE))
                continue
            # The first sound of trimmed audio is where the audio begins, whatever its duration.
            is_first = first == 0 and self._trims_lead
            start = 0 if is_first else self._placed(self._start_of(sounds[first]))
            start, end = max(after, start), self._placed(self._end_of(sounds[last - 1]))
            after = max(start, end)
            timed.append(WordTimestamp(word, start, after, 1.0))
        return timed

    def _placed(self, sample: int) -> int:
        return max(0, sample - self._origin)
