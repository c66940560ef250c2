"""All tuning of the online aligner, in one table.

Costs add up along a path, in nats: the phone model's cost of a phone in a frame is the negative
logarithm of its probability, less half of its prior's. A frame is 10 ms of audio.
"""

import numpy as np

from voiceagent_tts.core import ms_to_samples

# Cost of one audio frame, from p, the cost of the phone that the reference has there; s, the cost
# of silence; and b, the cost of the phone that fits best.
WORD_PER_PHONE = np.float32(1.5)  # in a word: 1.5 p
MIN_PAUSE, PAUSE_PER_SILENCE = np.float32(0.5), np.float32(1.5)  # in a pause: 0.5 + 1.5 s
# In speech that the text lacks: 3.5 + 1.5 b. More than in a word that is pronounced somewhat
# otherwise, and less than in another word; b keeps it comparable where the network is unsure.
MIN_UNWRITTEN, UNWRITTEN_PER_BEST = np.float32(3.5), np.float32(1.5)

# Cost of a transition.
STAY_COST = np.float32(2.0)  # an audio frame repeats a reference frame
SKIP_COST = np.float32(1.0)  # a reference frame is left out; added to the frame's cost
# Into a pause, which keeps the closure of a plosive from becoming one; and into unwritten speech,
# which keeps a word that is pronounced otherwise from becoming that.
GAP_ENTRY_COSTS = np.array((12.0, 40.0), np.float32)
INITIAL_GAP_COSTS = np.array((0.0, 5.0), np.float32)  # the audio begins with one of these
OMISSION_COST = np.float32(12.0)  # all readings of a word are left out
CLOSING_COST = 60.0  # a path that ends with the last word may cost this much more than the cheapest
REACH_COST = 200.0  # a path for which the reference grows may cost this much more
MAX_MARGIN = 60.0  # margins between paths are clipped here

# The search, in frames.
FRAMES_BEHIND_HEAD, FRAMES_AHEAD_OF_HEAD = 150, 250  # of the reference that a path may be at
FAR_FRAMES = 20  # two paths that end this far apart place words differently
MAX_TRACED_FRAMES = 3_000  # of audio that can be traced back; the oldest are dropped first
REFERENCE_LEAD_FRAMES = 30  # reference ahead of the audio while text may still follow
MAX_QUEUED_FRAMES = 40  # of waiting audio, above which unfinished clauses are synthesized
# Of waiting audio, above which the oldest is searched if the reference reaches that far, and else
# dropped: it has no words. Text precedes its audio, except for a word whose end is not written yet.
MAX_WAITING_FRAMES = 100
PAUSE_SAMPLES = ms_to_samples(70)  # between two speech frames: longer than a plosive's closure
ONSET_FRAMES = 3  # a word with at most this many frames before a pause begins after the pause

# When a time is final. Before, the word has a tentative time, which is sent at its deadline.
FINAL_AFTER_FRAMES = 100  # speech after the word: a path that ran ahead has met its mistake by then
FINAL_AFTER_SAMPLES = ms_to_samples(5_000)  # audio after it: a long pause is not kept in memory
KEPT_SAMPLES = ms_to_samples(1_000)  # audio before the first tentative word that can be a doubt

# Tentative times.
CERTAIN_SAMPLES = ms_to_samples(100)  # audio since a start that makes it more than a projection
FIRST_CERTAIN_SAMPLES = ms_to_samples(400)  # the same of a first word, which may be a breath
BREATH_CONFIDENCE = 0.5  # highest confidence of a first word's start before that
TENTATIVE_SAMPLES = ms_to_samples(1_500)  # after the last audio, up to which words have times
TENTATIVE_WORDS = 5  # the least that have; at RTF 0.9, 3 leave out words after a long number
REST_SAMPLES = ms_to_samples(40)  # typical silence left after the audio so far has paused

MAX_VOICES = 1_000  # whose sound and pace are remembered
