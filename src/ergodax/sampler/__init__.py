"""Named samplers by family: each is a recipe, or an update of its own, with an integrator."""

from ergodax.sampler import counterexamples
from ergodax.sampler.constant_sgd import constant_sgd
from ergodax.sampler.cyclical import cyclical
from ergodax.sampler.hamiltonian import hmc, rmhmc, split_hmc
from ergodax.sampler.microcanonical import microcanonical
from ergodax.sampler.overdamped import msgld, sgld, sgrld
from ergodax.sampler.preconditioned import psgld, sgfs
from ergodax.sampler.replica_exchange import replica_exchange
from ergodax.sampler.shampoo import shampoo_sgld
from ergodax.sampler.simplex import scir
from ergodax.sampler.thermostat import ccadl, sgnht
from ergodax.sampler.time_rescaled import sa_sgld, samadams, time_rescaled
from ergodax.sampler.underdamped import langevin, nogin, sghmc, sgrhmc, sms_ubu
from ergodax.sampler.walks import barker, lattice_random_walk

__all__ = [
    "barker",
    "ccadl",
    "constant_sgd",
    "counterexamples",
    "cyclical",
    "hmc",
    "langevin",
    "lattice_random_walk",
    "microcanonical",
    "msgld",
    "nogin",
    "psgld",
    "replica_exchange",
    "rmhmc",
    "sa_sgld",
    "samadams",
    "scir",
    "sgfs",
    "sghmc",
    "sgld",
    "sgnht",
    "sgrhmc",
    "sgrld",
    "shampoo_sgld",
    "sms_ubu",
    "split_hmc",
    "time_rescaled",
]
