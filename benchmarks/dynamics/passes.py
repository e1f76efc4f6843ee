"""Passes over the data until all means and sds are within 0.05 posterior sd: exact laws.

The posterior is a normal law, and the gradient's noise has the same covariance everywhere. Each
step is affine then, and along an eigenvector of the Hessian the mean and variance depend on that
curvature and on the noise along it alone: one mode, for itself. Its matrices are read off the
kernel's own step; what follows is linear algebra. A chain starts 10 posterior sds from the mean in
each mode, at rest.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import ergodax as ex
from ergodax import tree

GOAL, AWAY = 0.05, 10.0
DIMENSION = 10_000  # modes; settings are sought with some 40 of them
BATCHES, CONDITIONS = (10, 100), (1.0, 100.0)
STEPS = np.geomspace(2e-4, 1.9, 40)  # in the largest that leapfrog allows, over 2
FRICTIONS = np.array([0.5, 1.0, 2.0, 4.0, 8.0, 16.0])


class Normal(NamedTuple):
    """A normal posterior along the eigenvectors of its Hessian, the least curvature 1.

    Attributes:
        curvature: shape (d,).
        variance: of a batch's gradient, shape (d,).
        batches: m, in a pass.
    """

    curvature: np.ndarray
    variance: np.ndarray
    batches: int

    def some(self, which: np.ndarray) -> "Normal":
        """These modes alone."""
        return self._replace(curvature=self.curvature[which], variance=self.variance[which])


def well_specified(batches: int, condition: float) -> Normal:
    """Of 10,000 modes; the noise is that of N / m rows where the model is right, (m - 1) k."""
    k = np.geomspace(1.0, condition, DIMENSION)
    return Normal(k, (batches - 1.0) * k, batches)


class Modes(NamedTuple):
    """z+ = A z + N(0, S) of each mode, z = (x, r) or (x, r, gradient kept), and its start."""

    matrix: np.ndarray  # (d, n, n)
    noise: np.ndarray  # (d, n, n)
    mean: np.ndarray  # (d, n)
    covariance: np.ndarray  # (d, n, n)
    steps: int  # of the kernel


@eqx.filter_jit
def columns(kernel: Any, size: int) -> tuple[Any, Any]:
    """A, shape (d, n, n), and what each normal tree of a step adds, shape (trees, d, n)."""
    zero, one = jnp.zeros(size), jnp.ones(size)
    start, key = kernel.init(jax.random.key(0), zero), jax.random.key(0)
    with tree.recorded_normals() as drawn:
        jax.eval_shape(kernel.step, key, start)
    numbers, count = 2 + (start.estimate is not None), len(drawn)

    def answer(among: int, which: int) -> Any:
        z = [one if (among, which) == (0, k) else zero for k in range(numbers)]
        normals = [one if (among, which) == (1, k) else zero for k in range(count)]
        estimate = start.estimate
        if estimate is not None:
            estimate = eqx.tree_at(lambda e: e.gradient, estimate, z[2])
        with tree.given_normals(normals):
            state = ex.State(z[0], {"momentum": z[1]}, start.gradient, estimate, start.step)
            new, _ = kernel.step(key, state)
        kept = [] if new.estimate is None else [new.estimate.gradient]
        return jnp.stack([new.position, new.auxiliary["momentum"], *kept], axis=1)

    matrix = jnp.stack([answer(0, k) for k in range(numbers)], axis=2)
    return matrix, jnp.stack([answer(1, k) for k in range(count)])


def independent(kernel: ex.Kernel, law: Normal) -> Modes:
    """With a batch of its own in each step."""
    curvature = law.curvature
    matrix, added = (np.asarray(x, float) for x in columns(kernel, curvature.size))
    noise, size = np.einsum("kdi,kdj->dij", added, added), matrix.shape[1]
    mean, covariance = np.zeros(matrix.shape[:2]), np.zeros(matrix.shape)
    mean[:, 0] = AWAY / np.sqrt(curvature)
    covariance[:, 1, 1] = 1.0
    if size == 3:
        mean[:, 2], covariance[:, 2, 2] = curvature * mean[:, 0], law.variance
    return Modes(matrix, noise, mean, covariance, 1)


def swept(kernel: ex.Kernel, law: Normal) -> Modes:
    """Of UBU, a whole sweep of m batches forward and then backward, in a random order.

    The noises of different batches add up to nothing, so their covariance is -1 / (m - 1) of the
    variance; those of one batch are the same at both its turns.
    """
    batches = law.batches
    matrix, added = (np.asarray(x, float) for x in columns(kernel, law.curvature.size))
    brought, injected = added[2], np.delete(added, 2, axis=0)
    own = np.einsum("kdi,kdj->dij", injected, injected)
    power, noise, paths = np.broadcast_to(np.eye(2), matrix.shape), np.zeros_like(matrix), []
    for _ in range(2 * batches):
        paths.append((power @ brought[..., None])[..., 0])
        noise = noise + power @ own @ power.swapaxes(1, 2)
        power = matrix @ power
    both = np.stack(paths[:batches]) + np.stack(paths[batches:][::-1])
    each, total = np.einsum("ldi,ldj->dij", both, both), both.sum(axis=0)
    rest = total[:, :, None] * total[:, None, :]
    noise = noise + each + (each - rest) / (batches - 1)
    start = independent(kernel, law)
    return Modes(power, noise, start.mean, start.covariance, 2 * batches)


def steps_needed(modes: Modes, curvature: np.ndarray) -> float:
    """Kernel steps until every mean and sd is within `GOAL`; infinite where none are."""
    matrix, size = modes.matrix, modes.matrix.shape[1]
    if not np.abs(np.linalg.eigvals(matrix)).max() < 1.0:
        return np.inf
    both = np.einsum("dij,dkl->dikjl", matrix, matrix).reshape(-1, size**2, size**2)
    flat = np.linalg.solve(np.eye(size**2) - both, modes.noise.reshape(-1, size**2, 1))
    law = flat.reshape(matrix.shape)

    def error(power: np.ndarray) -> float:
        mean = (power @ modes.mean[..., None])[:, 0, 0] * np.sqrt(curvature)
        left = power @ (modes.covariance - law) @ power.swapaxes(1, 2)
        sd = np.sqrt(np.maximum((law + left)[:, 0, 0] * curvature, 0.0))
        return float(max(np.abs(mean).max(), np.abs(sd - 1.0).max()))

    if error(np.zeros_like(matrix)) > GOAL:
        return np.inf
    doubled = [matrix]
    while error(doubled[-1]) > GOAL:
        doubled.append(doubled[-1] @ doubled[-1])
    # The largest count that is not enough, digit by digit.
    power, count = np.broadcast_to(np.eye(size), matrix.shape), 0
    for k in reversed(range(len(doubled))):
        further = power @ doubled[k]
        if error(further) > GOAL:
            power, count = further, count + 2**k
    return float((count + 1) * modes.steps)


class Method(NamedTuple):
    """A contestant.

    Attributes:
        make: gradient, step size, friction -> kernel.
        told: what it is told of the noise's variance, as a multiple of it; None for nothing.
        swept: whether batches are swept forward and backward instead of drawn anew.
        all_rows: whether a step is of all rows, and costs as much as all batches.
    """

    make: Callable[[Any, float, float], ex.Kernel]
    told: float | None = None
    swept: bool = False
    all_rows: bool = False

    def gradient(self, law: Normal) -> Any:
        """Along its modes."""
        weights = jnp.asarray(law.curvature)
        target = ex.Target(lambda x: 0.5 * jnp.sum(weights * x**2))
        gradient = ex.NoisyGradient(target, law.variance)
        return (
            gradient
            if self.told is None
            else ex.KnownCovariance(gradient, self.told * law.variance)
        )

    def steps_needed(self, law: Normal, h: float, gamma: float) -> float:
        """Steps of h at friction gamma until all is right; one with all rows counts as m."""
        if self.all_rows:
            law = law._replace(variance=1e-12 * law.curvature)
        kernel = self.make(self.gradient(law), h, gamma)
        modes = swept(kernel, law) if self.swept else independent(kernel, law)
        count = steps_needed(modes, law.curvature)
        return law.batches * count if self.all_rows else count


def ubu(gradient: Any, h: float, gamma: float) -> ex.Kernel:
    """Its batches are those of the gradient."""
    return ex.langevin(gradient, h, gamma, scheme="UBU")


METHODS = {
    "langevin, BAOAB": Method(ex.langevin),
    "langevin, UBU": Method(ubu),
    "sms_ubu": Method(ubu, swept=True),
    "nogin, V known": Method(ex.nogin, told=1.0),
    "nogin, told 0.9 V": Method(ex.nogin, told=0.9),
    "nogin, told V / 2": Method(ex.nogin, told=0.5),
    "langevin, BAOAB, all rows": Method(ex.langevin, all_rows=True),
}


def best(method: Method, law: Normal) -> tuple[float, float, float]:
    """Passes, step size and friction: the best of a grid, at all modes."""
    k = law.curvature
    some = law.some(np.unique(np.append(np.arange(0, k.size, max(1, k.size // 40)), k.size - 1)))
    found = [
        (method.steps_needed(some, h, gamma), h, gamma)
        for h in STEPS / np.sqrt(k.max())
        for gamma in FRICTIONS
    ]
    _, h, gamma = min(found)
    return method.steps_needed(law, h, gamma) / law.batches, float(h), float(gamma)
