"""Does the network reproduce the official package's output?"""
