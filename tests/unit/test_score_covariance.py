"""Covariances estimated from scores: unbiased by enumeration of every batch, kept and renewed."""

from unittest import mock

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ergodax as ex
from conformance.positions import log_likelihood, log_prior, tree_positions
from conformance.run import untyped
from ergodax import control_flow
from ergodax.data import ShuffledEpochs
from ergodax.gradient import covariance as scores
from ergodax.gradient.covariance import ScoreCovariance
from ergodax.recipe.operators import Dense
from law import batches

# Four scores with a covariance known by hand: f_i . position has gradient f_i everywhere.
SCORES = np.array([[1.0, 0.0], [2.0, 1.0], [4.0, -1.0], [7.0, 2.0]])
N, SIZE = 4, 2
POINT = np.array([0.5, -1.5])
COVARIANCE = {
    True: np.array([[42.0, 10.0], [10.0, 10.0]]),
    False: np.array([[28.0, 20.0 / 3.0], [20.0 / 3.0, 20.0 / 3.0]]),
}
STRUCTURES = {
    "low rank": lambda v: v,
    "dense": lambda v: v,
    "diagonal": lambda v: np.diag(np.diagonal(v)),
    "scalar": lambda v: np.trace(v) / len(v) * np.eye(len(v)),
}


def linear(data=SCORES):
    return ex.Posterior(lambda w: -0.5 * jnp.sum(w**2), lambda w, f: f @ w, data)


def matrix(operator, like=POINT) -> jax.Array:
    """The operator on the raveled position."""
    flat, unravel = ex.tree.ravel(jax.tree.map(jnp.asarray, like))
    columns = jax.vmap(lambda e: ex.tree.ravel(operator.mv(unravel(e)))[0])
    return columns(jnp.eye(flat.size, dtype=flat.dtype))


def of_every_batch(structure, replace, **options) -> np.ndarray:
    """The estimate from each batch: shape (batches, 2, 2)."""
    key, point = jax.random.key(0), jnp.asarray(POINT)

    def one(rows):
        gradient = ex.Minibatch(linear(), SIZE, batching=batches.chosen(rows, replace))
        estimator = ScoreCovariance(gradient, structure, **options)
        estimate, _ = estimator.estimate(key, estimator.init(key, point), point)
        return matrix(estimate.covariance)

    return np.asarray(jax.vmap(one)(batches.every(N, SIZE, replace)))


@pytest.mark.parametrize("replace", [True, False])
@pytest.mark.parametrize("structure", STRUCTURES)
def test_unbiased_over_every_batch(structure, replace, x64):
    found = of_every_batch(structure, replace)
    expected = STRUCTURES[structure](COVARIANCE[replace])
    np.testing.assert_allclose(found.mean(axis=0), expected, rtol=1e-12, atol=1e-12)
    assert np.abs(found - expected).max() > 1.0, "one batch is not exact"


