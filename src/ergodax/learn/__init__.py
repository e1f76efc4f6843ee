"""Models that are learnt from data in one call: `from ergodax.learn import topics`.

They are no part of `import ergodax`, since they need more than sampling does.
"""

__all__ = ["topics"]  # imported where it is asked for
