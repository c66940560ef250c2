"""What a client may choose for a context, and the limits that the server sets."""

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
    """Limits of every context.

    Args:
        max_text_chars: longest text received whose audio is not complete.
        max_audio_s: longest audio of one context; more ends it with reason `limit`.
        context_idle_s: longest wait for text; a longer one ends the context with reason `idle`.
        settle_s: pause after which a sentence end at the end of the buffered text is final.
        max_lead_s: longest lead of the audio over its playback, unless the context sets another.
        max_unsent_s: longest audio generated and not yet sent, which is the audio in memory.
        worker_wait_s: longest wait of `open` for a worker that is restarting.
    """

    max_text_chars: int = 20_000
    max_audio_s: float = 3600.0
    context_idle_s: float = 120.0
    settle_s: float = 0.15
    max_lead_s: float = 8.0
    max_unsent_s: float = 10.0
    worker_wait_s: float = 5.0


@dataclass(frozen=True, slots=True)
class ContextOptions:
    """What a client chooses for a context.

    Args:
        voice: a name of `VoiceBook`; None for the first voice.
        language: name, code or region code; None to detect it for each segment.
        speech: options for the engine; speeds that it lacks are applied by time-stretching.
        max_buffer_delay_ms: longest wait of buffered text for the rest of its sentence.
        max_lead_s: longest lead of the audio over its playback; None for the server's limit, 0
            for no pacing (files).
        text_feeding: how text reaches the engine; None for the engine's preferred way.
        wants_words: whether the client uses word times; if not, no aligner follows the context.
        is_probe: whether this is the server's own health check, which the metrics leave out.
        lexicon: pronunciations that come before those of the voice and of the server.
        has_markup: whether the tags of `text.markup` in the text have an effect.
        traceparent: trace context (W3C `traceparent`) for the engine's span; None without tracing.
        idle_s: longest wait for text, if it is shorter than the server's limit.
        cache: whether phrases come from the cache, and are stored there.
        is_strict: whether text in a language that the voice does not speak ends the context.
        owner: id of the key whose clones and phrases the context may use, in addition to shared
            ones; None on a server without keys.
    """

    voice: str | None = None
    language: str | None = None
    speech: SpeechOptions = SpeechOptions()
    max_buffer_delay_ms: int = 500
    max_lead_s: float | None = None
    text_feeding: Feeding | None = None
    wants_words: bool = True
    is_probe: bool = False
    lexicon: "Entries" = field(default_factory=dict[str, Any])
    has_markup: bool = False
    traceparent: str | None = None
    idle_s: float | None = None
    cache: CacheUse = "use"
    is_strict: bool = False
    owner: str | None = None


@dataclass(frozen=True, slots=True)
class ContextRequest:
    """A client's options with the names in them resolved.

    Args:
        options: the client's choices.
        voice: the voice, with the worker that speaks it.
        language: lower-case code that the voice speaks; None to detect it for each segment.
        feeding: how text reaches the engine.
        speech: options for the engine; their speed is in the range of engines with native speed.
        stretch: playback speed relative to the engine's audio.
        lexicons: the lexicons of the context, the voice and the server; those that exist.
        reads_ipa: whether the engine reads the IPA of pronunciations.
        warnings: warnings sent to the client with the first text.
        languages: codes that the voice speaks; empty for a voice with a language of its own, which
            may be none of those that are detected.
    """

    options: ContextOptions
    voice: Voice
    language: str | None
    feeding: Feeding
    speech: SpeechOptions
    stretch: float
    lexicons: "tuple[EntryMatcher, ...]" = ()
    reads_ipa: bool = True
    warnings: tuple[ContextWarned, ...] = ()
    languages: tuple[str, ...] = ()
