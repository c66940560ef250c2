"""The words of a sequence that has lost its text, and has made noise in place of speech."""

from bisect import bisect_right

from voiceagent_tts.synthesizer.words import Words, char_end_of
from voiceagent_tts.text.estimate import typical_samples


def lose_text(words: Words, char_end: int, end_sample: int) -> tuple[int, int]:
    """Retract the words of a sequence that has lost its text, unless they certainly sounded.

    An aligner is certain of words that it hears, and of none in noise.

    Args:
        words: those of the context.
        char_end: end of the text before that sequence.
        end_sample: end of its audio, for the listener.

    Returns:
        The ends of the text that was generated as speech, and of its audio.
    """
    best, first = words.best, bisect_right(words.published, char_end, key=char_end_of)
    for each in (best[place] for place in range(first, len(best))):
        if each.is_exact:
            char_end = each.word.char_end
            end = each.end_sample or each.start_sample + round(typical_samples(each.word))
            end_sample = max(end_sample, end)
    words.take_back(char_end)
    return char_end, end_sample
