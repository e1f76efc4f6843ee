"""Independent replicas: unbiased estimates, and workers that may start and die at any time."""

from ergodax.replicas.engines import dask, processes, ray
from ergodax.replicas.multilevel import Outcome, Plan, Unbiased, unbiased
from ergodax.replicas.report import Report, Worker, read
from ergodax.replicas.worker import Chain, chain, work

__all__ = [
    "Chain",
    "Outcome",
    "Plan",
    "Report",
    "Unbiased",
    "Worker",
    "chain",
    "dask",
    "processes",
    "ray",
    "read",
    "unbiased",
    "work",
]
