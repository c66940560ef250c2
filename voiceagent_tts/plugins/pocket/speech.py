"""The speech of one segment by Pocket TTS, made one frame at a time.

`TTSModel.generate_audio_stream` computes on threads of its own, as fast as it can, and only its
`stop` is asked before each frame. A `stop` that waits for permission therefore paces it, by its
public interface alone: a row stays within its credit, and a cancelled one computes at most the
frame that it has begun.
"""

import threading
from typing import TYPE_CHECKING

import numpy as np

from voiceagent_tts.audio.pcm import float_to_pcm

if TYPE_CHECKING:
    from collections.abc import Generator

    from pocket_tts import TTSModel
    from torch import Tensor

    from voiceagent_tts.plugins.pocket.states import State


class FrameGate(threading.Event):
    """The `stop` of one generation: lets it compute one frame for each `open`.

    pocket-tts calls `is_set` on the reader's thread once before each part of a long text, and on
    its own thread before each frame. A part's first frame follows from being read, so the reader's
    call permits it.
    """

    def __init__(self) -> None:
        super().__init__()
        self._reader = threading.get_ident()
        self._permits = threading.Semaphore(0)

    def open(self) -> None:
        """Permit one more frame."""
        self._permits.release()

    def set(self) -> None:
        """End the generation before its next frame."""
        super().set()
        self._permits.release()

    def is_set(self) -> bool:
        """Wait for permission for a frame; return whether the generation must end."""
        if threading.get_ident() == self._reader:
            self._permits.release()
        else:
            self._permits.acquire()
        return super().is_set()


class Speech:
    """The audio of one text in one voice. One thread uses it; many may share `model`."""

    def __init__(self, model: "TTSModel", state: "State", text: str) -> None:
        self._gate = FrameGate()
        self._has_begun = False
        self._frames: Generator[Tensor] = model.generate_audio_stream(  # pyright: ignore[reportAttributeAccessIssue]
            state, text, stop=self._gate
        )

    def start_frame(self) -> None:
        """Let the next frame be computed in the background; the first starts when it is read."""
        if self._has_begun:
            self._gate.open()

    def next_frame(self) -> bytes | None:
        """Wait for the frame that was started; return its PCM16, None at the end of the text.

        Raises:
            Exception: the model failed, with an error of torch or pocket-tts.
        """
        self._has_begun = True
        samples = next(self._frames, None)
        return None if samples is None else float_to_pcm(samples.numpy().astype(np.float32))

    def cancel(self) -> None:
        """End the generation; a frame that has begun is computed to its end and dropped."""
        self._gate.set()
        self._frames.close()
