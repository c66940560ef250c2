"""Adds batches and jobs to a server."""

from voiceagent_tts.plugins.jobs import batch, routes
from voiceagent_tts.server.state import ServerHooks


def add_to_server(hooks: ServerHooks) -> None:
    """Add the routes, and speak jobs while the server runs."""
    jobs = routes.Jobs(hooks.state.settings, hooks.state)
    hooks.app.state.jobs = jobs
    hooks.app.include_router(batch.router)
    hooks.app.include_router(routes.router)
    hooks.open_paths.append(f"{routes.FILES_PATH}/*")  # links that are signed
    hooks.state.on_start.append(jobs.start)
    hooks.state.before_drain.append(jobs.stop)
    hooks.state.on_close.append(jobs.close)
