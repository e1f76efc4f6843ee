"""Independent replicas: unbiased estimates, and workers that may start and die at any time."""

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
    "read",
    "unbiased",
    "work",
]
