"""Computes what announced contexts will need while no listener waits: voices, and prompts."""

from collections import deque

from voiceagent_tts.engine.failing import failing_in_engine
from voiceagent_tts.engine.prompt_cache import PromptCache
from voiceagent_tts.engine.voice_cache import LoadedVoice, VoiceCache
from voiceagent_tts.seam.commands import Prepare

_MOST_WAITING = 64


class Preparations:
    """The preparations that clients asked for, in order; beyond 64, the oldest is dropped.

    Args:
        prompts: keeps what is computed.
        voices: voices of the model.
    """

    def __init__(self, prompts: PromptCache, voices: VoiceCache) -> None:
        self._prompts = prompts
        self._voices = voices
        self._waiting: deque[Prepare] = deque(maxlen=_MOST_WAITING)
        self._current: tuple[Prepare, LoadedVoice] | None = None

    @property
    def are_waiting(self) -> bool:
        """Whether `compute_part` has anything to compute."""
        return bool(self._current or self._waiting)

    def push(self, command: Prepare) -> None:
        """Queue a preparation."""
        self._waiting.append(command)

    def compute_part(self) -> None:
        """Compute a part of the voice of the oldest preparation, or the beginning of its prompts.

        A preparation that fails is dropped: a context that is opened for it reports the error.
        """
        with failing_in_engine((), lambda context, error: None):
            command, voice = self._current or self._next()
            self._current = None
            if not self._prompts.is_primed(voice):
                self._prompts.prime_part(voice)
                self._current = command, voice
                return
            instruct = command.options.instruct
            self._prompts.prepare(voice, command.language, instruct, command.feeding)

    def _next(self) -> tuple[Prepare, LoadedVoice]:
        command = self._waiting.popleft()
        instruct, version = command.options.instruct, command.voice_version
        return command, self._voices.find(command.voice, instruct, version)
