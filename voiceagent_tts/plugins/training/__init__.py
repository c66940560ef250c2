"""Fine-tuning of Qwen3-TTS on one speaker: recordings in, a CustomVoice checkpoint out."""
