"""The words for numbers, dates, prices, codes and signs, by topic.

Each module has the rules of one topic; `text/normalizer.py` says in which order they are applied.
"""
