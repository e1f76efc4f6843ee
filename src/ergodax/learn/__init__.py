"""Models that are learnt from data in one call. Each is imported where it is used.

from ergodax.learn import topics
"""
