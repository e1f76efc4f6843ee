"""Models with groups: a latent for each group of rows, integrated out or sampled."""

from ergodax.groups.estimator import GroupMinibatch
from ergodax.groups.joint import JointTarget
from ergodax.groups.posterior import GroupedPosterior
from ergodax.groups.quadrature import LogMarginal

__all__ = ["GroupMinibatch", "GroupedPosterior", "JointTarget", "LogMarginal"]
