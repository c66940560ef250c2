"""Which engine speaks, with which models and voices, and where the times of words come from."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, model_validator
from pydantic_settings import NoDecode

from voiceagent_tts.settings.group import (
    Device,
    InputFile,
    Needs,
    Processes,
    SettingsGroup,
    Texts,
    UserPath,
    split_list,
)

_WITH_MODELS = ("engine=hibari", "engine=kokoro", "engine=pocket", "engine=qwen3")


class EngineSettings(SettingsGroup):
    """The engine, its models, and their use of the machine.

    Attributes:
        engine: Speech engine: `hibari` (natural English on any CPU), `kokoro` (seven languages on a
            fast CPU), `espeak` (many languages, sounds like a robot), `pocket` (Pocket TTS),
            `qwen3` (needs `models`) or `openai` (the server at `upstream`). Default: the best one
            that this machine can run with the models that are on it.
        beside: Engine beside hibari: `kokoro` speaks its other languages, and its voices by name.
            Default: `kokoro` if its files are on this machine and no engine is set.
        models: Models to load, separated by commas. Qwen3-TTS: folders or Hugging Face ids; the
            voice of a request selects the model. Pocket TTS: names such as `english` and
            `french_24l`, or configuration files (`.yaml`), one for each language; default:
            `english`. hibari: names of voices, the default first; default: those that are on this
            machine. Kokoro: a folder with its files; default: the published files.
        device: Devices of the models, separated by commas: `cpu`, `cuda` or `cuda:N`. Every model
            gets workers on each of them. Default: the GPU, if the machine has one.
        workers: Worker processes per model and device, or of Pocket TTS. New contexts go to the
            least loaded one. Raise it if one worker does not use the whole GPU.
        precision: Number format of the models' weights: `float32`, `bfloat16` or `float16`; on a
            CPU also `int8`, and `auto` (`int8` where the CPU has kernels for it). Fewer bits are
            faster and less exact. Default: bfloat16 on a GPU, float32 on a CPU. Pocket TTS
            has float32 and int8.
        rows: Maximum number of contexts that one worker of Qwen3-TTS, Pocket TTS, hibari or Kokoro
            speaks at the same time. Default: Qwen3-TTS 8 on a CPU, and on a GPU up to 64, as many
            as have memory for one minute of speech each; Pocket TTS up to 16, hibari and Kokoro up
            to 512, as many as the CPU speaks in real time, measured at start.
        gpu_memory_gb: Maximum GPU memory of one worker, in units of 10^9 bytes, with the forced
            aligner if that shares the GPU. Default: most of the memory that is free at start, in
            equal parts where several workers share the GPU. Set it if other programs share it.
        kernels: Kernels of talker, code predictor and codec: `fused` (Triton, NVIDIA GPUs), `plain`
            (PyTorch), or `auto`, which uses fused kernels if a check at start succeeds.
        deterministic: Make a seed give bit-identical speech whatever else the server is speaking.
            Slower; turn it on for tests.
        threads: CPU threads per worker of Qwen3-TTS, Pocket TTS, hibari or Kokoro. Default: all
            cores.
    """

    engine: Literal["hibari", "kokoro", "espeak", "pocket", "qwen3", "openai"] | None = None
    beside: Annotated[Literal["kokoro"] | None, Needs("engine=hibari")] = None
    models: Annotated[Texts, Needs(*_WITH_MODELS)] = ()
    device: Annotated[
        tuple[Device, ...],
        NoDecode,
        BeforeValidator(split_list),
        Needs("engine=qwen3", "engine=kokoro", "beside=kokoro"),
    ] = ()
    workers: Annotated[Processes, Needs(*_WITH_MODELS)] = 1
    precision: Annotated[
        Literal["float32", "bfloat16", "float16", "int8", "auto"] | None,
        Needs("engine=qwen3", "engine=pocket"),
    ] = None
    rows: Annotated[int | None, Field(ge=1, le=4096), Needs(*_WITH_MODELS, "engine=openai")] = None
    gpu_memory_gb: Annotated[float | None, Field(gt=0, le=100_000), Needs("engine=qwen3")] = None
    kernels: Annotated[Literal["auto", "plain", "fused"], Needs("engine=qwen3")] = "auto"
    deterministic: Annotated[bool, Needs("engine=qwen3")] = False
    threads: Annotated[
        Processes | None, Needs(*_WITH_MODELS, "aligner=forced", "aligner_model")
    ] = None

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


class VoiceSettings(SettingsGroup):
    """Where voices are kept, and how words are pronounced.

    Attributes:
        voices_folder: Folder of cloned voices, and of the voices' lexicons; servers may share it.
            The clones of Pocket TTS are in its subfolder `pocket`.
        lexicon: TOML file of pronunciations for all contexts: `written = "said"`, one entry a line.
    """

    voices_folder: UserPath = Path("~/.local/share/voiceagent-tts/voices")
    lexicon: InputFile | None = None


class AlignerSettings(SettingsGroup):
    """The aligner, its model and its processes.

    Attributes:
        aligner: Source of word times: `native` (the engine's own), `online` or `forced` (an
            aligner, for engines without word times), `auto` (the best available) or `off`
            (estimates only).
        aligner_model: Qwen3-ForcedAligner model: folder or Hugging Face id. Default: a downloaded
            one, if there is one.
        aligner_device: Device of the forced aligner: `cpu` or `cuda:N`. Default: a GPU without an
            engine, else the CPU. On an engine's GPU it slows the engine down; set `gpu_memory_gb`
            there, too.
        aligners: Processes of the online aligner, each of which follows about 100 contexts.
            Default: one for every four processors, at most four.
    """

    aligner: Literal["auto", "native", "online", "forced", "off"] = "auto"
    aligner_model: str | None = None
    aligner_device: Device | None = None
    aligners: Processes | None = None
