"""One segment, frame by frame, through the public interface of pocket-tts."""

import threading

import numpy as np
import torch

from testbed.waiting import until
from voiceagent_tts.audio.pcm import pcm_to_float
from voiceagent_tts.core import BYTES_PER_SAMPLE, FRAME_SAMPLES
from voiceagent_tts.plugins.pocket.speech import Speech
from voiceagent_tts.plugins.pocket.states import PocketModel

LONG = " ".join(["One, two, three, four, five, six, seven, eight, nine, ten."] * 6)


def frames_of(speech: Speech) -> list[bytes]:
    """Read a speech to its end."""
    frames: list[bytes] = []
    speech.start_frame()
    while (frame := speech.next_frame()) is not None:
        frames.append(frame)
        speech.start_frame()
    return frames


def test_paced_speech_is_what_pocket_tts_says_itself(model: PocketModel) -> None:
    """Frame by frame, the samples are those of `generate_audio`, also over parts of a text.

    It decodes several frames in one call, whose sums round differently.
    """
    state = model.network.get_state_for_audio_prompt("alba")
    for text in ("Hello there.", LONG):
        frames = frames_of(Speech(model.network, state, text))
        whole = model.network.generate_audio(state, text).numpy()
        paced = pcm_to_float(b"".join(frames))
        np.testing.assert_allclose(paced, whole, rtol=0, atol=3 / 32768)


async def test_no_frame_is_computed_before_it_is_permitted(model: PocketModel) -> None:
    """Each permission gives one frame of 80 ms, and the model waits for the next."""
    before = threading.active_count()
    computed: list[int] = []
    transformer = model.network.flow_lm.transformer
    hook = transformer.register_forward_hook(lambda *_: computed.append(1))
    try:
        state = model.network.get_state_for_audio_prompt("alba")
        speech = Speech(model.network, state, "Hello there.")
        computed.clear()
        speech.start_frame()
        for frames in (1, 2, 3):
            frame = speech.next_frame()
            assert frame is not None and len(frame) == FRAME_SAMPLES * BYTES_PER_SAMPLE
            assert len(computed) == 1 + frames  # the text, and each frame
            speech.start_frame()
        speech.cancel()
        await until(lambda: threading.active_count() <= before, "the end of the frame that began")
    finally:
        hook.remove()


async def test_a_cancelled_speech_ends_with_its_frame(model: PocketModel) -> None:
    """Its threads end, and the model computes no frame after the one that had begun."""
    before = threading.active_count()
    state = model.network.get_state_for_audio_prompt("alba")
    speeches = [Speech(model.network, state, LONG) for _ in range(3)]
    for speech in speeches[1:]:  # one is cancelled before it begins
        speech.start_frame()
        assert speech.next_frame() is not None
    speeches[2].start_frame()
    for speech in speeches:
        speech.cancel()
    await until(lambda: threading.active_count() <= before, "the threads' end")


def test_rows_share_a_model_without_changing_each_other(model: PocketModel) -> None:
    """Speeches that compute at the same time say what each of them says alone."""
    voices = [model.network.get_state_for_audio_prompt(name) for name in ("alba", "marius")]
    texts = ["Hello there.", "How are you today?"]
    alone = [
        b"".join(frames_of(Speech(model.network, state, text)))
        for state, text in zip(voices, texts, strict=True)
    ]
    speeches = [
        Speech(model.network, state, text) for state, text in zip(voices, texts, strict=True)
    ]
    together = [b"", b""]
    while speeches != [None, None]:
        for speech in filter(None, speeches):
            speech.start_frame()
        for number, speech in enumerate(speeches):
            frame = None if speech is None else speech.next_frame()
            if frame is None:
                speeches[number] = None  # type: ignore[call-overload]
            together[number] += frame or b""
    assert together == alone and alone[0] != alone[1]
    assert torch.get_num_threads() == 1
