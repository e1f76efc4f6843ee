"""The idea of ergodax in one file: from H, D and Q to draws of a posterior.

Choose a Hamiltonian H(z) = U(x) + g(z), a positive semidefinite diffusion matrix D(z) and a
skew-symmetric curl matrix Q(z). Then the diffusion

    dz = [-(D + Q) grad H + Gamma] dt + sqrt(2 D) dW,      Gamma_i = sum_j d(D + Q)_ij / dz_j,

leaves exp(-H) invariant, and every continuous Markov process that does so has this form (Ma, Chen
and Fox, 2015). So a sampler is (H, D, Q), an estimate of grad U, and a discretisation:

    Recipe          H, D and Q                          ->  drift and noise at z
    Minibatch       prior, likelihood, data             ->  an estimate of grad U
    euler_maruyama  a recipe, a gradient, a step size   ->  one step
    sample          a step                              ->  chains of draws

Here the position x and every other variable is one vector, blocks of D and Q are numbers or
diagonals, and batches are drawn with replacement. The library has trees of arrays, dense and
low-rank blocks, other discretisations, estimators that know their noise, runs that survive a kill.
What is here draws the same numbers as the library, to the bit from JAX 0.12 on and to rounding
before (tests/docs/test_one_file.py).

Example: python ergodax_in_one_file.py
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

import jax
import jax.numpy as jnp

Array = jax.Array
Variables = dict[str, Array]  # z: "position", and whatever else moves, each a vector


# ------------------------------------------------------------------------------------- the recipe


@dataclass(frozen=True)
class Recipe:
    """A diffusion that leaves exp(-U(x) - g(z)) invariant.

    Attributes:
        diffusion: z -> {name: number or vector}, the diagonal blocks of D; none negative.
        curl: z -> {(row, column): number or vector}, blocks of Q; Q[column, row] = -Q[row, column]
            follows, so Q is skew-symmetric whatever is given.
        energy: z -> g(z), what H has beyond U.
        auxiliary: (key, position) -> the other variables at the start, drawn from exp(-g).
    """

    diffusion: Callable[[Variables], Variables]
    curl: Callable[[Variables], dict[tuple[str, str], Array]] = lambda z: {}
    energy: Callable[[Variables], Array] = lambda z: jnp.zeros(())
    auxiliary: Callable[[Array, Array], Variables] = lambda key, position: {}

    def blocks(self, z: Variables) -> list[tuple[str, str, float, Callable[[Variables], Array]]]:
        """Every block of D + Q: row, column, sign, and the block as a function of z."""
        found = []
        for name in self.diffusion(z):
            found += [(name, name, 1.0, lambda z, name=name: self.diffusion(z)[name])]
        for row, column in self.curl(z):
            field = lambda z, pair=(row, column): self.curl(z)[pair]  # noqa: E731
            found += [(row, column, 1.0, field), (column, row, -1.0, field)]
        return found

    def drift(self, z: Variables, slope: Array) -> Variables:
        """-(D + Q) grad H, where `slope` estimates grad U."""
        gradient = jax.grad(self.energy)(z)
        gradient["position"] = slope + gradient["position"]
        total: Variables = {}
        for row, column, sign, field in self.blocks(z):
            part = -sign * (field(z) * gradient[column])
            total[row] = total[row] + part if row in total else part
        return {name: total.get(name, jnp.zeros_like(z[name])) for name in z}

    def gamma(self, z: Variables) -> Variables:
        """Gamma = div (D + Q), row by row.

        Of a diagonal block a, (Gamma)_i is the derivative of a_i in its own coordinate: one
        derivative of the whole block along the vector of ones, where a_i depends on no other.
        """
        total: Variables = {}
        for row, column, sign, field in self.blocks(z):
            ones = jnp.ones_like(z[column])
            block = lambda value: field({**z, column: value}) * ones  # noqa: E731, B023
            part = sign * jax.jvp(block, (z[column],), (ones,))[1]
            total[row] = total[row] + part if row in total else part
        return total


# ----------------------------------------------------------------------------------- the gradient


@dataclass(frozen=True)
class Minibatch:
    """grad U from n rows of N: -grad log p(x) - (N / n) sum of grad log p(row | x). Unbiased.

    Attributes:
        log_prior: x -> number.
        log_likelihood: (x, ONE row) -> number.
        data: a tree of arrays with a leading axis of N rows.
        batch_size: n, drawn with replacement at every step.
    """

    log_prior: Callable[[Array], Array]
    log_likelihood: Callable[[Array, Array], Array]
    data: Array
    batch_size: int

    def __call__(self, key: Array, position: Array) -> Array:
        """An estimate of grad U at `position`."""
        num_rows = jax.tree.leaves(self.data)[0].shape[0]
        assert num_rows <= 2**16, "for more rows 32 random bits are not enough"
        bits = jax.random.bits(key, (self.batch_size,), jnp.uint32)
        # floor(bits N / 2^32), in two products that do not overflow.
        rows = ((bits >> 16) * num_rows + (((bits & 0xFFFF) * num_rows) >> 16)) >> 16
        batch = jax.tree.map(lambda x: jnp.asarray(x)[rows], self.data)

        def potential(x: Array) -> Array:
            likelihoods = jax.vmap(self.log_likelihood, (None, 0))(x, batch)
            return -self.log_prior(x) - (num_rows / self.batch_size) * jnp.sum(likelihoods)

        return jax.grad(potential)(position)


# ------------------------------------------------------------------------------ the discretisation


class State(NamedTuple):
    """What the next step needs: the position, and the other variables by name."""

    position: Array
    auxiliary: Variables


class Kernel(NamedTuple):
    """A Markov kernel: init(key, position) -> State and step(key, state) -> State."""

    init: Callable[[Array, Array], State]
    step: Callable[[Array, State], State]


def euler_maruyama(
    recipe: Recipe,
    gradient: Callable[[Array, Array], Array],
    step_size: float,
    temperature: float = 1.0,
) -> Kernel:
    """z+ = z + h (-(D + Q) grad H + T Gamma) + N(0, 2 h T D): first order in h.

    Args:
        recipe: H, D and Q.
        gradient: (key, position) -> an estimate of grad U; its noise is not corrected for.
        step_size: h.
        temperature: T; the chain samples exp(-H / T).
    """
    h, T = jnp.float32(step_size), jnp.float32(temperature)

    def init(key: Array, position: Array) -> State:
        key, _ = jax.random.split(key)
        auxiliary = recipe.auxiliary(key, position)
        if "momentum" in auxiliary:  # drawn for T = 1
            auxiliary["momentum"] = jnp.sqrt(T) * auxiliary["momentum"]
        return State(position, auxiliary)

    def step(key: Array, state: State) -> State:
        key_gradient, key_noise, _, _ = jax.random.split(key, 4)
        z = {"position": state.position, **state.auxiliary}
        drift = recipe.drift(z, gradient(key_gradient, state.position))
        for name, part in recipe.gamma(z).items():
            drift[name] = drift[name] + T * part
        blocks = recipe.diffusion(z)
        normal = normals(key_noise, {name: z[name] for name in blocks})
        root = jnp.sqrt(2.0 * h * T)
        noise = {name: root * (jnp.sqrt(blocks[name]) * normal[name]) for name in blocks}
        new = {name: z[name] + h * drift[name] for name in z}
        new = {name: new[name] + noise[name] if name in noise else new[name] for name in z}
        return State(new.pop("position"), new)

    return Kernel(init, step)


def normals(key: Array, like: Variables) -> Variables:
    """Standard normal numbers in the shapes of `like`, drawn as one vector and cut up."""
    names = sorted(like)
    sizes = [like[name].size for name in names]
    parts = jnp.split(jax.random.normal(key, (sum(sizes),)), list(accumulate(sizes))[:-1])
    return dict(zip(names, parts, strict=True))


# ---------------------------------------------------------------------------------------- the loop


def sample(
    kernel: Kernel, position: Array, num_steps: int, *, key: Array, num_chains: int
) -> Array:
    """The positions of independent chains after each step, shape (chains, steps, d).

    Step t of chain c uses a key that depends on `key`, c and t alone.
    """
    key_init, key_run = jax.random.split(key)

    def chain(number: Array) -> Array:
        chain_key = jax.random.fold_in(key_run, number)

        def one(state: State, t: Array) -> tuple[State, Array]:
            state = kernel.step(jax.random.fold_in(chain_key, t), state)
            return state, state.position

        start = kernel.init(jax.random.fold_in(key_init, number), position)
        return jax.lax.scan(one, start, jnp.arange(num_steps))[1]

    # Compiled as the library compiles: other levels round differently.
    program = jax.jit(jax.vmap(chain), compiler_options={"xla_backend_optimization_level": 2})
    return program(jnp.arange(num_chains))


# ------------------------------------------------------------------------------- samplers by name


def sgld() -> Recipe:
    """Langevin dynamics: z = x, H = U, D = I, Q = 0."""
    return Recipe(diffusion=lambda z: {"position": jnp.ones(())})


def sghmc(friction: float) -> Recipe:
    """Hamiltonian dynamics with friction: z = (x, r), H = U + r.r / 2, D_rr = C, Q_rx = I."""
    return Recipe(
        diffusion=lambda z: {"momentum": jnp.asarray(friction)},
        curl=lambda z: {("momentum", "position"): jnp.ones(())},
        energy=kinetic,
        auxiliary=draw_momentum,
    )


def sgrhmc(root_metric: Callable[[Array], Array], friction: float) -> Recipe:
    """SGHMC whose position moves by a diagonal G(x)^(-1/2), so with a Gamma: Q_rx = G^(-1/2)."""
    return Recipe(
        diffusion=lambda z: {"momentum": jnp.asarray(friction)},
        curl=lambda z: {("momentum", "position"): root_metric(z["position"])},
        energy=kinetic,
        auxiliary=draw_momentum,
    )


def kinetic(z: Variables) -> Array:
    """r.r / 2."""
    return 0.5 * jnp.vdot(z["momentum"], z["momentum"])


def draw_momentum(key: Array, position: Array) -> Variables:
    """r ~ N(0, I)."""
    return {"momentum": jax.random.normal(key, position.shape)}


def main() -> None:
    """The posterior of a logistic regression, compared with the coefficients it was made from."""
    key_rows, key_noise, key = jax.random.split(jax.random.key(0), 3)
    truth = jnp.array([1.0, -0.5, 0.0])
    x = jax.random.normal(key_rows, (1_000, 3))
    y = jax.random.bernoulli(key_noise, jax.nn.sigmoid(x @ truth)).astype(jnp.float32)
    gradient = Minibatch(
        log_prior=lambda w: -0.5 * jnp.sum(w**2) / 100.0,
        log_likelihood=lambda w, row: row[1] * (row[0] @ w) - jax.nn.softplus(row[0] @ w),
        data=(x, y),
        batch_size=100,
    )
    kernel = euler_maruyama(sghmc(friction=30.0), gradient, step_size=1e-3)
    draws = sample(kernel, jnp.zeros(3), 20_000, key=key, num_chains=4)[:, 2_000:]
    print("made from", truth)
    print("mean     ", draws.mean((0, 1)))
    print("sd       ", draws.std((0, 1)))


if __name__ == "__main__":
    main()
