"""What a run begins with: its prompt, and what of it was computed before its text came.

The beginning of a prompt (instruct, language, voice) is the same for every text, and so is a
clone's reference as the codec hears it. Both are computed once and kept, the least used forgotten
first. Knows no rows and no time.
"""

from collections import OrderedDict
from dataclasses import dataclass

from voiceagent_tts.engine.runner import Prefix, Runner
from voiceagent_tts.engine.sequence import Sequence, Speaker
from voiceagent_tts.engine.voices import CacheCounts, Shelved
from voiceagent_tts.errors import OverloadedError
from voiceagent_tts.model.checkpoint import Checkpoint
from voiceagent_tts.model.codec_state import CodecState
from voiceagent_tts.model.prompt import Cloned, Prompt, PromptBuilder, Voice
from voiceagent_tts.seam.commands import Feeding

MAX_PREFIXES = 64

_Key = tuple[Voice, str | None, str, bool]


@dataclass(frozen=True, slots=True)
class Opening:
    """What a row is started with.

    Attributes:
        prompt: all of it.
        prefix: its beginning, where that was computed before.
        primed: the codec's state that the sound continues, if any.
    """

    prompt: Prompt
    prefix: Prefix | None
    primed: CodecState | None


class Prompter:
    """Makes the prompts of one model.

    Args:
        checkpoint: the model.
        runner: computes on it.
        max_prefixes: how many are kept.
    """

    def __init__(
        self, checkpoint: Checkpoint, runner: Runner, max_prefixes: int = MAX_PREFIXES
    ) -> None:
        self._builder = PromptBuilder(checkpoint.config, checkpoint.tokenizer)
        # Base models were trained on the streaming layout also for whole texts.
        self._always_streams = checkpoint.config.tts_model_type == "base"
        self._runner = runner
        self._max_prefixes = max_prefixes
        self._prefixes: OrderedDict[_Key, Prefix] = OrderedDict()
        self.counts = CacheCounts()

    def ids_to_start(self, shelved: Shelved) -> int:
        """How many ids of an open text a run needs to begin."""
        return self._builder.ids_to_start(shelved.voice)

    def open(self, speaker: Speaker, sequence: Sequence, shelved: Shelved) -> Opening:
        """What the run of `sequence` begins with.

        Raises:
            InvalidRequestError: the model cannot speak so.
        """
        is_streaming = sequence.is_streaming or self._always_streams
        prompt = self._builder.build_turn(
            sequence.ids,
            shelved.voice,
            sequence.language,
            speaker.instruct or "",
            is_streaming=is_streaming,
            is_open=sequence.is_open,
        )
        key = (shelved.voice, sequence.language, speaker.instruct or "", is_streaming)
        return Opening(prompt, self._find(key, prompt), self._primed(shelved))

    def prepare(
        self, shelved: Shelved, language: str | None, instruct: str | None, feeding: Feeding
    ) -> None:
        """Compute what every run of this voice, language and instruct begins with.

        Raises:
            InvalidRequestError: the model cannot speak so.
        """
        self._primed(shelved)
        is_streaming = feeding == "token" or self._always_streams
        key = (shelved.voice, language, instruct or "", is_streaming)
        if key in self._prefixes:
            self._prefixes.move_to_end(key)
        else:
            self._keep(key)

    def _find(self, key: _Key, prompt: Prompt) -> Prefix | None:
        prefix = self._prefixes.get(key)
        if prefix is None or not prefix.begins(prompt):
            self.counts.misses += 1
            return None
        self.counts.hits += 1
        self._prefixes.move_to_end(key)
        return prefix

    def _keep(self, key: _Key) -> None:
        voice, language, instruct, is_streaming = key
        prompt = self._builder.build_prefix(voice, language, instruct, is_streaming=is_streaming)
        if not self._runner.can_prepare(prompt):  # whatever else is forgotten
            return
        while len(self._prefixes) >= self._max_prefixes:
            self._prefixes.popitem(last=False)
        while key not in self._prefixes:
            try:
                self._prefixes[key] = self._runner.prepare(prompt)
            except OverloadedError:  # what is kept for prefixes is full
                if not self._prefixes:
                    return
                self._prefixes.popitem(last=False)

    def _primed(self, shelved: Shelved) -> CodecState | None:
        """The codec's state after a clone's reference, computed once a voice."""
        voice = shelved.voice
        if (
            shelved.primed is None
            and isinstance(voice, Cloned)
            and voice.reference_codes is not None
        ):
            shelved.primed = self._runner.prime(voice.reference_codes)
        return shelved.primed
