"""Voices of Pocket TTS: states of its language model, from its catalogue or from clones.

A voice is what the language model remembers of a recording: the keys and values of its layers.
A state belongs to the weights that made it. `pocket-tts` publishes the states of its catalogue for
each of its models. A clone's file holds one state for each model that it was made for.
"""

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

import safetensors
import safetensors.torch
import torch

from voiceagent_tts.clones import VoiceFolder, read_header
from voiceagent_tts.errors import ErrorCode, InvalidRequestError
from voiceagent_tts.lru import LRUCache
from voiceagent_tts.plugins.pocket.published import GATED_PAGE, voices_for
from voiceagent_tts.voices import name_hint

if TYPE_CHECKING:
    from pocket_tts import TTSModel

State = dict[str, dict[str, torch.Tensor]]
"""A voice: tensors by module and name, as `pocket-tts` passes them."""

_MAX_STATES = 64
"""With the published models a voice takes 49 kB for each 80 ms of its recording: 6 MB for 10 s."""
_MAX_REFERENCE_S = 30
"""Seconds of a recording that are used, as in `pocket-tts` itself."""


@dataclass(frozen=True, slots=True)
class PocketModel:
    """A loaded model.

    Attributes:
        key: name under which clones store what belongs to it.
        weights: where its weights come from, with the commit.
        network: the model of `pocket-tts`, shared by all rows.
        is_published: whether the states of the catalogue are for its weights.
        revision: what tells its weights and their precision from others.
    """

    key: str
    language: str
    weights: str
    network: "TTSModel"
    is_published: bool
    revision: str = ""


class VoiceStates:
    """Finds the states of voices, and keeps those used last.

    A state is loaded on a thread of this object: one of the catalogue may first be downloaded, and
    rows that speak need not wait for it.
    """

    def __init__(self, models: Sequence[str], clones: VoiceFolder) -> None:
        self.details = voices_for(models)
        self._names = frozenset(voice.name for voice in self.details)
        self._clones = clones
        self._states: LRUCache[tuple[object, ...], Future[State]] = LRUCache(_MAX_STATES)
        self._loader = ThreadPoolExecutor(1, "voices")

    def find(self, name: str, model: PocketModel, expected: tuple[int, ...] = ()) -> Future[State]:
        """Return the state of a voice for a model, loaded or being loaded.

        `expected` is the version of a clone, as in `Submit`.

        Raises:
            InvalidRequestError: there is no such voice, or it was replaced.
        """
        if expected or name in self._clones:
            version = self._clones.version(name, expected)
        elif name in self._names and model.is_published:
            version = ()
        else:
            # Any client may get the message, so it names no clones.
            raise _refused(
                f"expected the name of a voice, got {name[:64]!r}; {name_hint(name, self._names)}"
            )
        key = (name, model.key, version)
        state = self._states.get(key)
        if state is None or (state.done() and state.exception() is not None):
            if version:
                state = self._loader.submit(self._load_clone, name, model, version)
            else:
                state = self._loader.submit(self._load_published, name, model)
            self._states.put(key, state)
        return state

    def close(self) -> None:
        """End the thread; idempotent."""
        self._loader.shutdown(wait=False, cancel_futures=True)

    def _load_clone(self, name: str, model: PocketModel, version: tuple[int, ...]) -> State:
        return unpack_state(self._clones.read(name, version), model)

    def _load_published(self, name: str, model: PocketModel) -> State:
        try:
            return model.network.get_state_for_audio_prompt(name)
        except Exception as error:  # the hub's client raises the errors of its own HTTP library
            reason = next(iter(str(error).splitlines()), "") or type(error).__name__
            raise _refused(
                f"the voice {name!r} of the model {model.key} is not on this machine, and cannot "
                f"be downloaded: {reason}"
            ) from error


def make_clone(models: list[PocketModel], samples: torch.Tensor) -> bytes:
    """Return the content of the voice file of a recording's voice, for all of `models`.

    `samples`: [S] float32 in [-1, 1], 24 kHz; only the first 30 s are used.

    Raises:
        InvalidRequestError: the weights of a model cannot clone voices.
    """
    for model in models:
        if not model.network.has_voice_cloning:
            raise InvalidRequestError(
                f"the weights of {model.key} on this machine cannot clone voices; accept the terms "
                f"on {GATED_PAGE}, log in with `hf auth login`, and try again",
                code=ErrorCode.NOT_SUPPORTED,
            )
    longest = _MAX_REFERENCE_S * models[0].network.sample_rate
    recording = samples[None, :longest]
    tensors = {
        f"{model.key}/{module}/{name}": tensor.contiguous()
        for model in models
        for module, values in model.network.get_state_for_audio_prompt(recording).items()
        for name, tensor in values.items()
    }
    return safetensors.torch.save(tensors, metadata={model.key: model.weights for model in models})


def unpack_state(voice_file: bytes, model: PocketModel) -> State:
    """Return the state for `model` from the content of a clone's file.

    Raises:
        InvalidRequestError: it is no such file, or was made for other weights.
    """
    try:
        tensors = safetensors.torch.load(voice_file)
        header, _ = read_header(voice_file)
    except (safetensors.SafetensorError, ValueError):
        raise _refused("expected a voice file of Pocket TTS, got another file") from None
    weights: dict[str, str] = header.get("__metadata__", {})
    state: State = {}
    for path, tensor in tensors.items():
        key, _, rest = path.partition("/")
        module, _, name = rest.rpartition("/")
        if key == model.key and module:
            state.setdefault(module, {})[name] = tensor
    if not state or weights.get(model.key) != model.weights:
        made_for = ", ".join(f"{key} ({place})" for key, place in weights.items()) or "none"
        raise _refused(
            f"expected a voice made for the model {model.key} ({model.weights}), got one made for "
            f"{made_for}; add it again with `voices add --engine pocket --replace`"
        )
    return state


def _refused(message: str) -> InvalidRequestError:
    return InvalidRequestError(message, code=ErrorCode.INVALID_VOICE)
