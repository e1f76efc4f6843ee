"""Recipes in pairs, one right and one with the mistake that it is known for."""

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

import ergodax as ex
from benchmarks.confusion.equations import Case, metric

MASS = np.array([[1.4, 0.5], [0.5, 0.8]])


def separable(x: Array) -> Array:
    """A diagonal whose entries depend on their own coordinates."""
    return 1.5 + jnp.sin(x)


@jax.custom_jvp
def square(x: Array) -> Array:
    """1 + x^2, whose derivative is said to be 0."""
    return 1.0 + x**2


square.defjvp(lambda x, tangent: (square(*x), 0.0 * tangent[0]))


def diagonal(function: Callable[[Array], Array], gamma: Any = None) -> ex.Recipe:
    """Overdamped Langevin dynamics with this diagonal."""
    return ex.Recipe(lambda z: {"position": ex.Diagonal(function(z["position"]))}, gamma=gamma)


def closed(slope: Callable[[Array], Array]) -> ex.Recipe:
    """The separable metric with a divergence by hand."""
    return ex.dynamics.riemannian_langevin(ex.Metric(separable, divergence=slope))


def with_momentum(auxiliary: Any, energy: Any) -> ex.Recipe:
    """Underdamped dynamics with any kinetic energy."""
    return ex.Recipe(
        auxiliary=lambda key, x: {"momentum": auxiliary(key, x)},
        energy=energy,
        diffusion=lambda z: {"momentum": 1.0},
        curl=lambda z: {("momentum", "position"): 1.0},
    )


def relativistic(auxiliary: Any) -> ex.Recipe:
    """g = sum of sqrt(1 + r^2)."""
    return with_momentum(auxiliary, lambda z: jnp.sum(jnp.sqrt(1.0 + z["momentum"] ** 2)))


def massive(auxiliary: Any) -> ex.Recipe:
    """g = r^T M^-1 r / 2."""
    inverse = np.linalg.inv(MASS)
    return with_momentum(
        auxiliary, lambda z: 0.5 * z["momentum"] @ jnp.asarray(inverse) @ z["momentum"]
    )


def by_rejection(key: Array, x: Array) -> Array:
    """Draws from exp(-sqrt(1 + r^2)), below Laplace's exp(-|r|)."""
    key_draw, key_test = jax.random.split(key)
    r = jax.random.laplace(key_draw, (64, *x.shape), x.dtype)
    gap = jnp.sqrt(1.0 + r**2) - jnp.abs(r)
    kept = jax.random.exponential(key_test, r.shape, r.dtype) > gap
    return jnp.take_along_axis(r, jnp.argmax(kept, axis=0)[None], axis=0)[0]


def colored(key: Array, x: Array) -> Array:
    """N(0, M)."""
    return jnp.asarray(np.linalg.cholesky(MASS)) @ ex.normal_like(key, x)


def curved(determinant: bool) -> ex.Recipe:
    """Riemannian HMC with friction, with its determinant or without."""
    right = ex.dynamics.riemannian_hamiltonian(separable, 1.0)
    if determinant:
        return right
    return with_momentum(
        lambda key, x: right.auxiliary(key, x)["momentum"],
        lambda z: 0.5 * jnp.sum(separable(z["position"]) * z["momentum"] ** 2),
    )


class Part(ex.Target):
    """A potential whose gradient is of a part of the data, without N / n."""

    def gradient(self, position: Any) -> Any:
        """Two fifths of it."""
        return 0.4 * super().gradient(position)


def bowl(x: Array) -> Array:
    """A quartic without symmetry."""
    return jnp.sum(x**4) / 4.0 + 0.3 * x[0] * x[1] + 0.2 * x[0]


def pairs() -> dict[str, tuple[Any, Any, Any, float]]:
    """A right recipe, a wrong one, the target and the temperature."""
    dynamics = ex.dynamics
    banana, flat = ex.targets.banana(), ex.targets.gaussian(np.zeros(2), np.ones(2))
    mixture = ex.targets.mixture([[1.0, 0.0], [-1.0, 0.5]], np.diag([0.5, 1.5]))
    ten, well = ex.targets.gaussian(np.zeros(10), np.ones(10)), ex.targets.double_well(dimension=3)
    far = lambda x: jnp.cos(x) + jax.nn.relu(x - 2.5)  # noqa: E731
    stopped = lambda x: 1.0 + jax.lax.stop_gradient(x) ** 2  # noqa: E731
    stairs = lambda x: 1.0 + jnp.round(20.0 * x**2) / 20.0  # noqa: E731
    right, wrong = dynamics.riemannian_langevin(metric), dynamics.determinant_corrected_langevin
    return {
        "half of a Gamma by hand": (closed(jnp.cos), closed(lambda x: 0.5 * jnp.cos(x)), banana, 1),
        "sign of a Gamma by hand": (closed(jnp.cos), closed(lambda x: -jnp.cos(x)), ten, 0.5),
        "Gamma wrong beyond 2.5 sd": (closed(jnp.cos), closed(far), flat, 1),
        "no Gamma": (right, dynamics.naive_riemannian_langevin(metric), mixture, 2),
        "no Gamma, with momentum": (
            dynamics.riemannian_underdamped(metric),
            dynamics.naive_riemannian_underdamped(metric),
            well,
            0.5,
        ),
        "Gamma of Girolami and Calderhead": (right, wrong(metric), banana, 1),
        "no Gamma of the thermostat": (
            dynamics.nose_hoover(),
            dynamics.without_correction(dynamics.nose_hoover()),
            ten,
            1,
        ),
        "stop_gradient": (diagonal(lambda x: 1.0 + x**2), diagonal(stopped), flat, 1),
        "a jump": (
            diagonal(lambda x: 2.0 + jnp.tanh(9.0 * x)),
            diagonal(lambda x: jnp.where(x > 0, 3.0, 1.0)),
            mixture,
            0.5,
        ),
        "rounding": (diagonal(lambda x: 1.0 + jnp.abs(x)), diagonal(stairs), flat, 1),
        "a derivative of its own": (diagonal(lambda x: 1.0 + x**2), diagonal(square), well, 1),
        "Gaussian momenta, relativistic": (
            relativistic(by_rejection),
            relativistic(ex.normal_like),
            banana,
            1,
        ),
        "momenta without the mass": (massive(colored), massive(ex.normal_like), banana, 1),
        "RMHMC without determinant": (curved(determinant=True), curved(determinant=False), flat, 1),
    }


def cases() -> Iterator[Case]:
    """Both of each pair; noise without friction; a gradient without N / n."""
    for name, (right, wrong, target, t) in pairs().items():
        for label, recipe in (("right", right), (name, wrong)):
            yield Case(
                f"recipe, {name}: {label}",
                label == "right",
                lambda r=recipe, target=target, t=t: ex.verify.recipe(r, target, temperature=t),
            )
    friction = ex.dynamics.underdamped(2.0)
    noise = {"noise_covariance": 1.0, "step_size": 0.1}
    for right, options in ((True, {}), (False, noise)):
        yield Case(
            f"recipe, gradient noise: {'right' if right else 'uncompensated'}",
            right,
            lambda o=options: ex.verify.recipe(friction, ex.targets.banana(), **o),
        )
    for right, kind in ((True, ex.Target), (False, Part)):
        yield Case(
            f"recipe, N / n: {'right' if right else 'forgotten'}",
            right,
            lambda k=kind: ex.verify.recipe(friction, k(bowl), position=jnp.ones(2)),
        )
