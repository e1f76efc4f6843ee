"""Host memory that rows are read into."""

import jax
import numpy as np
from jaxtyping import PyTree

ALIGNMENT = 64  # bytes: JAX on a CPU uses an array that begins at a multiple of it where it lies


def room(shapes: PyTree) -> PyTree:
    """New arrays that need not be copied to become JAX's, where the device is a CPU.

    Args:
        shapes: a tree of `jax.ShapeDtypeStruct`.
    """

    def one(like: jax.ShapeDtypeStruct) -> np.ndarray:
        size = int(np.prod(like.shape, dtype=np.int64)) * np.dtype(like.dtype).itemsize
        memory = np.empty(size + ALIGNMENT, np.uint8)
        begin = -memory.ctypes.data % ALIGNMENT
        return memory[begin : begin + size].view(like.dtype).reshape(like.shape)

    return jax.tree.map(one, shapes)
