"""Train tokenizers in the layout of the published models on agents' sentences.

They encode a text to about as many tokens as the published tokenizer. Nothing is downloaded.
"""

import json
from itertools import islice
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from tokenizers.trainers import BpeTrainer

from testbed.agent_text import agent_sentences
from voiceagent_tts.model.config import ModelConfig

_SENTENCES = 2000
_LEARNT_TOKENS = 8000
_SPECIAL_FLAGS = dict.fromkeys(("lstrip", "normalized", "rstrip", "single_word"), False)


def write_tokenizer(folder: Path, config: ModelConfig) -> None:
    """Write the files of a tokenizer that knows English words and a model's control tokens.

    Args:
        folder: existing folder to write into.
        config: configuration of the model, for the ids of its control tokens.
    """
    special = _special_tokens(config)
    _learnt(min(special)).save(str(folder))
    settings = json.dumps(_tokenizer_config(special), indent=1)
    (folder / "tokenizer_config.json").write_text(settings, "utf-8")


def _learnt(size: int) -> BPE:
    """Learn a vocabulary of `size` tokens from agents' sentences."""
    tokenizer = Tokenizer(BPE())
    tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False)  # type: ignore[assignment]
    trainer = BpeTrainer(
        vocab_size=min(_LEARNT_TOKENS, size),
        initial_alphabet=ByteLevel.alphabet(),
        show_progress=False,
    )
    sentences = islice(agent_sentences(seed=0), _SENTENCES)
    turns = (f"{role}\n{sentence}" for sentence in sentences for role in ("assistant", "user"))
    tokenizer.train_from_iterator(turns, trainer)
    learnt = json.loads(tokenizer.to_str())["model"]
    unused = {f"<unused {id}>": id for id in range(len(learnt["vocab"]), size)}
    return BPE(learnt["vocab"] | unused, [(first, second) for first, second in learnt["merges"]])


def _special_tokens(config: ModelConfig) -> dict[int, str]:
    """Return the tokens after the vocabulary, without a gap: the library numbers them in order."""
    named = {
        config.im_start_token_id - 1: "<|endoftext|>",
        config.im_start_token_id: "<|im_start|>",
        config.im_end_token_id: "<|im_end|>",
        config.tts_pad_token_id: "<tts_pad>",
        config.tts_bos_token_id: "<tts_text_bos>",
        config.tts_eos_token_id: "<tts_text_eod>",
    }
    return {id: named.get(id, f"<|unused {id}|>") for id in range(min(named), max(named) + 1)}


def _tokenizer_config(special: dict[int, str]) -> dict[str, Any]:
    added = {
        str(id): {"content": name, "special": True, **_SPECIAL_FLAGS}
        for id, name in special.items()
    }
    return {
        "tokenizer_class": "Qwen2Tokenizer",
        "processor_class": "Qwen3TTSProcessor",
        "add_bos_token": False,
        "add_prefix_space": False,
        "added_tokens_decoder": added,
        "bos_token": None,
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "unk_token": None,
        "errors": "replace",
        "model_max_length": 131_072,
        "split_special_tokens": False,
        "clean_up_tokenization_spaces": False,
    }
