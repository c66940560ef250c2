"""Subtitles for a spoken text, from the word times at its end: `pip install -e .`, then

    python examples/subtitles.py "A text of up to 1,500 words." > speech.srt

The server sends each word's time before the word is heard. At the end of the text it repeats all
words with better times (`words_final`) if it has found any since.
"""

import asyncio
import os
import sys

from voiceagent_tts.client import DoneMessage, TTSClient, WordTimestamp
from voiceagent_tts.errors import VoiceAgentError

URL = os.environ.get("VOICEAGENT_TTS_URL", "ws://127.0.0.1:8765")
LINE_CHARS = 42
Timed = tuple[str, int, int]  # word, start and end in ms


async def speak(text: str) -> list[Timed]:
    """The words of `text` with their times."""
    words: list[Timed] = []
    async with TTSClient(URL) as client:
        async for event in client.say(text, max_lead_s=0):
            match event:
                case WordTimestamp(word=word, start_sample=start, end_sample=end):
                    words.append((word.text, start // 24, (end or start) // 24))
                case DoneMessage(words_final=final, audio_ms=audio_ms) if final is not None:
                    ends = [end or audio_ms for end in final.end_ms]
                    words = list(zip(final.words, final.start_ms, ends, strict=True))
    return words


def lines_of(words: list[Timed]) -> list[list[Timed]]:
    """The words in lines; a line ends at a sentence's end, or before it is too long."""
    lines: list[list[Timed]] = [[]]
    for word in words:
        length = sum(len(each[0]) + 1 for each in lines[-1]) + len(word[0])
        if lines[-1] and (length > LINE_CHARS or lines[-1][-1][0][-1] in ".!?"):
            lines.append([])
        lines[-1].append(word)
    return lines


def clock(ms: int) -> str:
    """A time as subtitles write it."""
    return f"{ms // 3_600_000:02}:{ms // 60_000 % 60:02}:{ms // 1000 % 60:02},{ms % 1000:03}"


if len(sys.argv) != 2:
    raise SystemExit(__doc__)
try:
    timed = asyncio.run(speak(sys.argv[1]))
except VoiceAgentError as error:
    raise SystemExit(error.message) from error
for number, line in enumerate(lines_of(timed) if timed else [], 1):
    times = f"{clock(line[0][1])} --> {clock(line[-1][2])}"
    print(number, times, " ".join(word for word, _, _ in line), sep="\n", end="\n\n")
