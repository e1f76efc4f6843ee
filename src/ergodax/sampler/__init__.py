"""Named samplers, one a file: each is a composition of a recipe, a gradient, an integrator."""

from ergodax.sampler import counterexamples
from ergodax.sampler.ccadl import ccadl
from ergodax.sampler.cyclical import cyclical
from ergodax.sampler.hmc import hmc
from ergodax.sampler.langevin import langevin
from ergodax.sampler.msgld import msgld
from ergodax.sampler.nogin import nogin
from ergodax.sampler.psgld import psgld
from ergodax.sampler.replica_exchange import replica_exchange
from ergodax.sampler.rmhmc import rmhmc
from ergodax.sampler.sgfs import sgfs
from ergodax.sampler.sghmc import sghmc
from ergodax.sampler.sgld import sgld
from ergodax.sampler.sgnht import sgnht
from ergodax.sampler.sgrhmc import sgrhmc
from ergodax.sampler.sgrld import sgrld
from ergodax.sampler.split_hmc import split_hmc

__all__ = [
    "ccadl",
    "counterexamples",
    "cyclical",
    "hmc",
    "langevin",
    "msgld",
    "nogin",
    "psgld",
    "replica_exchange",
    "rmhmc",
    "sgfs",
    "sghmc",
    "sgld",
    "sgnht",
    "sgrhmc",
    "sgrld",
    "split_hmc",
]
