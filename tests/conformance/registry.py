"""The table of every kernel of the library: a new sampler is tested by a new row."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

import ergodax as ex
from conformance import subsets
from conformance.positions import DIMENSION, flat, full, minibatch
from ergodax.data import ShuffledEpochs
from ergodax.integrator.splitting import Thermostat

H = 0.05
WEIGHTS = np.linspace(0.5, 1.5, DIMENSION)  # double precision: the position's must win
MATRIX = np.eye(DIMENSION) + 0.1


def draw_momentum(key: Any, position: Any) -> dict:
    return {"momentum": ex.normal_like(key, position)}


def kinetic(z: dict) -> Any:
    return 0.5 * ex.tree.dot(z["momentum"], z["momentum"])


def root_metric(z: dict) -> ex.Diagonal:
    return ex.Diagonal(ex.tree.map_leaves(lambda x: 1.0 + 0.1 * jnp.tanh(x), z["position"]))


def riemannian() -> ex.Recipe:
    """A user's recipe with a state-dependent curl, so with a Gamma."""
    return ex.Recipe(
        diffusion=constant_friction,
        curl=metric_curl,
        energy=kinetic,
        auxiliary=draw_momentum,
    )


def constant_friction(z: dict) -> dict:
    return {"momentum": 1.5}


def metric_curl(z: dict) -> dict:
    return {("momentum", "position"): root_metric(z)}


def low_rank_diffusion(z: dict) -> dict:
    factor = ex.tree.map_leaves(lambda x: 0.1 * jnp.stack([jnp.sin(x), x]), z["position"])
    return {"position": ex.LowRank(factor, 1.0)}


def dense_diffusion(z: dict) -> dict:
    x = 0.1 * flat(z["position"])
    return {"position": ex.Dense(jnp.eye(x.size, dtype=x.dtype) + x[:, None] * x[None, :])}


def metric(position: Any) -> Any:
    return jax.tree.map(lambda x: 1.0 + 0.1 * jnp.tanh(x) if eqx.is_array(x) else x, position)


def dense_metric(position: Any) -> Any:
    x = 0.1 * flat(position)
    return jnp.eye(x.size, dtype=x.dtype) + x[:, None] * x[None, :]


def low_rank_metric(position: Any) -> ex.LowRank:
    frozen = ex.tree.freeze(position)
    factor = ex.tree.map_leaves(lambda x: 0.1 * jnp.stack([jnp.sin(x), x]), frozen)
    return ex.LowRank(factor, 1.0)


def of_potential(u: Any) -> Any:
    return 1.0 + 0.1 * jnp.tanh(u)


def noisy() -> ex.NoisyGradient:
    return ex.NoisyGradient(full().target, WEIGHTS)


def known() -> ex.KnownCovariance:
    return ex.KnownCovariance(minibatch(), 2.0)


class Centred(ex.GradientEstimator):
    """A control variate about one point, made anew for whatever tree the position is."""

    target: ex.Posterior
    order: int = eqx.field(static=True)

    def init(self, key: Any, position: Any) -> Any:
        return self._about(position).init(key, position)

    def estimate(self, key: Any, state: Any, position: Any) -> Any:
        return self._about(position).estimate(key, state, position)

    def _about(self, position: Any) -> ex.ControlVariate:
        centre, unravel = ex.tree.ravel(position)
        return ex.ControlVariate(
            self.target, 4, unravel(jnp.full_like(centre, 0.1)), order=self.order
        )


