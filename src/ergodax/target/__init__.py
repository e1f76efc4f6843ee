"""What to sample: potentials, posteriors with data, and analytic targets with known moments."""

from ergodax.target.base import AbstractTarget, Target
from ergodax.target.constrained import unconstrained
from ergodax.target.mode import Mode, find_mode
from ergodax.target.posterior import Posterior

__all__ = ["AbstractTarget", "Mode", "Posterior", "Target", "find_mode", "unconstrained"]
