"""The plugin's logger; it names ids and codes, never what is said."""

import logging

logger = logging.getLogger("livekit.plugins.voiceagent")
