"""What an error in the engine ends: the contexts that it concerns, or the process."""

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager

import torch

from voiceagent_tts.errors import VoiceAgentError
from voiceagent_tts.seam.failing import failing


def failing_in_engine(
    contexts: Iterable[int], fail: Callable[[int, VoiceAgentError], None]
) -> AbstractContextManager[None]:
    """Turn an error into the failure of `contexts`, unless it is one of the device.

    After such an error a device computes nothing more. The process ends, and another one starts.
    """
    device_errors = (torch.AcceleratorError,)
    return failing("the engine", contexts, fail, unless=device_errors)
