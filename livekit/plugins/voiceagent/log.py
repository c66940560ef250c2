"""The plugin's logger; its messages have ids and error codes, never spoken text."""

import logging

logger = logging.getLogger("livekit.plugins.voiceagent")
