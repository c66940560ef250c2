"""The choices of a client for a context, and the limits that the server sets."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from voiceagent_tts.seam.commands import Feeding, SpeechOptions
from voiceagent_tts.synthesizer.events import ContextWarned
from voiceagent_tts.voices import Voice

if TYPE_CHECKING:
    from voiceagent_tts.lexicon import Entries
    from voiceagent_tts.text.entries import EntryMatcher

CacheUse = Literal["use", "off", "fill"]
"""Whether a context uses the cache: `use` plays cached phrases and stores repeated ones, `off` does
neither, and `fill` stores all of its phrases."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of every context."""

    max_text_chars: int = 20_000  # of text received whose audio is not complete
    max_audio_s: float = 3600.0  # of one context; more ends it with reason `limit`
    context_idle_s: float = 120.0  # without text, after which it ends with reason `idle`
    settle_s: float = 0.15  # after which a sentence end at the end of the buffered text is final
    max_lead_s: float = 8.0  # of audio over its playback, unless the context sets another
    max_unsent_s: float = 10.0  # of audio generated and not yet sent, which is that in memory
    worker_wait_s: float = 5.0  # of `open`, for a worker that is restarting


@dataclass(frozen=True, slots=True)
class ContextOptions:
    """The choices of a client for a context."""

    voice: str | None = None  # a name of `VoiceBook`; None for the first voice
    language: str | None = None  # name, code or region code; None to detect it for each segment
    speech: SpeechOptions = SpeechOptions()  # speeds that the engine lacks are time-stretched
    max_buffer_delay_ms: int = 500  # longest wait of buffered text for the rest of its sentence
    max_lead_s: float | None = None  # None for the server's limit, 0 for no pacing (files)
    text_feeding: Feeding | None = None  # None for the engine's preferred way
    wants_words: bool = True  # if the client uses no word times, no aligner follows the context
    is_probe: bool = False  # for the server's own health check, which the metrics leave out
    lexicon: "Entries" = field(default_factory=dict[str, Any])
    """Pronunciations that come before those of the voice and of the server."""
    has_markup: bool = False  # whether the tags of `text.markup` in the text have an effect
    traceparent: str | None = None  # W3C, for the engine's span; None without tracing
    idle_s: float | None = None  # longest wait for text, if it is shorter than the server's limit
    cache: CacheUse = "use"
    is_strict: bool = False  # text in a language that the voice does not speak ends the context
    owner: str | None = None
    """Id of the key whose clones and phrases the context may use, in addition to shared ones; None
    on a server without keys."""


@dataclass(frozen=True, slots=True)
class ContextRequest:
    """A client's options with the names in them resolved."""

    options: ContextOptions
    voice: Voice  # with the worker that speaks it
    language: str | None  # lower-case code that the voice speaks; None to detect it
    feeding: Feeding
    speech: SpeechOptions  # with a speed in the range of engines with native speed
    stretch: float  # playback speed relative to the engine's audio
    lexicons: "tuple[EntryMatcher, ...]" = ()  # of the context, the voice and the server
    reads_ipa: bool = True  # whether the engine reads the IPA of pronunciations
    warnings: tuple[ContextWarned, ...] = ()  # sent to the client with the first text
    languages: tuple[str, ...] = ()
    """Codes that the voice speaks; empty for a voice with a language of its own, which may be one
    that cannot be detected."""
