"""What the agents say and understand without a language model and without transcription.

The stand-in for the language model speaks fixed lines. After an interruption it first quotes the
last words that were heard, according to the history. The stand-in for transcription reports that
the user spoke, and for how long. This module knows no host.
"""

import re

LINES = (
    "Hello! Say something, and interrupt me whenever you like.",
    "Here is a long list for you to interrupt: Monday, Tuesday, Wednesday, Thursday, Friday, "
    "Saturday, Sunday. One, two, three, four, five, six, seven, eight, nine, ten.",
    "My history has the words that you heard, and no others. Try it: January, February, March, "
    "April, May, June, July, August, September, October, November, December.",
)
INSTRUCTIONS = (
    "You are a friendly voice agent. Answer in one or two short sentences without formatting."
)
QUOTED_WORDS = 4
TOKENS_PER_S = 50.0
"""Pace of the stand-in for a language model."""
MIN_UTTERANCE_S = 0.5
"""Shorter sounds are transcribed as nothing: a cough, "mhm", a door."""
_TOKEN = re.compile(r"\s?\S{1,4}|\s")


def next_line(replies: int, interrupted: str | None) -> str:
    """The next line of the stand-in for a language model.

    Args:
        replies: number of replies in the history.
        interrupted: text of the last reply as the history has it, if it was interrupted.
    """
    line = LINES[replies % len(LINES)]
    if interrupted is None:
        return line
    heard = interrupted.split()[-QUOTED_WORDS:]
    return f"The last words that you heard were: {' '.join(heard).rstrip('.,:')}. {line}"


def tokens(line: str) -> list[str]:
    """`line` in pieces as short as the tokens of a language model."""
    return _TOKEN.findall(line)


def transcript_of(speech_s: float) -> str:
    """The stand-in for a transcript; empty for a sound that is too short for a word."""
    return f"(the user spoke for {speech_s:.1f} s)" if speech_s >= MIN_UTTERANCE_S else ""
