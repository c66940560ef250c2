"""Loads hibari: its voices, and how many rows this CPU can speak."""

import os
from collections.abc import Sequence
from importlib.metadata import version

from voiceagent_tts.hibari.network import Network
from voiceagent_tts.hibari.published import (
    PublishedVoice,
    assets,
    fetch,
    published_voices,
    stored_voices,
)
from voiceagent_tts.phonemes.engine import PhonemeEngine
from voiceagent_tts.phonemes.english import EnglishPronouncer
from voiceagent_tts.phonemes.load import Trial
from voiceagent_tts.phonemes.reading import LoadedVoice
from voiceagent_tts.seam.engine import Inbox, Outbox
from voiceagent_tts.seam.events import VoiceDetails

_TRIAL = Trial("This sentence tells how fast this machine can speak, before anyone listens.", 5)


def load_hibari(
    inbox: Inbox,
    outbox: Outbox,
    *,
    models: Sequence[str] = (),
    rows: int | None = None,
    threads: int | None = None,
) -> PhonemeEngine:
    """Load voices by name, the default first; by default all that are on this machine.

    By default as many contexts may be open as this CPU speaks in real time, measured at start, at
    most 512. `threads` rows are computed at the same time, by default one for each core.

    Raises:
        CheckpointError: the package is missing, a voice is unknown, or its file is neither here nor
            can be downloaded.
    """
    voices, threads = load_voices(models), threads or os.cpu_count() or 1
    return PhonemeEngine(
        inbox,
        outbox,
        voices,
        name="hibari",
        model=f"hibari-tts {version('hibari-tts')}",
        max_rows=rows or _TRIAL.rows(voices, threads),
        threads=threads,
    )


def load_voices(names: Sequence[str]) -> dict[str, LoadedVoice]:
    """Load voices by name, or all that are on this machine."""
    for name in names:
        fetch(name)
    chosen = [published_voices()[name] for name in names] or stored_voices()
    pronouncers: dict[bool, EnglishPronouncer] = {}
    return {voice.name: _load(voice, pronouncers) for voice in chosen}


def _load(published: PublishedVoice, pronouncers: dict[bool, EnglishPronouncer]) -> LoadedVoice:
    network = Network(published.file, assets() / "vocab.json")
    is_british = published.language == "en-gb"
    if is_british not in pronouncers:
        pronouncers[is_british] = EnglishPronouncer(network.knows, is_british=is_british)
    details = VoiceDetails(published.name, "speaker", published.language, published.gender)
    return LoadedVoice(details, network, pronouncers[is_british])
