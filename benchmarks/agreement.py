"""Do samplers of networks predict as long HMC does? `python -m benchmarks agreement`.

The protocol of Izmailov et al., What are Bayesian neural network posteriors really like?, 2021, on
three networks that are small enough for the reference: the share of test rows whose likeliest class
is the reference's, and the mean total variation distance between the predicted probabilities. Every
sampler starts at the same weights, found by Adam, and takes the same number of row gradients. Its
step is not tuned: it is the one by which the measured noise of its batches heats by a tenth, at
most. The reference's own row compares two halves of its chains: no method can come much nearer.
"""

import argparse
import time
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from sklearn.datasets import load_digits, make_moons

import ergodax as ex
from benchmarks import environment
from benchmarks.report import Table

CHAINS, BATCH = 8, 50
PASSES = 2_000  # over the rows, of each chain, a quarter of them burn-in
FRICTION = 5.0  # in units of the mass below
HEATING = 0.1  # of the temperature
MOST_STEP = 0.1  # of the frequency of an average weight
KEPT = 400  # draws of a chain
PILOT = 40  # trajectories, before the reference's own
ACCEPTED = 0.8  # at least, of the reference's trajectories


class Network:
    """A posterior, its test rows, starts, and the scales that steps are derived from."""

    def __init__(self, name: str, new: Callable[[Any], Any], rows: Sequence[np.ndarray]) -> None:
        *self.rows, self.x, self.y = rows
        keys = jax.random.split(jax.random.key(0), CHAINS)
        self.name, self.module = name, new(keys[0])
        self.posterior = self._posterior()
        starts = [self.posterior.position(new(key)) for key in keys]
        self.starts = jax.tree.map(lambda *w: jnp.stack(w), *starts)
        self.gradient = ex.Minibatch(self.posterior, BATCH)
        began = time.perf_counter()
        found = ex.network.deep_ensemble(
            self.posterior, self.starts, key=jax.random.key(1), epochs=200, progress=False
        )
        self.trained, self.seconds = found.positions, time.perf_counter() - began
        self.fisher, self.mass = self._scales()

    def computed_in(self, dtype: Any) -> None:
        """Let the samplers' gradients come from a forward pass in this dtype."""
        self.gradient = ex.Minibatch(self._posterior(dtype), BATCH)

    def _posterior(self, dtype: Any = None) -> Any:
        likelihood, prior = ex.network.likelihoods.Categorical(), ex.network.priors.Normal(1.0)
        return ex.network.posterior(
            self.module, tuple(self.rows), likelihood, prior, compute_dtype=dtype
        )

    @property
    def size(self) -> int:
        """How many weights."""
        return ex.tree.size(ex.tree.freeze(self.posterior.start))

    def _scales(self) -> tuple[Any, Any]:
        """For each array the mean square of a row's score; N of it and the prior's curvature."""
        batch = jax.tree.map(lambda a: a[:BATCH], self.posterior.data)
        one = ex.tree.freeze(jax.tree.map(lambda w: w[0], self.trained))
        scores = self.posterior.per_example_gradients(one, batch)
        fisher = jax.tree.map(lambda s, w: jnp.full(w.shape, jnp.mean(s**2)), scores, one)
        _, bend = jax.jvp(
            self.posterior.prior_gradient, (one,), (jax.tree.map(jnp.ones_like, one),)
        )
        rows = self.posterior.num_data
        mass = jax.tree.map(lambda f, b: rows * f - jnp.mean(b), fisher, bend)
        return ex.tree.thaw(fisher), ex.tree.thaw(mass)

    def heated(self, friction: float = 1.0) -> float:
        """h at which a gradient of covariance N^2 / n times Fisher's heats weights of this mass."""
        rows = self.posterior.num_data
        relative = max(
            float(jnp.max(rows**2 / BATCH * f / m))
            for f, m in zip(jax.tree.leaves(self.fisher), jax.tree.leaves(self.mass), strict=True)
        )
        return min(MOST_STEP, 2.0 * friction * HEATING / relative)

    def root(self) -> float:
        """The largest root mean square of a batch's gradient per row, in an array."""
        return max(float(jnp.max(jnp.sqrt(f / BATCH))) for f in jax.tree.leaves(self.fisher))


