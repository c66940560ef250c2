"""Makes an engine of loaded voices, with as many rows as this machine speaks."""

import os
from collections.abc import Mapping

from voiceagent_tts.phonemes.engine import PhonemeEngine
from voiceagent_tts.phonemes.pace import Trial
from voiceagent_tts.phonemes.voice import LoadedVoice
from voiceagent_tts.seam.engine import Inbox, Outbox


def make_engine(
    inbox: Inbox,
    outbox: Outbox,
    voices: Mapping[str, LoadedVoice],
    trial: Trial,
    *,
    name: str,
    model: str,
    rows: int | None,
    threads: int | None,
) -> PhonemeEngine:
    """Make an engine; arguments as for `PhonemeEngine`, but for these.

    Args:
        inbox: source of commands.
        outbox: destination of events.
        voices: the voices by name, the default first.
        trial: measures the machine.
        name: name of the engine.
        model: name of its model.
        rows: maximum number of contexts; None for as many as are spoken in real time.
        threads: rows that are computed at the same time; None for one for each core.
    """
    threads = threads or os.cpu_count() or 1
    first = next(iter(voices.values()))
    return PhonemeEngine(
        inbox,
        outbox,
        voices,
        name=name,
        model=model,
        max_rows=rows or trial.rows(first, threads),
        threads=threads,
    )
