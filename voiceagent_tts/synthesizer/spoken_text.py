"""What a context has said and when: all that an answer to `cut` needs, also after its end."""

from collections.abc import Sequence
from dataclasses import dataclass

from voiceagent_tts.core import Cut, WordTimestamp
from voiceagent_tts.text.cut import cut_text


@dataclass(frozen=True, slots=True)
class SpokenText:
    """A text, the times of its words, and how much of its audio was sent.

    Args:
        text: the text, verbatim.
        words: its words with their times, as far as they are known.
        sent_samples: audio sent to the listener.
        is_final: whether no more words will come.
    """

    text: str
    words: Sequence[WordTimestamp] = ()
    sent_samples: int = 0
    is_final: bool = False

    def cut(self, played_samples: int) -> Cut:
        """Return the cut at a playback position, which lies within the audio sent."""
        heard = max(0, min(played_samples, self.sent_samples))
        return cut_text(self.text, self.words, heard, is_final=self.is_final)
