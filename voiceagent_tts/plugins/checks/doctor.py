"""`voiceagent-tts doctor`: report what works on this machine, and how to fix the rest."""

import errno
import importlib.metadata
import importlib.util
import json
import os
import platform
import shutil
import socket
import ssl
import subprocess
import time
import urllib.request
from collections.abc import AsyncIterator
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Literal

from rich.console import Console
from rich.markup import escape

from voiceagent_tts.cli.best_voice import choose_engine
from voiceagent_tts.cli.missing_packages import packages_of
from voiceagent_tts.cli.playback import output_device
from voiceagent_tts.cli.settings import read_server_settings
from voiceagent_tts.config import Settings
from voiceagent_tts.core import SAMPLE_RATE_HZ, AudioChunk
from voiceagent_tts.errors import InvalidRequestError, VoiceAgentError
from voiceagent_tts.extras import install_hint

_EXTRAS = (
    "server",
    "espeak",
    "japanese",
    "hibari",
    "kokoro",
    "pocket",
    "qwen3",
    "pipecat",
    "livekit",
    "demo",
    "agents",
)
_PROBE_TIMEOUT_S = 2.0
_OWN_WORD_TIMES = ("espeak", "hibari", "kokoro")
"""Engines that report when their words sound."""
_STYLES = {"ok": "green", "note": "yellow", "bad": "red"}


@dataclass(frozen=True, slots=True)
class Finding:
    """Result of one check: `bad` prevents the server from speaking, `note` only limits it."""

    what: str
    verdict: Literal["ok", "note", "bad"]
    detail: str
    remedy: str = ""


async def examine() -> bool:
    """Run all checks, print a line for each, and return whether a server can speak here."""
    console, can_speak = Console(soft_wrap=True, highlight=False), True
    async for finding in _findings():
        print_finding(console, finding)
        can_speak = can_speak and finding.verdict != "bad"
    console.print("This machine can speak." if can_speak else "This machine cannot speak yet.")
    return can_speak


def print_finding(console: Console, finding: Finding) -> None:
    """Print a finding, and its remedy on a second line if it has one."""
    style = _STYLES[finding.verdict]
    console.print(f"[{style}]{finding.verdict:<6}[/]{escape(f'{finding.what:<19}')}  ", end="")
    console.print(escape(finding.detail))
    if finding.remedy:
        console.print(f"{'':<27}[dim]->[/] {escape(finding.remedy)}")


async def _findings() -> AsyncIterator[Finding]:
    yield _python()
    settings, finding = _read_settings()
    yield finding
    needed = {"server", *({settings.engine} & {"hibari", "kokoro", "pocket", "qwen3"})}
    for extra in _EXTRAS:
        yield _extra(extra, is_needed=extra in needed)
    yield _address(settings)
    embedded = await _voice()
    yield embedded
    yield _speaker()
    yield _gpu()
    if settings.engine == "qwen3":
        yield _cuda()
    yield _models()
    yield _best_voice(settings, embedded)
    yield _word_times(settings)


def _python() -> Finding:
    return Finding(
        "Python", "ok", f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    )


def _read_settings() -> tuple[Settings, Finding]:
    """The settings with which `serve` would start, or the defaults if those are wrong."""
    try:
        settings = read_server_settings({})
    except InvalidRequestError as error:
        defaults = Settings.model_construct()
        return defaults, Finding("settings", "bad", error.message)
    models = "".join(f" {model}" for model in settings.models)
    engine = settings.engine or "not set"
    detail = f"engine {engine}{models}, {settings.host}:{settings.port}"
    return settings, Finding("settings", "ok", detail)


def own_address(settings: Settings) -> str:
    """The HTTP address of the server that the settings describe, as seen from this machine."""
    host = "127.0.0.1" if settings.host in ("0.0.0.0", "::") else settings.host
    scheme = "https" if settings.has_tls else "http"
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{settings.port}"


def _extra(extra: str, *, is_needed: bool) -> Finding:
    versions, missing = list[str](), list[str]()
    for package in dict.fromkeys(packages_of(extra)):  # extras share packages
        try:
            versions.append(f"{package} {importlib.metadata.version(package)}")
        except importlib.metadata.PackageNotFoundError:
            missing.append(package)
    name = f"extra {extra}"
    if not missing:
        return Finding(name, "ok", ", ".join(versions))
    verdict = "bad" if is_needed else "note"
    return Finding(name, verdict, f"missing: {', '.join(missing)}", install_hint(extra))