def test_planted_faults_are_biased(x64):
    with mock.patch.object(ex.data.Batching, "noise_factor", lambda self, n, b: n * n / b):
        doubled = of_every_batch("dense", False).mean(axis=0)
    np.testing.assert_allclose(doubled, 2.0 * COVARIANCE[False], rtol=1e-12)
    with mock.patch.object(scores, "num_rows", lambda rows: len(rows) + 1):  # divisor n
        halved = of_every_batch("dense", True).mean(axis=0)
    np.testing.assert_allclose(halved, 0.5 * COVARIANCE[True], rtol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("replace", [True, False])
@pytest.mark.parametrize("structure", STRUCTURES)
def test_all_rows_give_the_covariance_itself(structure, replace, x64):
    expected = STRUCTURES[structure](COVARIANCE[replace])
    found = of_every_batch(structure, replace, rows="all", chunk=3)
    np.testing.assert_allclose(found, np.broadcast_to(expected, found.shape), rtol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("chunk", [1, 2, 3, 7, 100])
@pytest.mark.parametrize("structure", ["dense", "diagonal", "scalar"])
def test_chunks_lose_no_digits(structure, chunk, x64):
    """Scores a million standard deviations from zero, where E f^2 - (E f)^2 has none left."""
    far = jnp.asarray(np.random.default_rng(0).normal(size=(7, 3)) + 1e6)
    found = scores.sample_covariance_in_chunks(lambda rows: far[rows], 7, structure, chunk)
    whole = scores.sample_covariance(far, structure)
    known = np.cov(np.asarray(far).T)
    dense = {"dense": lambda v: v, "diagonal": np.diagonal, "scalar": lambda v: np.trace(v) / 3}
    np.testing.assert_allclose(whole, dense[structure](known), rtol=1e-8)
    np.testing.assert_allclose(found, dense[structure](known), rtol=1e-8)


# --- A nonlinear model, whose covariance depends on the position ----------------------------

X = np.random.default_rng(0).normal(size=(12, 3))
WHERE = np.array([0.4, -0.3, 0.8])


def curved():
    return ex.Posterior(lambda w: -0.5 * jnp.sum(w**2), lambda w, x: -jnp.cosh(w @ x), X)


def walk(estimator, key, steps):
    """The keys, positions and estimates of a walk, and the last state."""
    state, trail = estimator.init(key, jnp.asarray(WHERE)), []
    compiled = jax.jit(lambda k, s, x: estimator.estimate(k, s, x))
    for t in range(steps):
        k, position = jax.random.fold_in(key, t), jnp.asarray(WHERE) + 0.1 * t
        estimate, state = compiled(k, state, position)
        trail.append((k, position, estimate))
    return trail, state


AVERAGES = [("dense", 0.7, 1), ("dense", "all", 3), ("diagonal", "all", 1), ("scalar", 0.7, 3)]


@pytest.mark.slow
@pytest.mark.parametrize("structure, average, refresh", AVERAGES)
def test_averages_by_hand(structure, average, refresh, key, x64):
    """Divided by 1 - decay^k, as an average that starts at zero must be; or the plain mean."""
    gradient = ex.Minibatch(curved(), 4)
    estimator = ScoreCovariance(gradient, structure, average=average, refresh=refresh)
    seen, total, decay = [], 0.0, 0.7
    for t, (k, position, estimate) in enumerate(walk(estimator, key, 6)[0]):
        if t % refresh == 0:
            batch = gradient.per_example_gradients(k, None, position)
            seen.append(gradient.noise_factor * np.cov(np.asarray(batch).T))
            total = decay * total + (1.0 - decay) * seen[-1]
        expected = np.mean(seen, axis=0) if average == "all" else total / (1.0 - decay ** len(seen))
        found = matrix(estimate.covariance, WHERE)
        np.testing.assert_allclose(found, STRUCTURES[structure](expected), rtol=1e-10, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("rows", ["batch", "all"])
@pytest.mark.parametrize("structure", STRUCTURES)
def test_the_covariance_is_kept_and_renewed(structure, rows, key, x64):
    gradient = ex.Minibatch(curved(), 4)
    trail, _ = walk(ScoreCovariance(gradient, structure, rows=rows, refresh=3), key, 5)
    always, _ = walk(ScoreCovariance(gradient, structure, rows=rows), key, 5)
    found = [matrix(estimate.covariance, WHERE) for *_, estimate in trail]
    fresh = [matrix(estimate.covariance, WHERE) for *_, estimate in always]
    for t, source in enumerate([0, 0, 0, 3, 3]):
        np.testing.assert_allclose(found[t], fresh[source], rtol=1e-10, atol=1e-12)
    assert np.abs(fresh[1] - fresh[0]).max() > 0.1 < np.abs(fresh[3] - fresh[0]).max()
    more = len(X) if rows == "all" else 0
    counts = [int(estimate.evaluations) for *_, estimate in trail]
    assert counts == [4 + more, 4, 4, 4 + more, 4]


@pytest.mark.slow
@pytest.mark.parametrize("refresh", [1, 2])
@pytest.mark.parametrize("batching", [None, ShuffledEpochs()])
def test_the_gradient_is_that_of_the_inner_estimator(batching, refresh, key, x64):
    inner = ex.Minibatch(curved(), 4, batching=batching)
    trail, state = walk(ScoreCovariance(inner, refresh=refresh), key, 4)
    plain = inner.init(key, jnp.asarray(WHERE))
    for k, position, estimate in trail:
        expected, plain = inner.estimate(k, plain, position)
        np.testing.assert_allclose(estimate.gradient, expected.gradient, rtol=1e-12)
        np.testing.assert_allclose(estimate.potential, expected.potential, rtol=1e-12)
    jax.tree.map(np.testing.assert_array_equal, state.gradient, plain)


@pytest.mark.slow
def test_low_rank_is_dense(key, x64):
    """The same map and the same functions of it, on a tree."""
    gradient = ex.Minibatch(ex.Posterior(log_prior, log_likelihood, SCORES[:, 0]), 3)
    position = ex.tree.freeze(tree_positions("float64")["network"])
    probe = ex.normal_like(key, position)

    @eqx.filter_jit
    def applied(estimator):
        estimate, _ = estimator.estimate(key, estimator.init(key, position), position)
        return estimate.covariance.mv(probe), estimate.covariance.spectral(jnp.tanh, probe)

    found = [applied(ScoreCovariance(gradient, structure)) for structure in ("low rank", "dense")]
    for a, b in zip(*map(jax.tree.leaves, found), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-10)


OPTIONS = [
    {},
    {"structure": "low rank", "refresh": 2},
    {"structure": "dense", "average": 0.9, "refresh": 2},
    {"structure": "diagonal", "average": "all", "rows": "all"},
    {"structure": "scalar", "rows": "all", "refresh": 2},
]


@pytest.mark.slow
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_state_keeps_its_type_and_promotes_nothing(options, dtype, key, x64):
    """In double precision, with data in double precision: the position's dtype must win."""
    posterior = ex.Posterior(log_prior, log_likelihood, np.linspace(-1.0, 2.0, 20))
    estimator = ScoreCovariance(ex.Minibatch(posterior, 4), **options)
    for name in ("dict", "network"):
        position = ex.tree.freeze(tree_positions(dtype)[name])
        state = estimator.init(key, position)
        estimate, after = jax.eval_shape(estimator.estimate, key, state, position)
        assert jax.eval_shape(lambda s: s, state) == after
        noise = jax.eval_shape(lambda e, p: e.covariance.sqrt_mv(p), estimate, position)
        assert {leaf.dtype for leaf in jax.tree.leaves(noise)} == {jnp.dtype(dtype)}


@pytest.mark.slow
@pytest.mark.parametrize(
    "n, d, rows", [(4, 4, "batch"), (4, 5, "batch"), (2, 8, "all"), (2, 9, "all")]
)
def test_low_rank_is_a_matrix_where_that_is_no_larger(n, d, rows, key, x64):
    data = np.random.default_rng(1).normal(size=(8, d))
    estimator = ScoreCovariance(ex.Minibatch(linear(data), n), rows=rows, refresh=2)
    point = jnp.zeros(d)
    estimate, _ = estimator.estimate(key, estimator.init(key, point), point)
    scores_kept = n if rows == "batch" else len(data)
    assert isinstance(estimate.covariance, ex.LowRank if scores_kept < d else Dense)
    dense = ScoreCovariance(estimator.gradient, "dense", rows=rows, refresh=2)
    expected, _ = dense.estimate(key, dense.init(key, point), point)
    found = (matrix(e.covariance, np.zeros(d)) for e in (estimate, expected))
    np.testing.assert_allclose(*found, rtol=1e-10, atol=1e-10)


# --- Cost -----------------------------------------------------------------------------------


class Counter:
    """How often the likelihood of one example is computed, as the compiled program runs."""

    def __init__(self):
        self.count = 0

    def add(self, _):
        self.count += 1

    def posterior(self):
        def likelihood(w, x):
            jax.debug.callback(self.add, w @ x)
            return -jnp.cosh(w @ x)

        return ex.Posterior(lambda w: -0.5 * jnp.sum(w**2), likelihood, X.astype(np.float32))


def evaluations_of_chains(key, chains=3, steps=20, **options) -> tuple[int, int]:
    """Computed, and as counted by the estimates, in chains mapped together."""
    counter = Counter()
    estimator = ScoreCovariance(ex.Minibatch(counter.posterior(), 4), **options)

    @jax.jit
    @jax.vmap
    def estimate(key, state, position):
        estimate, state = estimator.estimate(key, state, position)
        return estimate.evaluations, state

    keys = jax.random.split(key, chains)
    positions = jax.random.normal(key, (chains, 3))
    state = jax.vmap(estimator.init)(keys, positions)
    jax.effects_barrier()
    counter.count, counted = 0, 0
    for _ in range(steps):
        cost, state = estimate(keys, state, positions)
        counted += int(jnp.sum(cost))
    jax.effects_barrier()
    return counter.count, counted


@pytest.mark.slow
def test_chains_together_measure_only_when_it_is_due(key):
    options = {"structure": "diagonal", "rows": "all", "refresh": 10}
    due = 3 * (20 * 4 + 2 * 12)
    assert evaluations_of_chains(key, **options) == (due, due)
    with mock.patch.object(control_flow, "_in_any_chain", lambda flag: flag):
        computed, _ = evaluations_of_chains(key, **options)
    assert computed > 3 * 20 * (4 + 12) - 1, "a plain cond computes both branches"


@pytest.mark.parametrize("refresh", [1, 10])
def test_a_batch_is_passed_once(refresh, key):
    assert evaluations_of_chains(key, refresh=refresh) == (3 * 20 * 4, 3 * 20 * 4)


def test_the_compiled_step_of_many_chains_has_a_condition(key):
    estimator = ScoreCovariance(ex.Minibatch(curved(), 4), "dense", refresh=10)
    position = jnp.asarray(WHERE, jnp.float32)
    keys = jax.random.split(key, 2)
    state = jax.vmap(estimator.init, (0, None))(keys, position)
    step = jax.jit(jax.vmap(lambda k, s: estimator.estimate(k, s, position)))
    assert " conditional(" in str(step.lower(keys, state).compile().as_text())


@pytest.mark.slow
def test_chains_out_of_step_keep_their_own_periods(key, x64):
    """One that another makes measure is none the wiser."""
    estimator = ScoreCovariance(ex.Minibatch(curved(), 4), "diagonal", average=0.5, refresh=3)
    early, late = walk(estimator, key, 1)[1], walk(estimator, key, 3)[1]
    both = jax.tree.map(lambda a, b: jnp.stack([a, b]), early, late)
    keys, position = jax.random.split(key), jnp.asarray(WHERE)
    estimate = jax.jit(lambda k, s: estimator.estimate(k, s, position))
    together, states = jax.vmap(estimate)(keys, both)
    for i, state in enumerate([early, late]):
        alone, after = estimate(keys[i], state)
        found = jax.tree.map(lambda x, i=i: x[i], (together.covariance, states.weight))
        expected = alone.covariance, after.weight
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-12), found, expected)


def test_low_rank_needs_no_square_matrix():
    """A compensated step in a million dimensions: n d numbers, where d^2 would be 4 TB."""
    d, n = 1_000_000, 16
    x = np.zeros((32, 1), np.float32)
    posterior = ex.Posterior(
        lambda w: -0.5 * jnp.sum(w**2), lambda w, x: jnp.sum(jnp.tanh(w * x)), x
    )
    kernel = ex.sgld(ScoreCovariance(ex.Minibatch(posterior, n)), 1e-3, compensate=True)
    key, position = jax.random.key(0), jax.ShapeDtypeStruct((d,), jnp.float32)
    state = jax.eval_shape(kernel.init, key, position)
    memory = jax.jit(lambda k, s: kernel.step(k, s)).lower(key, state).compile().memory_analysis()
    assert memory is not None and memory.temp_size_in_bytes < 10 * n * d * 4


def test_all_rows_need_the_memory_of_a_chunk():
    rows, d, chunk = 4096, 1000, 16
    posterior = ex.Posterior(
        lambda w: -0.5 * w @ w, lambda w, x: -jnp.cosh(x @ w), np.ones((rows, d))
    )
    estimator = ScoreCovariance(ex.Minibatch(posterior, 2), "diagonal", rows="all", chunk=chunk)
    key, position = jax.random.key(0), jax.ShapeDtypeStruct((d,), jnp.float32)
    state = jax.eval_shape(estimator.init, key, position)
    estimate = jax.jit(lambda k, s, x: estimator.estimate(k, s, x))
    memory = estimate.lower(key, state, position).compile().memory_analysis()
    assert memory is not None and memory.temp_size_in_bytes < 10 * chunk * d * 4


@pytest.mark.slow
@pytest.mark.parametrize("options", OPTIONS)
def test_one_program_serves_every_step(options, key):
    traces = []

    @eqx.filter_jit
    def estimate(estimator, key, state):
        traces.append(1)
        return estimator.estimate(key, state, jnp.asarray(WHERE, jnp.float32))

    gradient = ex.Minibatch(curved(), 4)
    estimator = ScoreCovariance(gradient, **options)
    state = estimator.init(key, jnp.asarray(WHERE, jnp.float32))
    for _ in range(3):
        _, state = estimate(estimator, key, state)
    if "average" in options:
        other = ScoreCovariance(gradient, **options | {"average": 0.5})
        estimate(other, key, state)
    assert len(traces) == 1


# --- Errors ---------------------------------------------------------------------------------


def batch(n=SIZE):
    return ex.Minibatch(linear(), n)


def full():
    return ex.FullGradient(linear())


ERRORS = {
    "no scores": (TypeError, lambda: ScoreCovariance(full()), r"FullGradient does not.*Try ex\.Mi"),
    "no estimator": (TypeError, lambda: ScoreCovariance(linear()), "must be a gradient estimator"),
    "no batches": (TypeError, lambda: ScoreCovariance(full(), rows="all"), "Try rows='batch'"),
    "batch of one": (ValueError, lambda: ScoreCovariance(batch(1)), "batch_size must be at least"),
    "one example": (
        ValueError,
        lambda: ScoreCovariance(ex.Minibatch(linear(SCORES[:1]), 1), rows="all"),
        "one example has no covariance",
    ),
    "structure": (ValueError, lambda: ScoreCovariance(batch(), "full"), "structure must be one of"),
    "rows": (ValueError, lambda: ScoreCovariance(batch(), rows="some"), "rows must be one of"),
    "low rank": (
        ValueError,
        lambda: ScoreCovariance(batch(), average=0.9),
        "add n to the rank.*Try structure='diagonal'",
    ),
    "decay": (ValueError, lambda: ScoreCovariance(batch(), "dense", average=1.0), "try average='a"),
    "average": (ValueError, lambda: ScoreCovariance(batch(), "dense", average="some"), "or 'all'"),
    "a flag": (TypeError, lambda: ScoreCovariance(batch(), "dense", average=True), "not True"),
    "refresh": (ValueError, lambda: ScoreCovariance(batch(), refresh=0), "refresh must be at"),
    "a fraction": (TypeError, lambda: ScoreCovariance(batch(), chunk=0.5), "chunk must be an int"),
}  # fmt: skip


@pytest.mark.parametrize("name", ERRORS)
def test_what_cannot_be_is_refused(name):
    error, call, message = ERRORS[name]
    with pytest.raises(error, match=message):
        call()


def test_a_batch_of_one_will_do_where_all_rows_are_measured(key):
    estimator = ScoreCovariance(batch(1), "dense", rows="all")
    point = jnp.asarray(POINT, jnp.float32)
    estimate, _ = estimator.estimate(key, estimator.init(key, point), point)
    np.testing.assert_allclose(matrix(estimate.covariance), 3.0 * COVARIANCE[False], rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("size", [4, 6])  # a root of as many rows as dimensions is kept as a matrix
def test_a_kept_root_needs_batches_of_one_size(size, key):
    rows = np.random.default_rng(1).normal(size=(12, 5)).astype(np.float32)
    gradient = ScoreCovariance(ex.Minibatch(linear(rows), 3), refresh=2)
    kernel = untyped(ex.sgld(gradient, 0.01, compensate=True, clip=True))
    state = kernel.init(key, jnp.zeros(5))
    kernel.step(key, state, batch=rows[:3])
    with pytest.raises(ValueError, match="batches of one size, or use refresh=1"):
        kernel.step(key, state, batch=rows[:size])


@pytest.mark.parametrize("replace", [True, False])
def test_an_estimate_with_scores_is_the_estimate(replace, x64):
    """The same key, batch, potential and gradient; and the scores are the batch's."""
    gradient, point = ex.Minibatch(linear(), SIZE, batching=replace_rows(replace)), jnp.array(POINT)
    key, state = jax.random.key(4), gradient.init(jax.random.key(0), jnp.array(POINT))
    plain, _ = gradient.estimate(key, state, point)
    found, rows, _ = gradient.estimate_with_scores(key, state, point)
    np.testing.assert_allclose(found.gradient, plain.gradient, rtol=1e-12)
    np.testing.assert_allclose(found.potential, plain.potential, rtol=1e-12)
    np.testing.assert_allclose(plain.gradient, POINT - N * rows.mean(axis=0), rtol=1e-12)


def replace_rows(replace):
    return ex.data.WithReplacement() if replace else ex.data.WithoutReplacement()


@pytest.mark.parametrize("rows, more", [("batch", 0), ("all", N)])
def test_scores_of_the_batch_cost_nothing_more(rows, more, x64):
    """And those of all rows a pass over the data, in chains where they are due alone."""
    point, key = jnp.array(POINT), jax.random.key(0)
    gradient = ex.Minibatch(linear(), SIZE)
    estimator = ScoreCovariance(gradient, "dense", rows=rows, refresh=2)
    first = estimator.init(key, point)
    _, second = estimator.estimate(key, first, point)
    both = jax.tree.map(lambda a, b: jnp.stack([a, b]), first, second)
    found = jax.vmap(lambda state: estimator.estimate(key, state, point)[0].evaluations)(both)
    assert found.tolist() == [SIZE + more, SIZE]
