"""Builds the prompt of a sequence from parts that are computed once.

The beginning of a prompt (instruct, language, voice) does not depend on the text, and neither does
the codec's state after a clone's reference audio. Both are cached.
"""

from collections import deque

from voiceagent_tts.engine.publisher import failing_in_engine
from voiceagent_tts.engine.runner import Prefix, Runner
from voiceagent_tts.engine.scheduler import Scheduler
from voiceagent_tts.engine.sequence import Sequence
from voiceagent_tts.engine.voice_cache import CacheCounts, LoadedVoice, VoiceCache
from voiceagent_tts.errors import OverloadedError
from voiceagent_tts.lru import LRUCache
from voiceagent_tts.model.checkpoint import Checkpoint
from voiceagent_tts.model.kv_pool import pages_for
from voiceagent_tts.model.prompt import Prompt, PromptBuilder, Voice, reference_codes
from voiceagent_tts.seam.commands import Feeding, Prepare

_MOST_PREFIXES = 64
_MOST_PREPARATIONS = 64

_Key = tuple[Voice, str | None, str, bool]


class PromptCache:
    """Builds prompts of one model and caches their beginnings."""

    def __init__(self, checkpoint: Checkpoint, runner: Runner, scheduler: Scheduler) -> None:
        self._builder = PromptBuilder(checkpoint.config, checkpoint.tokenizer)
        # Base models were trained on the streaming layout for whole texts, too.
        self._always_streams = checkpoint.config.tts_model_type == "base"
        self._runner = runner
        self._scheduler = scheduler
        self._prefixes = LRUCache[_Key, Prefix](_MOST_PREFIXES)
        self.counts = CacheCounts()

    def ids_to_start(self, loaded: LoadedVoice) -> int:
        """Return how many ids of an open text a sequence needs to start."""
        return self._builder.ids_to_start(loaded.voice)

    def build(
        self, sequence: Sequence, loaded: LoadedVoice, instruct: str | None
    ) -> tuple[Prompt, Prefix | None]:
        """Build the prompt of a sequence; return it, and its beginning if that was computed before.

        Raises:
            InvalidRequestError: the model does not support the voice, language or instruct.
        """
        is_streaming = sequence.is_streaming or self._always_streams
        prompt = self._builder.build_turn(
            sequence.ids,
            loaded.voice,
            sequence.language,
            instruct or "",
            is_streaming=is_streaming,
            is_open=sequence.is_open,
        )
        key = (loaded.voice, sequence.language, instruct or "", is_streaming)
        return prompt, self._find_prefix(key, prompt)

    def is_primed(self, loaded: LoadedVoice) -> bool:
        """Whether the codec's state after the voice's reference is there, or none is needed."""
        if reference_codes(loaded.voice) is None:
            return True
        return loaded.priming is not None and loaded.priming.is_done

    def prime_part(self, loaded: LoadedVoice) -> None:
        """Compute the next part of the codec's state after the voice's reference."""
        codes = reference_codes(loaded.voice)
        assert codes is not None, "expected a voice with a reference"
        priming = loaded.priming or self._runner.prime(codes)
        loaded.priming = None  # if a part fails, nothing continues it
        priming.advance()
        loaded.priming = priming

    def prepare(
        self, loaded: LoadedVoice, language: str | None, instruct: str | None, feeding: Feeding
    ) -> None:
        """Compute the prefix of every prompt with this voice, language and instruct."""
        is_streaming = feeding == "token" or self._always_streams
        key = (loaded.voice, language, instruct or "", is_streaming)
        if self._prefixes.get(key) is None:
            self._compute_prefix(key)

    def _find_prefix(self, key: _Key, prompt: Prompt) -> Prefix | None:
        prefix = self._prefixes.peek(key)
        if prefix is None or not prefix.begins(prompt):
            self.counts.misses += 1
            return None
        self.counts.hits += 1
        return self._prefixes.get(key)

    def _compute_prefix(self, key: _Key) -> None:
        voice, language, instruct, is_streaming = key
        prompt = self._builder.build_prefix(voice, language, instruct, is_streaming=is_streaming)
        if not self._runner.can_prepare(prompt):
            return
        with self._scheduler.memory.lend_pages(pages_for(len(prompt))) as pages:
            if pages is None:  # dropping other prefixes would free none
                return
            while len(self._prefixes) >= _MOST_PREFIXES:
                self._prefixes.drop_oldest()
            while key not in self._prefixes:
                try:
                    self._prefixes.put(key, self._runner.prepare(prompt, pages))
                except OverloadedError:  # the memory for prefixes is full
                    self._prefixes.drop_oldest()


class Preparations:
    """Computes what announced contexts will need while no listener waits: voices, and prompts.

    In the order in which clients asked; beyond 64, the oldest preparation is dropped.
    """

    def __init__(self, prompts: PromptCache, voices: VoiceCache) -> None:
        self._prompts = prompts
        self._voices = voices
        self._waiting: deque[Prepare] = deque(maxlen=_MOST_PREPARATIONS)
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
