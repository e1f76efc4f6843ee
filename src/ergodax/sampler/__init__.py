"""Named samplers, one a file: each is a composition of a recipe, a gradient, an integrator."""

from ergodax.sampler.hmc import hmc
from ergodax.sampler.langevin import langevin
from ergodax.sampler.sghmc import sghmc
from ergodax.sampler.sgld import sgld
from ergodax.sampler.sgnht import sgnht

__all__ = ["hmc", "langevin", "sghmc", "sgld", "sgnht"]
