"""Words of the text to times in the audio."""
