"""Adapters to voice agent frameworks, the hosts: Pipecat and LiveKit Agents."""
