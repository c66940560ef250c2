"""Loads Qwen3-TTS, and the forced aligner into the same process if it is to share its GPU.

The aligner is loaded first, so that the engine plans its memory with what is left.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch

from voiceagent_tts.aligner.cards import read_cards
from voiceagent_tts.aligner.placement import (
    Placement,
    engine_bytes,
    numbered,
    place_as_set,
    place_beside,
)
from voiceagent_tts.engine.load import load_engine
from voiceagent_tts.engine.options import Qwen3Options
from voiceagent_tts.errors import VoiceAgentError
from voiceagent_tts.hub import find_model
from voiceagent_tts.seam.engine import Engine, Inbox, Outbox
from voiceagent_tts.worker.aligning import AligningEngine, BusyEngine

AnyInbox = Callable[[], list[Any]]
"""Source of the commands to both."""

_logger = logging.getLogger(__name__)


def load_with_aligner(
    engine: Qwen3Options, aligner: Mapping[str, Any], inbox: AnyInbox, outbox: Outbox
) -> Engine:
    """Load an engine, and the aligner beside it if that is its place and it can be loaded.

    Without the aligner in its capabilities, the server starts one in a process of its own.

    Args:
        engine: options of the engine.
        aligner: fields of `aligner.forced.load.ForcedOptions`.
        inbox: source of the commands to both.
        outbox: destination of the events of both.

    Raises:
        CheckpointError: as in `load_engine`.
        VoiceAgentError: as in `load_engine`.
    """
    placement = place(engine, aligner)
    _logger.info("forced aligner: %s", placement.reason)
    if placement.is_shared:
        try:
            return _load_both(engine, str(aligner["model"]), placement, inbox, outbox)
        except _AlignerFault as fault:
            _logger.warning("the engine continues without the forced aligner: %s", fault)
    return load_engine(engine, inbox, outbox)


def place(engine: Qwen3Options, aligner: Mapping[str, Any]) -> Placement:
    """Decide where the aligner runs, before the engine is loaded.

    Raises:
        CheckpointError: the model of the engine is not on this machine.
    """
    gpus = torch.cuda.device_count()
    device = numbered(engine.device, gpus)
    if aligner["device"] is not None:
        return place_as_set(numbered(aligner["device"], gpus), device)
    used = [numbered(each, gpus) for each in aligner["engine_devices"]]
    limit_bytes = None if engine.gpu_memory_gb is None else int(engine.gpu_memory_gb * 1e9)
    needed_bytes = engine_bytes(_weights_bytes(engine))
    return place_beside(device, needed_bytes, limit_bytes, used, read_cards())


class _AlignerFault(Exception):
    """The aligner cannot be loaded into this process."""


def _load_both(
    options: Qwen3Options, model: str, placement: Placement, inbox: AnyInbox, outbox: Outbox
) -> AligningEngine:
    from voiceagent_tts.aligner.forced.load import SHARED_PACING, load_shared
    from voiceagent_tts.aligner.forced.sessions import ForcedSessions

    try:
        shared = load_shared(model, placement.device)
    except (VoiceAgentError, RuntimeError) as error:
        raise _AlignerFault(str(error).splitlines()[0]) from None
    _logger.info("passes of the forced aligner need %.2f GB", shared.working_bytes / 1e9)

    def make_engine(inbox: Inbox, outbox: Outbox) -> BusyEngine:
        engine = load_engine(replace(options, beside_bytes=shared.working_bytes), inbox, outbox)
        shared.aligner.warm_up()  # allocates the memory that the engine's plan released
        return engine

    def make_sessions(inbox: AnyInbox, outbox: Callable[[Any], None]) -> ForcedSessions:
        return ForcedSessions(inbox, outbox, shared.aligner, SHARED_PACING)

    return AligningEngine(make_engine, make_sessions, inbox, outbox, placement.reason)


def _weights_bytes(engine: Qwen3Options) -> int:
    """Return the size of the model's files, which hold 16 bits for each weight."""
    files = find_model(engine.model).rglob("*.safetensors")
    return sum(path.stat().st_size for path in files) * (2 if engine.precision == "float32" else 1)
