"""The programs of the pilot and of the sampling, compiled beside the main thread.

They are most of what a cold `infer` waits for, and their shapes can mostly be guessed at once.
"""

from concurrent.futures import Future
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import PRNGKeyArray, PyTree

from ergodax import tree
from ergodax.diagnostics.bias import BiasReport, bias
from ergodax.driver.compile import short_runs
from ergodax.sampler.nogin import nogin
from ergodax.target.posterior import Posterior
from ergodax.tune.beside import beside, compile_beside
from ergodax.tune.coordinates import Coordinates, in_coordinates
from ergodax.tune.estimator import (
    COSTS,
    LARGEST_SECOND_ORDER,
    LONGEST_STEP,
    SMALLEST_BATCH,
    Plan,
)
from ergodax.tune.host import on_device

FRICTION = 1.0  # which makes a round posterior's draws least correlated, whatever the step
RELAXATIONS = 20  # burn-in, in units of the time 1 / h
PILOT_DRAWS = 500  # of each chain
SHORT = 3e6  # evaluations times dimensions of a pilot, below which compiling it takes longer
FEW = 4  # draws of a run that is made for its programs only


def relaxation(step_size: float) -> int:
    """Steps to a draw.

    Args:
        step_size: h, in whitened coordinates.
    """
    return max(1, round(1.0 / step_size))


def in_round(posterior: Posterior, coordinates: Coordinates) -> Posterior:
    """The posterior as a function of u.

    Args:
        posterior: of the position.
        coordinates: the map to u.
    """
    inner = in_coordinates(posterior, coordinates)
    assert isinstance(inner, Posterior)
    return inner


def pilot_run(
    plan: Plan,
    gradient: Any,
    coordinates: Coordinates,
    key: PRNGKeyArray,
    *,
    num_chains: int,
    draws: int = PILOT_DRAWS,
    progress: bool = False,
) -> BiasReport:
    """Coupled runs at a plan's step and half of it.

    Args:
        plan: the step.
        gradient: built by it.
        coordinates: of the kernel.
        key: a key of `jax.random.key`.
        num_chains: pairs of chains.
        draws: of each chain.
        progress: show bars.
    """
    thin, d = relaxation(plan.step_size), coordinates.dimension
    # Not the draws of this run: one program serves them all.
    work = num_chains * PILOT_DRAWS * thin * COSTS[plan.name] * plan.batch_size * d
    with short_runs(work < SHORT):
        return bias(
            lambda h: nogin(gradient, h, FRICTION),
            on_device(np.zeros(d), coordinates.basis.dtype),
            plan.step_size,
            draws * thin,
            key=key,
            order=2,
            function=coordinates.position,
            num_chains=num_chains,
            burn_in=RELAXATIONS * thin,
            thin=thin,
            progress=progress,
        )


class Programs:
    """Compiles for each kind of plan once, by short runs beside the main thread.

    Args:
        num_chains: of the runs.
    """

    def __init__(self, num_chains: int) -> None:
        self.num_chains = num_chains
        self.begun: dict[tuple, tuple[Future, Future]] = {}

    def guess(self, posterior: Posterior, init: PyTree, key: PRNGKeyArray) -> None:
        """Begin with the plan that much data about one mode leads to, before anything is measured.

        Args:
            posterior: of the position.
            init: a position.
            key: any.
        """
        init = tree.freeze(init, "init")
        d, dtype = tree.size(init), tree.result_dtype(init)
        if d > LARGEST_SECOND_ORDER:
            return
        plan = Plan("ControlVariate, order 2", SMALLEST_BATCH, LONGEST_STEP, np.zeros(d), 0.0, {})
        coordinates = Coordinates(tree.thaw(init), on_device(np.zeros((d, d)), dtype))
        inner = in_round(posterior, coordinates)
        self.begin(plan, _like(plan, inner, dtype), coordinates, key)

    def begin(self, plan: Plan, gradient: Any, coordinates: Coordinates, key: PRNGKeyArray) -> None:
        """Start, unless a plan that differs in numbers alone has been seen.

        Args:
            plan: the kernel's.
            gradient: built by it, or like that.
            coordinates: of the kernel.
            key: any.
        """
        kind, chains = _kind(plan), self.num_chains
        if kind in self.begun:
            return
        starts = on_device(np.zeros((chains, coordinates.dimension)), coordinates.basis.dtype)
        kernel, thin = nogin(gradient, plan.step_size, FRICTION), relaxation(plan.step_size)
        pilot = beside(
            lambda: pilot_run(plan, gradient, coordinates, key, num_chains=chains, draws=FEW)
        )
        self.begun[kind] = pilot, compile_beside(kernel, coordinates, starts, thin, key)

    def wait_for_pilot(self, plan: Plan) -> None:
        """Until its program is there; what failed will fail again where it is needed."""
        self.begun[_kind(plan)][0].exception()

    def wait_for_sampling(self, plan: Plan) -> None:
        """Likewise."""
        self.begun[_kind(plan)][1].exception()


def _kind(plan: Plan) -> tuple:
    """What of a plan decides which programs run."""
    return plan.name, plan.batch_size, relaxation(plan.step_size) > 1


def _like(plan: Plan, posterior: Posterior, dtype: Any) -> Any:
    """What the plan builds, without its pass over the data: zeros in place of its numbers."""
    shapes = eqx.filter_eval_shape(lambda p: plan.build(p, dtype), posterior)
    mine = eqx.tree_at(lambda gradient: gradient.gradient.target, shapes, posterior)
    return jax.tree.map(
        lambda x: on_device(np.zeros(x.shape), x.dtype) if _is_shape(x) else x, mine
    )


def _is_shape(leaf: Any) -> bool:
    return isinstance(leaf, jax.ShapeDtypeStruct)
