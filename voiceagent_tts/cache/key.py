"""Keys of the cache: everything that shapes the sound of a segment, hashed.

What the client's audio format, the pacing and the transport do to the audio comes after the cache
and is in no key.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass

from voiceagent_tts import __version__
from voiceagent_tts.cache.phrase import Spoken
from voiceagent_tts.core import Segment
from voiceagent_tts.seam.commands import Feeding, SpeechOptions
from voiceagent_tts.seam.events import Capabilities
from voiceagent_tts.text.readings import said
from voiceagent_tts.text.words import is_spoken

_FORMAT = 1
"""Version of keys and phrases; a change of it invalidates everything stored."""


@dataclass(frozen=True, slots=True)
class Manner:
    """How a context is spoken: everything that shapes its sound, except its text.

    Attributes:
        engine: name of the engine.
        model: name of its model.
        revision: weights and numerics of the model.
        spoken: the voice.
        instruct: description of how to speak.
        speed: speed at which the engine speaks; 1.0 where the server stretches its audio instead.
        seed: the client's seed; None for a random one.
        feeding: how the text reaches the engine, where a seed makes that audible; else None.
    """

    engine: str
    model: str
    revision: str
    spoken: Spoken
    instruct: str | None
    speed: float
    seed: int | None
    feeding: Feeding | None


def manner_of(
    capabilities: Capabilities, spoken: Spoken, speech: SpeechOptions, feeding: Feeding
) -> Manner | None:
    """Return how a context is spoken; None if no other context may sound like it.

    A voice that is made from a description is another person for every random seed.
    """
    if capabilities.needs_instruct and speech.seed is None:
        return None
    return Manner(
        capabilities.engine,
        capabilities.model,
        capabilities.revision,
        spoken,
        speech.instruct,
        speech.speed if capabilities.has_native_speed else 1.0,
        speech.seed,
        None if speech.seed is None else feeding,
    )


@dataclass(frozen=True, slots=True)
class Place:
    """Where a segment stands in its context, as far as that is heard.

    Attributes:
        language: language code; None if the engine chooses.
        lacks_lead: whether the silence before the first sound is left out.
        lacks_pause: whether the pause after the segment is left out, as no text follows.
    """

    language: str | None
    lacks_lead: bool = False
    lacks_pause: bool = False


@dataclass(frozen=True, slots=True)
class PhraseKey:
    """A segment's key, and the text that it says."""

    digest: str
    text: str


def said_text(segment: Segment) -> str:
    """What a segment says, with its readings and without what is not spoken."""
    return said(segment.text, segment.char_start, segment.readings).text.strip()


def key_of(manner: Manner, place: Place, segment: Segment) -> PhraseKey | None:
    """Return the key of a segment; None if there is nothing to speak."""
    return next(keys_of((manner,), place, segment), None)


def keys_of(manners: Iterable[Manner], place: Place, segment: Segment) -> Iterator[PhraseKey]:
    """Yield the key of a segment in each manner; none if there is nothing to speak."""
    spoken = said(segment.text, segment.char_start, segment.readings)
    text = spoken.text.strip()
    if not is_spoken(text):
        return
    ipa = [[reach.start, reach.stop, sounds] for reach, sounds in spoken.ipa]
    for manner in manners:
        parts = [_FORMAT, __version__, asdict(manner), asdict(place), text, ipa]
        digest = hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
        yield PhraseKey(digest, text)
