"""Audit records: who changed keys, voices and the cache, as lines of the log with `audit: true`."""

from typing import Any

import structlog

_log = structlog.get_logger(__name__)


def audit(event: str, **fields: Any) -> None:
    """Log that something was changed, and by whom."""
    _log.info(event, audit=True, **fields)
