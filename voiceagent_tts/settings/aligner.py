"""Where word times come from."""

from typing import Literal

from voiceagent_tts.settings.group import Count, Device, SettingsGroup


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
    aligners: Count | None = None
