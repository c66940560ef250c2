"""Times of characters, spread evenly over the time of their word.

Knows nothing of sounds: a character's time is where it stands in its word.
"""

from voiceagent_tts.core import Word, WordTimestamp

_UNKNOWN_CHARACTER_SAMPLES = (
    1_600  # 15 characters a second at 24 kHz, where a word's end is unknown
)


def spread_characters(timestamp: WordTimestamp) -> list[WordTimestamp]:
    """Every visible character of a word as a word of its own.

    The first one keeps the word's start and its exactness, the last one its end; those between are
    estimates.
    """
    word, start, end = timestamp.word, timestamp.start_sample, timestamp.end_sample
    count = len(word.text)
    length = count * _UNKNOWN_CHARACTER_SAMPLES if end is None else end - start
    borders = [start + length * index // count for index in range(count + 1)]
    return [
        WordTimestamp(
            Word(char, word.char_start + index, word.char_start + index + 1),
            borders[index],
            None if end is None else borders[index + 1],
            timestamp.is_exact and index == 0,
        )
        for index, char in enumerate(word.text)
        if not char.isspace()
    ]
