"""Running kernels: chains, chunks, progress, draws. It knows nothing but the kernel contract."""

from ergodax.driver.sample import sample
from ergodax.driver.samples import Samples
from ergodax.persist.checkpoint import Checkpoint

__all__ = ["Checkpoint", "Samples", "sample"]
