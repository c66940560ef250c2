"""Protocols of other servers, translated to and from `tts.v1`."""
