"""Designs a voice: a VoiceDesign model speaks as described, and its audio can be cloned."""

import torch
from torch import Tensor

from voiceagent_tts.engine.generate import Request, generate_codes
from voiceagent_tts.engine.guards import frame_cap
from voiceagent_tts.model.checkpoint import Checkpoint
from voiceagent_tts.model.codec import Codec
from voiceagent_tts.model.prompt import Designed, PromptBuilder
from voiceagent_tts.model.sampling import sampling_params


def design_voice(
    designer: Checkpoint, codec: Codec, instruct: str, text: str, language: str | None, seed: int
) -> Tensor:
    """Generate the reference recording of a voice that is described in words.

    Args:
        designer: the VoiceDesign model.
        codec: the model's codec.
        instruct: description of the speaker and the delivery.
        text: text of the recording; a sentence or two.
        language: name or code of the language; None if the model chooses.
        seed: seed of sampling; another seed gives another voice.

    Returns:
        [S] float32 in [-1, 1], 24 kHz, on the CPU.

    Raises:
        InvalidRequestError: the model cannot design voices, does not support the language, or the
            text is empty.
    """
    builder = PromptBuilder(designer.config, designer.tokenizer)
    prompt = builder.build(text, Designed(), language, instruct)
    ids = len(designer.tokenizer.encode(text))
    max_frames = min(frame_cap(ids), designer.generation.max_new_tokens)
    request = Request(prompt, sampling_params(designer.generation, seed), max_frames)
    capacity = len(prompt) + max_frames
    (codes,) = generate_codes(designer.network, [request], rows=1, capacity=capacity)
    with torch.inference_mode():
        return codec.decode(codes.to(designer.network.device)).cpu()
