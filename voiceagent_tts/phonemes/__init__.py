"""What engines share whose networks read phonemes and predict the duration of each: hibari, Kokoro.

A text is read as phonemes, each with the place in the client's text that it says; their durations
are the times of its words; and their audio is made part by part.
"""
