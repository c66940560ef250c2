"""`voiceagent-tts serve`: settings, logs, and the server in the foreground."""

import asyncio
import sys
from typing import Any
from urllib.parse import urlsplit

import structlog
from rich.console import Console

from voiceagent_tts.cli.best_voice import choose_engine
from voiceagent_tts.cli.logs import configure_logs
from voiceagent_tts.cli.models import aligner_folder
from voiceagent_tts.cli.settings import read_server_settings, without_effect
from voiceagent_tts.cli.streams import unfailing
from voiceagent_tts.config import Settings
from voiceagent_tts.seam.engine_kind import kind_of
from voiceagent_tts.server.serve import RunningServer, serve


def run_server(given: dict[str, Any], *, may_download: bool = False) -> None:
    """Serve with settings from the command line, the environment and the file."""
    settings = read_server_settings(given)
    configure_logs(is_json=settings.log_json)
    choice = choose_engine(settings, may_download=may_download)
    console = Console(stderr=True, highlight=False)

    def tell(event: str, sentence: str) -> None:
        if settings.log_json:
            structlog.get_logger(__name__).info(event, message=sentence)
        else:
            console.print(sentence, markup=False, soft_wrap=True)

    if choice.reason is not None:
        tell("engine_chosen", choice.reason)
    for name, needs in without_effect(choice.settings):
        structlog.get_logger(__name__).warning("setting_without_effect", setting=name, needs=needs)
    settings = _with_models(choice.settings)
    with console.status(f"starting the {settings.engine} engine") as status:

        def say_ready(server: RunningServer) -> None:
            status.stop()
            # Standard output has exactly one line, for a parent process that waits for it.
            # It may go to the log, whose full disk does not stop a server.
            unfailing(sys.stdout.fileno()).write(f"ready {server.websocket_url}\n")
            tell("server_ready", _invitation(server, settings.host))

        asyncio.run(serve(settings, say_ready))


def _invitation(server: RunningServer, host: str) -> str:
    invitation = f"Clients connect to {server.websocket_url}"
    if server.state.has_page:
        invitation = f"Open {server.url} in a browser"
    if host not in ("0.0.0.0", "::"):
        return f"{invitation}."
    shown = urlsplit(server.url).hostname
    return f"{invitation}; on another machine, this one's name instead of {shown}."


def _with_models(settings: Settings) -> Settings:
    """Download missing models; replace the names of Qwen3-TTS's and of the aligner by folders."""
    settings = kind_of(settings.engine or "espeak").fetch(settings)
    if settings.overflow:
        kind_of("openai").fetch(settings)
    needs_words = settings.engine == "qwen3" or settings.aligner_model is not None
    if needs_words and settings.aligner in ("auto", "forced"):
        folder = aligner_folder(settings.aligner_model)
        return settings.model_copy(update={"aligner_model": folder})
    return settings
