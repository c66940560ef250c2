"""Word times for engines that report none: the online and the forced aligner."""
