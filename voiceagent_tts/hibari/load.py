"""Loads hibari: its voices, and how many rows this CPU can speak."""

from dataclasses import dataclass
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
from voiceagent_tts.phonemes.load import Trial, make_engine
from voiceagent_tts.phonemes.reading import LoadedVoice
from voiceagent_tts.seam.engine import Inbox, Outbox
from voiceagent_tts.seam.events import VoiceDetails

_TRIAL = Trial("This sentence tells how fast this machine can speak, before anyone listens.", 5)


@dataclass(frozen=True, slots=True)
class HibariOptions:
    """Settings of an engine.

    Attributes:
        models: names of voices, the default first. Default: all that are on this machine.
        rows: maximum number of contexts at a time. Default: as many as this CPU speaks in real
            time, measured at start, at most 512.
        threads: rows that are computed at the same time. Default: one for each core.
    """

    models: tuple[str, ...] = ()
    rows: int | None = None
    threads: int | None = None


def load_hibari(options: HibariOptions, inbox: Inbox, outbox: Outbox) -> PhonemeEngine:
    """Load the voices, and measure the CPU unless the number of rows is given.

    Raises:
        CheckpointError: the package is missing, a voice is unknown, or its file is neither here nor
            can be downloaded.
    """
    voices = load_voices(tuple(options.models))
    return make_engine(
        inbox,
        outbox,
        voices,
        _TRIAL,
        name="hibari",
        model=f"hibari-tts {version('hibari-tts')}",
        rows=options.rows,
        threads=options.threads,
    )


def load_voices(names: tuple[str, ...]) -> dict[str, LoadedVoice]:
    """Load voices by name, or all that are on this machine."""
    pronouncers: dict[bool, EnglishPronouncer] = {}
    return {voice.name: _load(voice, pronouncers) for voice in _chosen(names)}


def _chosen(names: tuple[str, ...]) -> list[PublishedVoice]:
    for name in names:
        fetch(name)
    return [published_voices()[name] for name in names] or stored_voices()


def _load(published: PublishedVoice, pronouncers: dict[bool, EnglishPronouncer]) -> LoadedVoice:
    network = Network(published.file, assets() / "vocab.json")
    is_british = published.is_british
    if is_british not in pronouncers:
        pronouncers[is_british] = EnglishPronouncer(network.knows, is_british=is_british)
    details = VoiceDetails(published.name, "speaker", published.language, published.gender)
    return LoadedVoice(details, network, pronouncers[is_british])
