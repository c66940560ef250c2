"""Which engine speaks, with which models, and how it uses the machine."""

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, model_validator
from pydantic_settings import NoDecode

from voiceagent_tts.settings.group import Count, Device, SettingsGroup, Texts, split_list


class EngineSettings(SettingsGroup):
    """The engine, its models, and their use of the machine.

    Attributes:
        engine: Speech engine: `hibari` (natural English on any CPU, extra `hibari`), `kokoro` (41
            natural voices of seven languages on a fast CPU, extra `kokoro`), `espeak` (many
            languages on any CPU, sounds like a robot), `pocket` (Pocket TTS, natural voices on a
            CPU, extra `pocket`), `qwen3` (natural voices, needs at least one of `models`) or
            `openai` (the speech of the server at `upstream`).
            Default: the best one that this machine can run with the models that are on it.
        beside: Engine beside hibari: `kokoro` speaks the languages that hibari does not, and its
            voices by name. espeak-ng, if it is installed, speaks the rest. Default: `kokoro` if its
            files are on this machine and no engine is set.
        models: Models to load, separated by commas. Qwen3-TTS: folders or Hugging Face ids; each
            model has worker processes of its own, and the voice of a request selects the model.
            Pocket TTS: names such as `english` and `french_24l`, or configuration files (`.yaml`),
            one for each language; the language of the text selects the model. Default: `english`.
            hibari: names of voices, the default first, such as `heart` and `emma`. Default: those
            that are on this machine.
            Kokoro: a folder with its files. Default: the published files, which are downloaded.
        device: Devices of the models, separated by commas: `cpu`, `cuda` or `cuda:N`. Every model
            gets workers on each of them. Default: the GPU, if the machine has one.
        workers: Worker processes per model and device, or of Pocket TTS. New contexts go to the
            least loaded one. Raise it if one worker does not use the whole GPU.
        precision: Number format of the models' weights: `float32`, `bfloat16` or `float16`; on a
            CPU also `int8`, `int4`, and `auto` (`int8` where the CPU has kernels for it). With
            fewer bits speech is faster, takes less memory and differs from that of the original
            weights. Default: bfloat16 on a GPU, float32 on a CPU. Pocket TTS has float32, its
            default, and int8.
        rows: Maximum number of contexts that one worker of Qwen3-TTS, Pocket TTS, hibari or Kokoro
            speaks at the same time. Default: Qwen3-TTS 8 on a CPU, and on a GPU up to 64, as many
            as have memory for one minute of speech each; Pocket TTS up to 16, hibari and Kokoro up
            to 512, as many as the CPU speaks in real time, measured at start.
        capacity: Positions in the key-value cache of one row. The prompt, including a clone's
            reference recording, and 12.5 frames per second of speech must fit. Raise it for long
            references or long segments.
        gpu_memory_gb: Maximum GPU memory of one worker, in units of 10^9 bytes, with the forced
            aligner if that shares the GPU. Default: most of the memory that is free at start, in
            equal parts where several workers share the GPU. Set it if other programs share it.
        kernels: Kernels between the matrix products of talker and code predictor, and those of the
            audio codec: `fused` (Triton, NVIDIA GPUs), `plain` (PyTorch), or `auto`, which uses
            fused kernels if a check at start succeeds.
        deterministic: Make a seed give bit-identical speech whatever else the server is speaking.
            Slower; turn it on for tests.
        max_load: Maximum share of real time that one engine step may take; above it, new contexts
            are refused as overloaded. Default: 0.9 on a GPU, no limit on a CPU.
        threads: CPU threads per worker of Qwen3-TTS, Pocket TTS, hibari or Kokoro. Default: all
            cores.
    """

    engine: Literal["hibari", "kokoro", "espeak", "pocket", "qwen3", "openai"] | None = None
    beside: Literal["kokoro"] | None = None
    models: Texts = ()
    device: Annotated[tuple[Device, ...], NoDecode, BeforeValidator(split_list)] = ()
    workers: Count = 1
    precision: Literal["float32", "bfloat16", "float16", "int8", "int4", "auto"] | None = None
    rows: Count | None = None
    capacity: int = Field(default=4096, ge=64, le=10_000_000)
    gpu_memory_gb: float | None = Field(default=None, gt=0, le=100_000)
    kernels: Literal["auto", "plain", "fused"] = "auto"
    deterministic: bool = False
    max_load: float | None = Field(default=None, gt=0, le=1000)
    threads: Count | None = None

    @property
    def pocket_models(self) -> tuple[str, ...]:
        """Models of Pocket TTS."""
        return self.models or ("english",)

    @property
    def kokoro_folder(self) -> str | None:
        """Folder with the files of Kokoro; None for the published ones."""
        return self.models[0] if self.models and self.engine == "kokoro" else None

    @model_validator(mode="after")
    def _check_engine(self) -> "EngineSettings":
        if self.engine == "qwen3" and not self.models:
            raise ValueError(
                "engine qwen3: expected at least one model, got none; set VOICEAGENT_TTS_MODELS "
                "or --model, such as Qwen/Qwen3-TTS-12Hz-0.6B-CustomVoice"
            )
        if self.beside is not None and self.engine not in (None, "hibari"):
            raise ValueError(f"beside: expected no engine beside {self.engine}; try engine hibari")
        if self.engine == "kokoro" and len(self.models) > 1:
            raise ValueError("engine kokoro: expected one folder, got several models; name one")
        if self.engine == "pocket" and self.precision not in (None, "float32", "int8"):
            raise ValueError(
                f"engine pocket: expected precision float32 or int8, got {self.precision}"
            )
        return self
