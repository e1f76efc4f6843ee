"""Numbers that were measured on a machine of two cores; the environment can give others.

| variable | what it is | |
|---|---|---|
| ERGODAX_OPTIMISATION | XLA's level of optimisation for programs that take steps, 0 to 3 | 2 |
| ERGODAX_FUSED_NUMBERS | numbers in a step that is fused on CPUs, at most; 0 for none | 32768 |
| ERGODAX_WIDE_PRODUCT | rows and columns of a product from which chains run in turn on CPUs | 64 |

They are read when `ergodax` is imported. Draws depend on them by rounding alone.
"""

import os


def measured(name: str, default: int, most: int = 2**31 - 1) -> int:
    """A number from the environment.

    Args:
        name: of the variable.
        default: where it is not set.
        most: what it may be at most.

    Raises:
        ValueError: it is no such number.
    """
    text = os.environ.get(name, str(default))
    if not text.isdecimal() or int(text) > most:
        raise ValueError(f"{name} must be an integer in [0, {most}], not {text!r}. Try {default}.")
    return int(text)


OPTIMISATION = measured("ERGODAX_OPTIMISATION", 2, 3)
FUSED_NUMBERS = measured("ERGODAX_FUSED_NUMBERS", 32_768)
WIDE_PRODUCT = measured("ERGODAX_WIDE_PRODUCT", 64)
