"""The online aligner: word times while the audio is generated, from an espeak-ng reference."""