# A function of the step size each, so that the same kernel can be built with another one.
KERNELS: dict[str, Callable[[float], Any]] = {
    "sgld": lambda h: ex.sgld(full(), h),
    "sgld, polynomial steps": lambda h: ex.sgld(full(), ex.schedule.Polynomial(h)),
    "sgld, phases": lambda h: ex.sgld(
        full(), h, temperature=ex.schedule.Phases([(1, 4.0), (None, ex.schedule.Polynomial(1.0))])
    ),
    "sgld, cyclical steps": lambda h: ex.sgld(full(), ex.schedule.Cyclical(h, 4)),
    "sgld, minibatch": lambda h: ex.sgld(minibatch(), h),
    "sgld, with replacement": lambda h: ex.sgld(minibatch(replace=True), h),
    "sgld, shuffled epochs": lambda h: ex.sgld(minibatch(batching=ShuffledEpochs()), h),
    "sgld, control variate": lambda h: ex.sgld(Centred(minibatch().target, 1), h),
    "sghmc, control variate of order 2": lambda h: ex.sghmc(Centred(minibatch().target, 2), h),
    "sgld, svrg": lambda h: ex.sgld(ex.SVRG(minibatch().target, 4, 2, chunk=7), h),
    "sgld, saga": lambda h: ex.sgld(ex.SAGA(minibatch().target, 4), h),
    "sghmc, saga, scores kept": lambda h: ex.sghmc(
        ex.ScoreCovariance(ex.SAGA(minibatch().target, 4, replace=True), "diagonal", refresh=2),
        h,
        compensate=True,
        clip=True,
    ),
    "langevin, svrg": lambda h: ex.langevin(ex.SVRG(minibatch().target, 4, 2, replace=True), h),
    "nogin, svrg": lambda h: ex.nogin(
        ex.ScoreCovariance(ex.SVRG(minibatch().target, 4, 3), "dense", rows="all"), h
    ),
    "sghmc, stratified": lambda h: ex.sghmc(ex.Stratified(minibatch(), 2), h, 1.0),
    "sgld, preconditioned": lambda h: ex.sgld(full(), h, preconditioner=WEIGHTS),
    "sgld, dense preconditioner": lambda h: ex.sgld(full(), h, preconditioner=MATRIX),
    "sgld, compensated": lambda h: ex.sgld(noisy(), h, compensate=True),
    "sgld, low-rank scores": lambda h: ex.sgld(
        ex.ScoreCovariance(minibatch()), h, compensate=True, clip=True
    ),
    "sghmc, averaged scores": lambda h: ex.sghmc(
        ex.ScoreCovariance(minibatch(), "diagonal", average=0.9, refresh=2),
        h,
        3.0,
        compensate=True,
        clip=True,
    ),
    "sghmc, all scores": lambda h: ex.sghmc(
        ex.ScoreCovariance(minibatch(replace=True), "dense", rows="all", average="all", chunk=7),
        h,
        compensate=True,
        clip=True,
    ),
    "langevin, scores kept": lambda h: ex.langevin(
        ex.ScoreCovariance(minibatch(batching=ShuffledEpochs()), "scalar", refresh=3), h
    ),
    "sghmc": lambda h: ex.sghmc(minibatch(), h),
    "sghmc, friction schedule": lambda h: ex.sghmc(
        full(), h, ex.schedule.Phases([(1, 2.0), (None, 1.0)]), mass=MATRIX
    ),
    "sghmc, euler": lambda h: ex.sghmc(full(), h, 2.0, mass=WEIGHTS, scheme="euler"),
    "sghmc, compensated": lambda h: ex.sghmc(known(), h, 3.0, compensate=True),
    "sghmc, compensated and clipped": lambda h: ex.sghmc(
        noisy(), h, mass=MATRIX, temperature=0.5, compensate=True, clip=True
    ),
    # JAX's checker of keys sees this scheme draw; it does not see `Permutation` read its key.
    "langevin, BAOAB": lambda h: ex.langevin(minibatch(replace=True), h),
    "langevin, ABOBA": lambda h: ex.langevin(full(), h, scheme="ABOBA"),
    "langevin, OBABO": lambda h: ex.langevin(full(), h, scheme="OBABO"),
    "langevin, BAOA": lambda h: ex.langevin(full(), h, scheme="BAOA"),
    "langevin, BU": lambda h: ex.langevin(minibatch(replace=True), h, mass=MATRIX, scheme="BU"),
    "sms_ubu": lambda h: ex.sms_ubu(minibatch(), h, 2.0, mass=WEIGHTS, temperature=0.5),
    "langevin, dense mass": lambda h: ex.langevin(full(), h, mass=MATRIX, temperature=0.5),
    "sgnht": lambda h: ex.sgnht(minibatch(), h),
    "sgnht, per coordinate": lambda h: ex.sgnht(noisy(), h, mass=WEIGHTS, per_coordinate=True),
    "splitting": lambda h: ex.splitting("OABAO", full(), h, mass=2.0),
    "splitting, thermostat": lambda h: ex.splitting(
        "ABODOBA", full(), h, thermostat=Thermostat(2.0, True)
    ),
    "sghmc, resampled": lambda h: ex.sghmc(minibatch(), h, resample_every=1),
    "psgld": lambda h: ex.psgld(minibatch(), h),
    "psgld, frozen": lambda h: ex.psgld(minibatch(replace=True), h, adaptation_steps=1),
    "psgld, no correction": lambda h: ex.psgld(full(), h, correction=False, temperature=0.5),
    "sgfs": lambda h: ex.sgfs(minibatch(), h),
    "sgfs, diagonal": lambda h: ex.sgfs(
        minibatch(replace=True), h, structure="diagonal", preconditioner=WEIGHTS
    ),
    "sgfs, dense": lambda h: ex.sgfs(minibatch(), h, preconditioner=MATRIX, temperature=0.5),
    "sgrld": lambda h: ex.sgrld(minibatch(), h, metric),
    "sgrld, dense": lambda h: ex.sgrld(full(), h, dense_metric, temperature=0.5),
    "sgrld, low rank": lambda h: ex.sgrld(full(), h, low_rank_metric),
    "sgrhmc": lambda h: ex.sgrhmc(minibatch(), h, metric, resample_every=2),
    "sgrhmc, dense": lambda h: ex.sgrhmc(full(), h, dense_metric, 2.0, scheme="euler"),
    "sgrhmc, low rank": lambda h: ex.sgrhmc(full(), h, low_rank_metric),
    "sgrhmc, potential": lambda h: ex.sgrhmc(minibatch(), h, ex.PotentialMetric(of_potential)),
    "sgrhmc, compensated": lambda h: ex.sgrhmc(known(), h, metric, 3.0, compensate=True),
    "naive sghmc": lambda h: ex.counterexamples.naive_sghmc(full(), h, resample_every=1),
    "naive sgrhmc": lambda h: ex.counterexamples.naive_sgrhmc(minibatch(), h, metric),
    "nogin": lambda h: ex.nogin(known(), h),
    "nogin, diagonal": lambda h: ex.nogin(noisy(), h, 0.5, mass=WEIGHTS, temperature=0.5),
    "nogin, dense mass": lambda h: ex.nogin(noisy(), h, mass=MATRIX),
    "msgld": lambda h: ex.msgld(known(), h),
    "msgld, exact": lambda h: ex.msgld(noisy(), h, temperature=0.5, form="exact"),
    "ccadl": lambda h: ex.ccadl(known(), h),
    "ccadl, splitting": lambda h: ex.ccadl(
        noisy(), h, mass=MATRIX, thermal_mass=2.0, scheme="splitting"
    ),
    "hmc": lambda h: ex.hmc(full(), h, num_leapfrog_steps=3),
    "split hmc": subsets.split_hmc,
    "split hmc, dense mass": lambda h: subsets.split_hmc(h, mass=MATRIX, temperature=0.5),
    "rmhmc": lambda h: ex.rmhmc(full(), h, metric, num_leapfrog_steps=3),
    "rmhmc, dense metric": lambda h: ex.rmhmc(
        full(), h, dense_metric, num_leapfrog_steps=3, temperature=0.5
    ),
    "recipe, state-dependent curl": lambda h: ex.euler_maruyama(
        riemannian(), minibatch(), h, semi_implicit=True
    ),
    "recipe, low-rank diffusion": lambda h: ex.euler_maruyama(
        ex.Recipe(low_rank_diffusion), full(), h
    ),
    "recipe, dense diffusion": lambda h: ex.euler_maruyama(ex.Recipe(dense_diffusion), full(), h),
    "recipe, nose_hoover": lambda h: ex.euler_maruyama(ex.dynamics.nose_hoover(), full(), h),
    "recipe, nose_hoover per coordinate": lambda h: ex.euler_maruyama(
        ex.dynamics.nose_hoover(per_coordinate=True), full(), h, semi_implicit=True
    ),
    "sa_sgld": lambda h: ex.sa_sgld(minibatch(), h, bounds=(0.2, 1.0), temperature=0.5),
    "samadams": lambda h: ex.samadams(
        minibatch(replace=True), h, mass=MATRIX, bounds=(0.2, 1.0), power=1
    ),
    "time_rescaled, UBU": lambda h: ex.time_rescaled(
        ex.langevin(full(), ex.schedule.Polynomial(h), scheme="UBU"), bounds=(0.2, 1.0)
    ),
    "barker": lambda h: ex.barker(minibatch(), h),
    "barker, compensated": lambda h: ex.barker(
        known(), h, temperature=0.5, spread=1, compensate=True
    ),
    "microcanonical": lambda h: ex.microcanonical(
        minibatch(), h, 2.0, preconditioner=WEIGHTS, temperature=0.5
    ),
    "shampoo_sgld": lambda h: ex.shampoo_sgld(
        minibatch(), h, refresh=2, damping=1.0, adaptation_steps=4, temperature=0.5
    ),
    "constant_sgd": lambda h: ex.constant_sgd(
        minibatch(), jnp.zeros(DIMENSION), step_size=h, covariance="posterior"
    ),
    "lattice_random_walk": lambda h: ex.lattice_random_walk(minibatch(), h, temperature=0.5),
    "scir": lambda h: ex.scir(full(), h, temperature=0.5),
    "cyclical": lambda h: ex.cyclical(ex.sgld, minibatch(), h, period=4),
    "cyclical, resampled": lambda h: ex.cyclical(
        ex.langevin, minibatch(replace=True), h, period=4, exploration=0.3, resample=True, mass=2.0
    ),
    "replica exchange": lambda h: ex.replica_exchange(
        ex.sgld, minibatch(), h, temperatures=(1, 2, 4), swap_every=1
    ),
    "replica exchange, momenta": lambda h: ex.replica_exchange(
        ex.langevin,
        minibatch(replace=True),
        [h, h / 2],
        temperatures=(1, 3),
        swap_every=2,
        mass=WEIGHTS,
    ),
    "confidence": lambda h: subsets.confidence(h, covariance=MATRIX),
    "confidence, proxies": subsets.confidence_with_proxies,
    "austerity": lambda h: ex.exact.austerity(
        subsets.model(), h, covariance=WEIGHTS, batch_size=4, growth=1.5
    ),
    "firefly": lambda h: subsets.firefly(h, mass=MATRIX, num_leapfrog_steps=2),
    "firefly, tuned": lambda h: subsets.firefly(h, centre=np.full(5, 0.1), candidates=2),
    "tuna": lambda h: subsets.tuna(h, chi=10.0),
    "tuna, small blocks": lambda h: subsets.tuna(h, covariance=WEIGHTS, chi=10.0, block_size=3),
    "delayed acceptance, hmc": subsets.hmc_on_a_surrogate,
    "delayed acceptance, split hmc": lambda h: subsets.split_hmc_on_a_surrogate(
        h, num_inner_steps=2
    ),
    "optax schedule": lambda h: ex.sgld(full(), optax.exponential_decay(h, 10, 0.5)),
}
