"""Words of engines that report none: aligner processes find their times, or they are estimated."""
