"""Where a model comes from: its configuration, its network and its codec."""

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch

from voiceagent_tts.model.checkpoint import Checkpoint, load_checkpoint
from voiceagent_tts.model.codec import Codec, load_codec
from voiceagent_tts.model.config import ModelConfig, read_model_config
from voiceagent_tts.model.layers import Kernels


class ModelSource(Protocol):
    """Source of a model: files in a folder, or weights that were made in memory."""

    @property
    def name(self) -> str:
        """Name for logs and reports."""
        ...

    @property
    def config(self) -> ModelConfig:
        """Configuration of talker and code predictor."""
        ...

    def checkpoint(
        self,
        dtype: torch.dtype,
        device: torch.device,
        *,
        kernels: Kernels,
        is_packed: bool,
    ) -> Checkpoint:
        """Load talker and code predictor; arguments as of `load_checkpoint`."""
        ...

    def codec(
        self,
        device: torch.device,
        *,
        is_packed: bool = True,
    ) -> Codec:
        """Load the codec's decoder; arguments as of `load_codec`."""
        ...


@dataclass(frozen=True, slots=True)
class FolderSource:
    """A model in a folder, as published.

    Attributes:
        folder: folder of the model, with its codec.
    """

    folder: Path

    @property
    def name(self) -> str:
        """Name of the folder."""
        return self.folder.name

    @property
    def config(self) -> ModelConfig:
        """Contents of config.json."""
        return read_model_config(self.folder)

    def checkpoint(
        self,
        dtype: torch.dtype,
        device: torch.device,
        *,
        kernels: Kernels,
        is_packed: bool,
    ) -> Checkpoint:
        """Read the weights from safetensors files."""
        return load_checkpoint(self.folder, dtype, device, kernels=kernels, is_packed=is_packed)

    def codec(
        self,
        device: torch.device,
        *,
        is_packed: bool = True,
    ) -> Codec:
        """Read the codec that the folder contains."""
        return load_codec(self.folder, device=device, is_packed=is_packed)
