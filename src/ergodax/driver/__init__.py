"""Running kernels: chains, chunks, progress, draws. It knows nothing but the kernel contract."""

from ergodax.driver.keeper import Checkpoint
from ergodax.driver.sample import sample
from ergodax.driver.samples import Samples

__all__ = ["Checkpoint", "Samples", "sample"]