def kernels(net: Network) -> dict[str, Any]:
    """Every sampler of networks, with its step by the rule."""
    gradient, mass, rows = net.gradient, ex.Diagonal(net.mass), net.posterior.num_data
    inverse = jax.tree.map(lambda m: 1.0 / m, net.mass)
    h, slow = net.heated(FRICTION), net.heated()
    steps = PASSES * rows // BATCH
    rate = 2.0 * HEATING / (rows**2 * net.root())
    adapted = {"adaptation_steps": steps // 8, "damping": 0.1 * net.root()}
    length = float(np.sqrt(net.size))
    known = ex.ScoreCovariance(gradient, "diagonal")
    return {
        "sgld": ex.sgld(gradient, slow, preconditioner=inverse),
        "psgld": ex.psgld(gradient, rate, **adapted),
        "shampoo_sgld": ex.shampoo_sgld(gradient, rate, **adapted),
        "sghmc": ex.sghmc(gradient, h, FRICTION, mass=mass),
        "langevin, BAOAB": ex.langevin(gradient, h, FRICTION, mass=mass),
        "sms_ubu": ex.sms_ubu(gradient, h, FRICTION, mass=mass),
        "nogin": ex.nogin(known, h, FRICTION, mass=mass),
        "sgnht": ex.sgnht(gradient, h, FRICTION, mass=mass, thermal_mass=0.1 * net.size),
        "samadams": ex.samadams(gradient, h, FRICTION, mass=mass),
        "microcanonical": ex.microcanonical(
            gradient, h * length, length / FRICTION, preconditioner=inverse
        ),
        "cyclical, sghmc": ex.cyclical(
            ex.sghmc, gradient, 2.0 * h, period=steps // 8, exploration=0.25,
            friction=FRICTION, mass=mass,
        ),
    }  # fmt: skip


def reference(net: Network, trajectories: int) -> tuple[np.ndarray, np.ndarray, str]:
    """Class probabilities (rows, classes) by each half of the chains of HMC; its settings."""
    full, mass, h = ex.FullGradient(net.posterior), ex.Diagonal(net.mass), 0.1
    at = net.trained
    while True:
        leaps = int(np.ceil(0.5 * np.pi / h))
        kernel = ex.hmc(full, h, num_leapfrog_steps=leaps, mass=mass)
        pilot = ex.sample(kernel, num_steps=PILOT, positions=at, key=_key(2), progress=False)
        at = jax.tree.map(lambda w: w[:, -1], pilot.position)
        if float(np.mean(np.asarray(pilot.info.acceptance)[:, PILOT // 2 :])) >= ACCEPTED:
            break
        h *= 0.7
    samples = ex.sample(
        kernel, num_steps=trajectories, burn_in=trajectories // 4, positions=at, key=_key(3),
        progress=False,
    )  # fmt: skip
    half = CHAINS // 2
    halves = [
        jax.tree.map(lambda w, s=s: w[s], samples.position) for s in (np.s_[:half], np.s_[half:])
    ]
    first, second = (predicted(net, draws) for draws in halves)
    taken = f"{trajectories:,} trajectories of {leaps} steps of {h:.3g} in each of {CHAINS} chains"
    return first, second, taken


def predicted(net: Network, draws: Any) -> np.ndarray:
    """Mean class probabilities of draws (chains, draws, ...)."""
    together = jax.tree.map(lambda w: w.reshape(-1, *w.shape[2:]), draws)
    return np.asarray(ex.network.predict(net.posterior, together, net.x, net.y).mean)


def sampled(net: Network, kernel: Any) -> np.ndarray:
    """What the draws of a sampler predict; those of a cycle's exploration don't count."""
    steps = PASSES * net.posterior.num_data // BATCH
    burn_in = steps // 4
    samples = ex.sample(
        kernel, num_steps=steps, burn_in=burn_in, thin=max(1, (steps - burn_in) // KEPT),
        positions=net.trained, key=_key(4), progress=False,
    )  # fmt: skip
    samples = samples.equally_weighted()
    staged = getattr(samples.info, "sampling", None) is not None
    return predicted(net, (samples.sampling_stage() if staged else samples).position)


def compared(truth: np.ndarray, other: np.ndarray, y: np.ndarray) -> list[str]:
    """Agreement in %, total variation, mean log density and accuracy of `other`, as text."""
    agreement = 100.0 * np.mean(truth.argmax(axis=1) == other.argmax(axis=1))
    variation = 0.5 * np.abs(truth - other).sum(axis=1).mean()
    density = np.log(np.maximum(other[np.arange(len(y)), y], 1e-30)).mean()
    accuracy = 100.0 * np.mean(other.argmax(axis=1) == y)
    return [f"{agreement:.1f}", f"{variation:.4f}", f"{density:.4f}", f"{accuracy:.1f}"]


def table(net: Network, only: Sequence[str] | None, trajectories: int) -> Table:
    """Every sampler on one network, after the reference, the ensemble and SWAG."""
    rows = net.posterior.num_data
    columns = ["", "agreement, %", "total variation", "log density", "accuracy, %", "s"]
    found = Table(f"{net.name}: {net.size} weights, {rows} rows, {len(net.y)} test rows", columns)

    def add(name: str, run: Callable[[], np.ndarray], truth: np.ndarray) -> np.ndarray:
        began = time.perf_counter()
        probabilities = run()
        seconds = time.perf_counter() - began
        found.rows.append([name, *compared(truth, probabilities, net.y), f"{seconds:.0f}"])
        print("  ".join(found.rows[-1]), flush=True)
        return probabilities

    began = time.perf_counter()
    first, second, taken = reference(net, trajectories)
    truth = 0.5 * (first + second)
    took = f"{time.perf_counter() - began:.0f}"
    found.rows.append(["HMC, half against half", *compared(first, second, net.y)[:2],
                       *compared(truth, truth, net.y)[2:], took])  # fmt: skip
    print("  ".join(found.rows[-1]), flush=True)
    one = jax.tree.map(lambda w: w[:, None], net.trained)
    add("one network", lambda: predicted(net, jax.tree.map(lambda w: w[:1], one)), truth)
    add("deep ensemble", lambda: predicted(net, one), truth)
    add("multi-SWAG", lambda: swag(net), truth)
    for name, kernel in kernels(net).items():
        if not only or any(part in name for part in only):
            add(name, lambda kernel=kernel: sampled(net, kernel), truth)
    found.notes = [f"HMC: {taken}; the samplers: {PASSES:,} passes in each of {CHAINS} chains."]
    return found


def swag(net: Network) -> np.ndarray:
    """A Gaussian about each member's last iterates of SGD."""
    fitted = ex.network.swag(net.posterior, net.trained, key=_key(6), progress=False)
    draws = fitted.sample(_key(7), KEPT)
    return np.asarray(ex.network.predict(net.posterior, draws, net.x, net.y).mean)


def _key(number: int) -> jax.Array:
    return jax.random.key(number)


def moons() -> Network:
    """Two half moons, by two hidden layers; the test rows are spread over the plane."""
    x, y = make_moons(400, noise=0.25, random_state=0)
    x_test, y_test = make_moons(1_000, noise=0.5, random_state=1)

    def new(key: Any) -> eqx.nn.MLP:
        return eqx.nn.MLP(2, 2, 10, 2, activation=jnp.tanh, key=key)

    rows = (np.float32(x), y, np.float32(x_test), y_test)
    return Network("two moons, 2-10-10-2, tanh", new, rows)


def _digits() -> tuple[np.ndarray, ...]:
    x, y = load_digits(return_X_y=True)
    x = np.float32((x - x.mean()) / x.std())
    order = np.random.default_rng(0).permutation(len(x))
    train, test = order[:1_000], order[1_000:]
    return x[train], y[train], x[test], y[test]


def perceptron() -> Network:
    """Handwritten digits by one hidden layer."""

    def new(key: Any) -> eqx.nn.MLP:
        return eqx.nn.MLP(64, 10, 10, 1, key=key)

    return Network("digits, 64-10-10, relu", new, _digits())


class Convolutional(eqx.Module):
    """A convolution, a mean over squares, a linear layer."""

    first: eqx.nn.Conv2d
    last: eqx.nn.Linear

    def __init__(self, key: Any) -> None:
        one, other = jax.random.split(key)
        self.first = eqx.nn.Conv2d(1, 4, 3, key=one)
        self.last = eqx.nn.Linear(36, 10, key=other)

    def __call__(self, x: jax.Array) -> jax.Array:
        """Class logits of an image of 64 pixels."""
        image = jax.nn.relu(self.first(x.reshape(1, 8, 8)))  # (4, 6, 6)
        pooled = image.reshape(4, 3, 2, 3, 2).mean(axis=(2, 4))
        return self.last(pooled.reshape(-1))


def convolutional() -> Network:
    """Handwritten digits by a convolution."""
    return Network("digits, 3 x 3 convolution of 4 channels", Convolutional, _digits())


NETWORKS = {"moons": moons, "perceptron": perceptron, "convolutional": convolutional}


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a table for each network, its rows as soon as they are known."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks agreement",
        description="Agreement and total variation with long HMC, for every sampler of networks.",
        epilog="example: python -m benchmarks agreement moons --only sghmc langevin",
    )
    names = list(NETWORKS)
    parser.add_argument("networks", nargs="*", default=names, help=f"of {', '.join(names)}")
    parser.add_argument("--only", nargs="*", help="parts of the samplers' names")
    parser.add_argument(
        "--trajectories", type=int, default=1_500, help="of the reference, a chain (default: 1500)"
    )
    parser.add_argument(
        "--compute-dtype",
        help="of the samplers' forward passes, such as bfloat16 (default: float32)",
    )
    options = parser.parse_args(arguments)
    for name, value in environment.describe().items():
        print(f"{name:>12}: {value}")
    for name in options.networks:
        print(f"\n{name}", flush=True)
        net = NETWORKS[name]()
        if options.compute_dtype is not None:
            net.computed_in(options.compute_dtype)
        found = table(net, options.only, options.trajectories)
        print(f"\n{found.markdown()}", flush=True)