def _address(settings: Settings) -> Finding:
    """Whether a server could bind the address of the settings."""
    port = settings.port
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((settings.host, port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE and _is_our_server(settings):
                return Finding(f"port {port}", "ok", "a voiceagent-tts server is running")
            remedy = "stop the program that uses it, or serve with --port 0"
            return Finding(f"port {port}", "note", error.strerror or str(error), remedy)
    return Finding(f"port {port}", "ok", "free")


def _is_our_server(settings: Settings) -> bool:
    """Whether a server of this project listens at the address of the settings."""
    tls = ssl.create_default_context()
    tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE  # nothing secret is sent
    try:
        with urllib.request.urlopen(
            f"{own_address(settings)}/health", timeout=_PROBE_TIMEOUT_S, context=tls
        ) as response:
            state = json.load(response)
    except (OSError, HTTPException, ValueError):
        return False
    return isinstance(state, dict) and {"version", "workers"} <= state.keys()


async def _voice() -> Finding:
    """Start the embedded voice in a worker process and synthesise a sentence."""
    try:
        from voiceagent_tts.cli.logs import configure_logs
        from voiceagent_tts.seam.engine_kind import WorkerSpec
        from voiceagent_tts.synthesizer.options import ContextOptions
        from voiceagent_tts.synthesizer.synthesizer import Synthesizer
        from voiceagent_tts.synthesizer.workers import Supervisor

        configure_logs(is_json=False, is_quiet=True)
        synthesizer = Synthesizer({"espeak": Supervisor(WorkerSpec("espeak"))})
        await synthesizer.start()
        try:
            context = await synthesizer.open(ContextOptions(language="en", max_lead_s=0))
            started = time.monotonic()
            context.push_text("This machine can speak.")
            context.finish()
            samples = sum([e.samples async for e in context if isinstance(e, AudioChunk)])
            took_ms = (time.monotonic() - started) * 1000
        finally:
            await synthesizer.close()
    except ImportError as error:
        detail = str(error) if error.name is None else f"missing: {error.name}"
        return Finding("embedded voice", "bad", detail, install_hint("server", "espeak"))
    except VoiceAgentError as error:
        return Finding("embedded voice", "bad", error.message)
    detail = f"{samples / SAMPLE_RATE_HZ:.1f} s of speech in {took_ms:.0f} ms"
    return Finding("embedded voice", "ok", detail)


def _speaker() -> Finding:
    try:
        name = output_device()
    except InvalidRequestError as error:
        reason, _, remedy = error.message.partition("; ")
        return Finding("loudspeaker", "note", reason, remedy)
    return Finding("loudspeaker", "ok", name)


def _gpu() -> Finding:
    program = shutil.which("nvidia-smi")
    if program is None:
        remedy = "only Qwen3-TTS needs a GPU; the embedded voice does not"
        return Finding("GPU", "note", "no NVIDIA driver", remedy)
    query = [program, "--query-gpu=name,memory.total", "--format=csv,noheader"]
    try:
        result = subprocess.run(query, capture_output=True, text=True, timeout=20, check=False)
    except subprocess.TimeoutExpired:
        return Finding("GPU", "note", "nvidia-smi does not respond", "check dmesg")
    if result.returncode:
        return Finding("GPU", "note", result.stdout.strip() or "nvidia-smi fails", "check dmesg")
    return Finding("GPU", "ok", result.stdout.strip().replace("\n", "; "))


def _cuda() -> Finding:
    """Report whether PyTorch can use the GPU, and if not, why."""
    if importlib.util.find_spec("torch") is None:
        return Finding("CUDA", "note", "torch is not installed", install_hint("qwen3"))
    import torch

    if torch.version.cuda is None:
        remedy = "install the build for your CUDA version: https://pytorch.org/get-started/locally"
        return Finding("CUDA", "note", f"torch {torch.__version__} is a CPU-only build", remedy)
    build = f"torch {torch.__version__} for CUDA {torch.version.cuda}"
    if torch.cuda.is_available():
        return Finding("CUDA", "ok", build)
    remedy = "check nvidia-smi: the driver may be too old; in a container, run with --gpus all"
    return Finding("CUDA", "note", f"{build} finds no GPU", remedy)


def _models() -> Finding:
    home = Path(os.environ.get("HF_HOME") or Path.home() / ".cache" / "huggingface")
    found = sorted(path.name for path in home.glob("hub/models--Qwen--Qwen3-TTS*"))
    if not found:
        remedy = "voiceagent-tts models download REPO_ID; the embedded voice needs no files"
        return Finding("model files", "note", f"no Qwen3-TTS model under {home}", remedy)
    names = ", ".join(name.removeprefix("models--").replace("--", "/") for name in found)
    return Finding("model files", "ok", names)


def _best_voice(settings: Settings, embedded: Finding) -> Finding:
    """Report with which engine `serve` would start, and how to get a better voice."""
    choice = choose_engine(settings)
    if choice.settings.engine == "espeak" and embedded.verdict == "bad":
        return Finding(
            "voice", "note", "none yet: the embedded voice does not work here", embedded.remedy
        )
    if choice.reason is None:
        return Finding("voice", "ok", f"{choice.settings.engine}, set in the settings")
    _, _, said = choice.reason.partition(": ")
    voice, _, remedy = said.partition("; ")
    return Finding("voice", "ok", voice, remedy)


def _word_times(settings: Settings) -> Finding:
    """Report whether the engine has word times of its own, and which aligner finds others."""
    from voiceagent_tts.cli.models import aligner_folder

    folder = aligner_folder(None)
    found = ["online aligner"] if importlib.util.find_spec("espeakng_loader") is not None else []
    if folder is not None and settings.aligner in ("auto", "forced"):
        update = {"aligner_model": settings.aligner_model or folder}
        found.append(f"forced aligner {_aligner_place(settings.model_copy(update=update))}")
    detail = " and ".join(found) or "estimates"
    engine = choose_engine(settings).settings.engine
    if engine in _OWN_WORD_TIMES:
        detail = f"{engine}'s own; for engines without: {detail}"
    if found:
        return Finding("word times", "ok", detail)
    return Finding("word times", "note", detail, install_hint("espeak"))


def _aligner_place(settings: Settings) -> str:
    """Return where the forced aligner would run and why."""
    if importlib.util.find_spec("torch") is None:
        return f"(missing: {install_hint('qwen3')})"
    from voiceagent_tts.plugins.forced.placement import place_aligner
    from voiceagent_tts.word_times.processes import forced_options

    aligner = forced_options(choose_engine(settings).settings)
    return place_aligner(aligner["device"], aligner["engine_devices"]).reason
