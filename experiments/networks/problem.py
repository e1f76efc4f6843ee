"""A posterior with its data, the rows to predict, and Adam, from which every chain starts."""

import dataclasses
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

import ergodax as ex
from experiments.networks.tasks import Task

RATE = 0.01  # of Adam
FRICTION = 5.0  # in units of the frequency of the average weight
HEATING = 0.1  # of the temperature, by gradient noise, that a step size is allowed
MOST_STEP = 0.05  # in units of that frequency; the largest step of a cycle is twice this


class Optimised(NamedTuple):
    """Where the members came to."""

    positions: PyTree  # leading axis members
    moment: PyTree  # Adam's average of the squared gradient of U / N there, likewise


@eqx.filter_jit
def adam(
    gradient: ex.Minibatch,
    positions: PyTree,
    steps: Int[Array, ""],
    rate: Float[Array, ""],
    key: PRNGKeyArray,
) -> Optimised:
    """Minimise U / N by Adam, its rate falling to zero along a half cosine."""
    optimiser, num_data = optax.scale_by_adam(), gradient.target.num_data

    def member(key: PRNGKeyArray, position: PyTree) -> tuple[PyTree, PyTree]:
        def step(t: Any, carry: tuple) -> tuple:
            position, state, batches = carry
            estimate, batches = gradient.estimate(jax.random.fold_in(key, t), batches, position)
            mean = ex.tree.scale(1.0 / num_data, estimate.gradient)
            # optax mixes dtypes, which strict promotion would refuse.
            with jax.numpy_dtype_promotion("standard"):
                direction, state = optimiser.update(mean, state)
            place = t.astype(jnp.float32) / jnp.maximum(steps, 1).astype(jnp.float32)
            now = 0.5 * rate * (1.0 + jnp.cos(jnp.pi * place))
            return ex.tree.add_scaled(position, -now, direction), state, batches

        start = (position, optimiser.init(position), gradient.init(key, position))
        position, state, _ = lax.fori_loop(jnp.int32(0), steps, step, start)
        weight = 1.0 - 0.999 ** jnp.maximum(steps, 1).astype(jnp.float32)
        return position, ex.tree.scale(1.0 / weight, state.nu)

    count = jax.tree.leaves(positions)[0].shape[0]
    return Optimised(*jax.vmap(member)(jax.random.split(key, count), positions))


@dataclasses.dataclass(frozen=True)
class Budget:
    """What every method may spend."""

    members: int = 5  # chains, or members of the ensemble; the mode takes all of their steps itself
    steps: int = 8000  # of each member
    batch_size: int = 100  # examples in a batch
    warm: float = 0.4  # share of a chain's steps that go into Adam, where it starts
    burn_in: float = 0.25  # share of the rest that does not count
    draws: int = 100  # of each chain that predict, about

    @property
    def warm_steps(self) -> int:
        """Steps of Adam before a chain."""
        return max(1, round(self.warm * self.steps))

    @property
    def chain_steps(self) -> int:
        """Steps of a chain, burn-in included."""
        return self.steps - self.warm_steps


class Problem:
    """A posterior, the rows to predict, and the start that the samplers share.

    Args:
        task: the data.
        budget: of every method.
        width, depth: of the network's hidden layers.
        prior_scale: of the normal prior.
        seed: of everything.
    """

    def __init__(
        self, task: Task, budget: Budget, width: int, depth: int, prior_scale: float, seed: int
    ) -> None:
        self.task, self.budget = task, budget
        self.key = jax.random.key(seed)
        outputs = task.classes or 1

        def initial(key: PRNGKeyArray) -> eqx.nn.MLP:
            return eqx.nn.MLP(task.x.shape[1], outputs, width, depth, key=key)

        likelihood = (
            ex.network.likelihoods.Categorical()
            if task.classes
            else ex.network.likelihoods.Gaussian()
        )
        prior = ex.network.priors.Normal(prior_scale)
        keys = jax.random.split(jax.random.fold_in(self.key, 0), budget.members)
        self.posterior = ex.network.posterior(initial(keys[0]), (task.x, task.y), likelihood, prior)
        starts = [ex.tree.freeze(self.posterior.position(initial(key))) for key in keys]
        self.starts = jax.tree.map(lambda *x: jnp.stack(x), *starts)
        batch_size = min(budget.batch_size, self.posterior.num_data)
        self.gradient = ex.Minibatch(self.posterior, batch_size)
        self.rows = task.x_test if task.strange is None else np.concatenate(
            [task.x_test, task.strange]
        )  # fmt: skip
        # The strange rows have no target; what is said of these is dropped.
        extra = len(self.rows) - len(task.x_test)
        self.targets = np.concatenate([task.y_test, np.resize(task.y_test, extra)])
        self.prior_scale = prior_scale
        self._warm: Optimised | None = None

    @property
    def batch_size(self) -> int:
        """Examples in a batch."""
        return self.gradient.batch_size

    @property
    def evaluations(self) -> int:
        """Gradients of single examples that every method may take."""
        return self.budget.members * self.budget.steps * self.batch_size

    def optimised(self, positions: PyTree, steps: int, name: str) -> Optimised:
        """Adam from these positions."""
        key = jax.random.fold_in(self.key, sum(name.encode()))
        out = adam(self.gradient, positions, jnp.int32(steps), jnp.float32(RATE), key)
        return jax.block_until_ready(out)

    def warm(self) -> Optimised:
        """Where the chains start, which they share."""
        if self._warm is None:
            self._warm = self.optimised(self.starts, self.budget.warm_steps, "warm")
        return self._warm

    def mass(self) -> PyTree:
        """About the curvature of the average weight of each array: Fisher's information and prior.

        The squared gradient of a batch of B is 1 / B of that of an example, whose sum over N is
        the Fisher information. It is also proportional to the gradient's noise.
        """
        num_data = self.posterior.num_data

        def leaf(moment: jax.Array, inputs: int) -> jax.Array:
            fisher = num_data * self.batch_size * jnp.mean(moment)
            return jnp.full(moment.shape[1:], fisher + inputs / self.prior_scale**2)

        moment = self.warm().moment
        inputs = self.posterior.program.network.inputs
        mass = {name: jax.tree.map(lambda m: leaf(m, 1), m) for name, m in moment.items()}
        leaves, structure = jax.tree.flatten(moment["network"])
        arrays = [leaf(m, k) for m, k in zip(leaves, inputs, strict=True)]
        return {**mass, "network": structure.unflatten(arrays)}

    def step_size(self) -> float:
        """h at which gradient noise heats by HEATING: h N / (2 gamma B) of the mass above."""
        noise = self.posterior.num_data / (2.0 * FRICTION * self.batch_size)
        return min(MOST_STEP, HEATING / noise)
