"""The server that a benchmark starts."""

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from voiceagent_tts.plugins.demo.demo_server import ServerProcess, server_process


def own_server(
    *arguments: str,
    log: Path,
    environment: Mapping[str, str] | None = None,
    module: str = "voiceagent_tts",
) -> AbstractAsyncContextManager[ServerProcess]:
    """Serve on a free port of this machine until the block ends, without the cache of phrases.

    Texts come again and again in a benchmark, and the cache would be measured in place of an
    engine.

    Args:
        arguments: further arguments of `voiceagent-tts serve`.
        log: file for the server's standard error.
        environment: further environment variables.
        module: the program, which takes the arguments of `voiceagent-tts`.

    Raises:
        EngineError: the server did not start.
    """
    argv = ("-m", module, "serve", "--port", "0", *arguments)
    return server_process(argv, log, {"VOICEAGENT_TTS_CACHE_MB": "0", **(environment or {})})
