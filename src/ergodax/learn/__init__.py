"""Models that are learnt from data in one call: `from ergodax.learn import topics`.

Tables are read and prepared here, and the regressions of `ergodax infer` stand here. None of it is
part of `import ergodax`, since it needs more than sampling does.
"""

__all__ = ["regression", "tables", "topics"]  # imported where they are asked for
