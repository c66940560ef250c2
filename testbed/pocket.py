"""Random weights for Pocket TTS, stored as its package expects them from the hub.

The configuration is a published one, so the package's own loader, revisions and catalogue of voices
are used. What the model says is noise; how long it is follows from the text, or is always short.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import safetensors.torch
import sentencepiece
import tokenizers
import torch
import yaml

from voiceagent_tts.core import SAMPLE_RATE_HZ
from voiceagent_tts.garbage import without_collection
from voiceagent_tts.plugins.pocket.published import HubFile, config_path, parse_hub_file, weights_of

if TYPE_CHECKING:
    from pocket_tts import TTSModel

SMALL_MODEL = "english_2m_2026-10"
"""The smallest published model: 1.9 million parameters that speak, 9.8 million that encode."""

_ROOT = Path(__file__).parents[1]
_ALWAYS, _NEVER = 50.0, -50.0


@dataclass(frozen=True, slots=True)
class PocketHome:
    """What to store, and where.

    Attributes:
        folder: the folder for the variable `HF_HOME`.
        model: a published model.
        voices: names of voices of the catalogue.
        can_clone: whether the weights that clone are there, beside those for everyone.
        is_short: whether each text ends after about 0.8 s; else after 2 s and 0.4 s a word.
    """

    folder: Path
    model: str = SMALL_MODEL
    voices: tuple[str, ...] = ("alba", "marius")
    can_clone: bool = True
    is_short: bool = True

    def store(self) -> None:
        # Imported on first use: it brings PyTorch's compiler, and takes seconds.
        with without_collection():
            from pocket_tts import export_model_state
            from pocket_tts.utils.utils import get_predefined_voice

        self.folder.mkdir(parents=True, exist_ok=True)
        weights = weights_of(self.model)
        (tokenizer,) = weights.shared
        self._write_tokenizer(self._path_of(tokenizer))
        network = self._make_network(self._path_of(tokenizer))
        files = (weights.cloning if self.can_clone else None, weights.plain)
        for file in filter(None, files):
            safetensors.torch.save_file(network.state_dict(), self._path_of(file))
        for number, voice in enumerate(self.voices):
            state = network.get_state_for_audio_prompt(_noise(number))
            file = parse_hub_file(get_predefined_voice(self.model, voice))
            assert file is not None
            export_model_state(state, self._path_of(file))

    def _make_network(self, tokenizer: Path) -> "TTSModel":
        """A network of the model's sizes, with the random weights of its own initialization."""
        from pocket_tts import TTSModel

        config = _config_of(self.model)
        config["weights_path"] = config["weights_path_without_voice_cloning"] = None
        config["flow_lm"]["lookup_table"]["tokenizer_path"] = str(tokenizer)
        bare = self.folder / "bare.yaml"
        bare.write_text(yaml.safe_dump(config))
        torch.manual_seed(7)
        network = TTSModel.load_model(config=bare)
        with torch.no_grad():
            network.flow_lm.out_eos.weight.zero_()
            network.flow_lm.out_eos.bias.fill_(_ALWAYS if self.is_short else _NEVER)
            network.flow_lm.speaker_proj_weight.normal_(0, 0.05)
        return network

    def _write_tokenizer(self, path: Path) -> None:
        table = _config_of(self.model)["flow_lm"]["lookup_table"]
        if table["tokenizer"] == "tokenizers":
            _json_tokenizer(table["n_bins"]).save(str(path))
        else:
            with path.open("wb") as file:
                sentencepiece.SentencePieceTrainer.train(
                    sentence_iterator=_sentences(),
                    model_writer=file,
                    vocab_size=table["n_bins"],
                    model_type="bpe",
                    minloglevel=2,
                )

    def _path_of(self, file: HubFile) -> Path:
        repository = "models--" + file.repo.replace("/", "--")
        assert file.revision is not None
        path = self.folder / "hub" / repository / "snapshots" / file.revision / file.path
        path.parent.mkdir(parents=True, exist_ok=True)
        return path


def _config_of(model: str) -> dict[str, Any]:
    return yaml.safe_load(config_path(model).read_text("utf-8"))


def _json_tokenizer(entries: int) -> tokenizers.Tokenizer:
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(unk_token="<unk>"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace()
    tokenizer.decoder = tokenizers.decoders.Metaspace()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=entries, special_tokens=["<unk>"], show_progress=False
    )
    tokenizer.train_from_iterator(_sentences(), trainer)
    return tokenizer


def _sentences() -> Iterator[str]:
    for paper in sorted((_ROOT / "docs").rglob("*.md")):
        yield from filter(None, paper.read_text("utf-8").splitlines())


def _noise(seed: int) -> torch.Tensor:
    """A recording of one second, [1, S]; no speech is needed to make a state."""
    generator = torch.Generator().manual_seed(seed)
    return 0.1 * torch.randn(1, SAMPLE_RATE_HZ, generator=generator)
