"""Batches from blocks: which rows, how noisy, and the same run however it is cut."""

import itertools
from unittest import mock

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ergodax as ex
from ergodax.data.block import FOR_EVER, Block, Streamed, blocks_of, errors_of_reading, replaced
from ergodax.driver.progress import Clock

KEY = jax.random.key(5)


def log_prior(w):
    return -0.5 * jnp.sum(w**2)


def linear(w, f):
    """The score of an example is the example itself."""
    return f @ w


def logistic(w, example):
    x, y = example
    return y * (x @ w) - jax.nn.softplus(x @ w)


@pytest.fixture
def files(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(607, 3)).astype("f4")
    np.save(tmp_path / "X.npy", x)
    np.save(tmp_path / "y.npy", (x[:, 0] + rng.normal(size=607) > 0).astype("u1"))
    return tmp_path / "X.npy", tmp_path / "y.npy"


def posterior_of(files, **options):
    return ex.Posterior(
        log_prior, logistic, ex.data.npy(*files, dtype=(None, "float32"), **options)
    )


def resident(files):
    x, y = (np.load(path) for path in files)
    return ex.Posterior(log_prior, logistic, (x, y.astype("f4")))


def first(scheme: Streamed, key=KEY) -> Block:
    return eqx.filter_jit(scheme.init)(key, scheme.source.num_rows)


def next_block(block: Block) -> Block:
    """What the driver does when the batches of a block are used up."""
    number = block.number + 1
    rows = jax.tree.map(jnp.asarray, block.source.read(np.asarray(block.order), int(number)))
    return Block(rows, block.order, number, block.used * 0, block.batches, block.source)


def all_batches(scheme: Streamed, block: Block) -> np.ndarray:
    """The places in the block that its batches are from."""

    def one(block, _):
        places, block = scheme.draw(KEY, block, scheme.source.num_rows, scheme.batch_size)
        return block, places

    return np.asarray(jax.lax.scan(one, block, None, block.batches)[1])


# Which rows


@pytest.mark.parametrize(("block_rows", "n"), [(100, 20), (300, 7), (605, 100)])
def test_the_batches_of_a_pass_are_disjoint(block_rows, n, files):
    scheme = Streamed(posterior_of(files, block_rows=block_rows, passes=3).data, n)
    block, each = first(scheme), block_rows // n
    assert block.batches == 3 * each
    passes = all_batches(scheme, block).reshape(3, each * n)
    for one in passes:
        assert len(set(one)) == each * n and one.min() >= 0 and one.max() < block_rows
    after = all_batches(scheme, next_block(block)).reshape(3, each * n)
    orders = {tuple(one) for one in [*passes, *after]}
    assert len(orders) == 6, "each pass over each block has an order of its own"


def test_a_block_that_is_not_replaced_goes_on(files):
    """A loop that forgets to put the next block in gets further passes over this one."""
    scheme = Streamed(posterior_of(files, block_rows=100).data, 50)
    block = eqx.tree_at(lambda b: b.used, first(scheme), jnp.int32(7))
    assert set(np.asarray(scheme.draw(KEY, block, 607, 50)[0])) <= set(range(100))


def test_a_block_of_all_rows_is_never_due(files):
    assert first(Streamed(posterior_of(files).data, 50)).batches == FOR_EVER


def test_chains_have_blocks_of_their_own(files):
    scheme = Streamed(posterior_of(files, block_rows=100, page_rows=5).data, 50)
    blocks = eqx.filter_jit(jax.vmap(scheme.init, in_axes=(0, None)))(jax.random.split(KEY, 3), 607)
    for chain in range(3):
        rows = scheme.source.read(np.asarray(blocks.order[chain]), 0)
        np.testing.assert_array_equal(blocks.rows[0][chain], rows[0])
    assert len({tuple(x[:, 0]) for x in np.asarray(blocks.rows[0])}) == 3


# How noisy: exact, over every order of the pages


def every_order(lengths, block_rows):
    """Every circle of pages, each as likely as the others."""
    for pages in itertools.permutations(range(len(lengths))):
        starts = [0]
        if len(set(lengths)) > 1 or block_rows % lengths[0]:
            starts = range(sum(lengths))
        for start in starts:
            yield np.array(pages, np.uint32), np.cumsum(np.array(lengths)[list(pages)]), start


def every_block(source, number=0):
    """The block with this number under every order."""
    lengths = source.pages.lengths.tolist()
    for circle in every_order(lengths, source.block_rows):
        with mock.patch.object(source.pages, "circle", lambda *_, c=circle: c):
            yield source.read(np.zeros(2, np.uint32), number)


SCORES = np.sort([0.0, 0.5, 1.0, 0.2, 4.0, 5.0, 4.5, 4.2, -3.0, -2.0, -2.5, 9.0])[:, None]


def design_effect(scores, page):
    """1 + (p - 1) rho, rho Cochran's intraclass correlation of the pages."""
    n, centred = len(scores), scores - scores.mean()
    total = (centred**2).sum() / (n - 1)
    pages = centred.reshape(-1, page)
    products = (pages.sum(axis=1) ** 2).sum() - (centred**2).sum()
    rho = products / ((page - 1) * (n - 1) * total) if page > 1 else 0.0
    return 1.0 + (page - 1) * rho


@pytest.mark.slow
@pytest.mark.parametrize(("page", "passes"), [(1, 1), (2, 1), (3, 2), (2, 3)])
def test_the_noise_of_a_block(page, passes, tmp_path, x64):
    """The mean over all batches of a block, against the formula in `Streamed`."""
    scores = SCORES if page > 1 else SCORES[:6]
    n_all, block_rows, size = len(scores), 6 if page > 1 else 3, 3
    np.save(tmp_path / "f.npy", scores)
    source = ex.data.npy(tmp_path / "f.npy", block_rows=block_rows, page_rows=page, passes=passes)
    gradient = ex.Minibatch(ex.Posterior(log_prior, linear, source), size)
    start = first(Streamed(source, size))

    def mean_of(rows):
        """Of the gradients of all batches of the block with these rows."""
        block = eqx.tree_at(lambda b: b.rows, start, rows)

        def one(block, _):
            estimate, block = gradient.estimate(KEY, block, jnp.zeros(1))
            return block, estimate.gradient

        return jnp.mean(jax.lax.scan(one, block, None, block.batches)[1])

    means = np.asarray(jax.jit(jax.vmap(mean_of))(np.stack(list(every_block(source)))))
    np.testing.assert_allclose(means.mean(), -scores.sum(), rtol=1e-12)
    apart = (n_all - 1) / (n_all - page)
    independent = n_all * (n_all - block_rows) / block_rows * scores.var(ddof=1)
    effect = design_effect(scores, page) * apart
    np.testing.assert_allclose(means.var(), independent * effect, rtol=1e-9)
    assert page == 1 or effect > 1.5, "a test of sorted data"
    # In the slow limit: of independent batches of size / (passes * effect) rows.
    steps, smaller = passes * block_rows // size, size / (passes * effect)
    slow = (n_all - block_rows) * n_all / smaller * scores.var(ddof=1)
    np.testing.assert_allclose(steps * means.var(), slow, rtol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("page", [1, 2])
def test_the_noise_of_one_batch(page, tmp_path, x64):
    """Over every block and every n of its rows: that of n of N for rows in random order.

    With pages the formula is the law of total variance; it is noise_factor S for page = 1.
    """
    scores, block_rows, size = SCORES[3:9], 4, 2
    n_all = len(scores)
    np.save(tmp_path / "f.npy", scores)
    source = ex.data.npy(tmp_path / "f.npy", block_rows=block_rows, page_rows=page)
    gradient = ex.Minibatch(ex.Posterior(log_prior, linear, source), size)
    estimates, spreads, between = [], [], []
    for rows in every_block(source):
        between.append(rows.mean())
        for batch in itertools.combinations(rows[:, 0], size):
            estimates.append(-n_all * np.mean(batch))
            spreads.append(np.var(batch, ddof=1))
    np.testing.assert_allclose(np.mean(estimates), -scores.sum(), rtol=1e-12)
    inside = block_rows / (block_rows - 1) * (scores.var() - np.var(between))
    total = np.var(between) + (1 / size - 1 / block_rows) * inside
    np.testing.assert_allclose(np.var(estimates), n_all**2 * total, rtol=1e-9)
    by_factor = gradient.noise_factor * np.mean(spreads)
    assert (page == 1) == np.isclose(np.var(estimates), by_factor, rtol=1e-9)
    assert gradient.noise_factor == n_all * (n_all - size) / size


@pytest.mark.parametrize("page", [2, 3])
def test_blocks_are_unbiased_where_pages_are_cut(page, tmp_path):
    """7 rows in pages of 2 or 3, 4 of them a block, over every order and every start."""
    np.save(tmp_path / "f.npy", SCORES[:7])
    source = ex.data.npy(tmp_path / "f.npy", block_rows=4, page_rows=page)
    means = [rows.mean() for rows in every_block(source)]
    np.testing.assert_allclose(np.mean(means), SCORES[:7].mean(), rtol=1e-6)


def test_over_an_epoch_the_noise_cancels(tmp_path):
    np.save(tmp_path / "f.npy", SCORES.astype("f4"))
    source = ex.data.npy(tmp_path / "f.npy", block_rows=4, page_rows=2)
    order = np.array([1, 2], np.uint32)
    means = [source.read(order, number).mean() for number in range(3)]
    np.testing.assert_allclose(np.mean(means), SCORES.mean(), rtol=1e-6)
    assert np.std(means) > 0.1


# What is computed


@pytest.mark.slow
def test_estimators_agree_with_resident_data(files):
    """With a block of all rows in one batch every estimator is the exact gradient."""
    streamed, kept = posterior_of(files), resident(files)
    point, centre = jnp.array([0.3, -0.2, 0.1]), jnp.array([0.5, 0.0, 0.0])
    exact = kept.gradient(point)
    for make in (
        lambda p: ex.Minibatch(p, 607),
        lambda p: ex.ControlVariate(p, 607, centre),
        lambda p: ex.ControlVariate(p, 607, centre, order=2),
    ):
        gradient = make(streamed)
        estimate, _ = gradient.estimate(KEY, gradient.init(KEY, point), point)
        np.testing.assert_allclose(estimate.gradient, exact, rtol=2e-5, atol=2e-4)
        np.testing.assert_allclose(estimate.potential, kept.potential(point), rtol=1e-5)


@pytest.mark.parametrize("order", [1, 2])
def test_the_expansion_is_that_of_resident_data(order, files):
    with mock.patch("ergodax.data.arrays.BYTES", 1300):  # seven parts, the last one shorter
        streamed = ex.ControlVariate(posterior_of(files), 10, jnp.ones(3), order=order)
    kept = ex.ControlVariate(resident(files), 10, jnp.ones(3), order=order)
    pairs = zip(*(jax.tree.leaves(g.expansion) for g in (streamed, kept)), strict=True)
    for one, other in pairs:
        assert one.dtype == other.dtype and not getattr(one, "weak_type", False)
        np.testing.assert_allclose(one, other, rtol=1e-5)


def test_the_mode_is_that_of_resident_data(files):
    streamed = ex.find_mode(posterior_of(files), jnp.zeros(3))
    kept = ex.find_mode(resident(files), jnp.zeros(3))
    assert bool(streamed.converged) and int(streamed.evaluations) < 30
    np.testing.assert_allclose(streamed.position, kept.position, atol=1e-3)
    np.testing.assert_allclose(streamed.potential, kept.potential, rtol=1e-6)
    assert not ex.find_mode(posterior_of(files), jnp.zeros(3), max_iterations=2).converged
    assert jax.tree.map(lambda x: x.dtype, streamed) == jax.tree.map(lambda x: x.dtype, kept)


@pytest.mark.slow
def test_the_covariance_of_scores_leaves_the_block_alone(files):
    posterior, point = posterior_of(files, block_rows=100), jnp.zeros(3)
    every, some = (
        ex.ScoreCovariance(ex.Minibatch(posterior, 20), "dense", refresh=k) for k in (1, 2)
    )
    states = [g.init(KEY, point) for g in (every, some)]
    for _ in range(3):
        pairs = [g.estimate(KEY, s, point) for g, s in zip((every, some), states, strict=True)]
        states = [state for _, state in pairs]
        a, b = (estimate.gradient for estimate, _ in pairs)
        np.testing.assert_allclose(a, b, rtol=1e-5)
    one, other = (state.gradient for state in states)
    assert int(one.used) == int(other.used) == 3
    np.testing.assert_array_equal(one.rows[0], other.rows[0])


def test_a_branch_does_not_copy_the_block(files):
    """With refresh > 1 the covariance is measured in a branch; no branch returns the rows."""
    posterior, point = posterior_of(files, block_rows=500), jnp.zeros(3)
    gradient = ex.ScoreCovariance(ex.Minibatch(posterior, 20), "diagonal", refresh=3)
    state = gradient.init(KEY, point)
    program = jax.make_jaxpr(lambda s: gradient.estimate(KEY, s, point))(state)
    branches = [e for e in program.jaxpr.eqns if e.primitive.name == "cond"]
    returned: list = [v.aval for e in branches for v in e.outvars]
    assert returned and max(x.size for x in returned) < 500


# Whole runs


def kernel_of(files, n=50, **options):
    return ex.sghmc(ex.Minibatch(posterior_of(files, **options), n), 1e-2, 5.0)


@pytest.mark.slow
@pytest.mark.parametrize("passes", [1, 3])
def test_a_run_is_the_loop_by_hand(passes, files):
    kernel = kernel_of(files, block_rows=100, page_rows=5, passes=passes)
    samples = ex.sample(kernel, jnp.zeros(3), 40, key=KEY, progress=False)
    key_init, key_run = jax.random.split(KEY)
    chain = jax.random.fold_in(key_run, 0)
    state = eqx.filter_jit(kernel.init)(jax.random.fold_in(key_init, 0), jnp.zeros(3))
    step = eqx.filter_jit(kernel.step)
    for t in range(40):
        (block,) = blocks_of(state)
        if int(block.used) == block.batches:
            state = replaced(state, lambda k, block: next_block(block))
        state, _ = step(jax.random.fold_in(chain, t), state)
        np.testing.assert_allclose(samples.position[0, t], state.position, rtol=1e-4, atol=1e-5)
    assert int(blocks_of(state)[0].number) == (40 * 50 - 1) // (100 * passes)


@pytest.mark.slow
def test_draws_do_not_depend_on_chunks(files):
    kernel = kernel_of(files, block_rows=200)
    options = {"key": KEY, "num_chains": 3, "burn_in": 7, "thin": 2, "progress": False}
    whole = ex.sample(kernel, jnp.zeros(3), 60, **options)
    with mock.patch.object(Clock, "steps", lambda self: 3):
        cut = ex.sample(kernel, jnp.zeros(3), 60, **options)
    np.testing.assert_array_equal(whole.position, cut.position)
    assert len(np.unique(whole.position[:, -1, 0])) == 3


def test_the_same_files_opened_again_share_a_program(files):
    traces = []

    @eqx.filter_jit
    def step(kernel, state):
        traces.append(1)
        return kernel.step(KEY, state)[0]

    for count, options in [(1, {}), (1, {}), (2, {"passes": 2})]:
        kernel = kernel_of(files, block_rows=100, **options)
        step(kernel, step(kernel, kernel.init(KEY, jnp.zeros(3))))
        assert len(traces) == count


@pytest.mark.slow
def test_a_stream_of_an_iterator_runs():
    x = np.random.default_rng(0).normal(size=(90, 3)).astype("f4")
    source = ex.data.stream(lambda: iter([x[:40], x[40:]]), num_rows=90, block_rows=30)
    kernel = ex.sgld(ex.Minibatch(ex.Posterior(log_prior, linear, source), 10), 1e-3)
    samples = ex.sample(kernel, jnp.zeros(3), 20, key=KEY, num_chains=2, progress=False)
    assert np.isfinite(samples.position).all()


@pytest.mark.slow
def test_noise_compensation_runs_on_a_stream(files):
    posterior = posterior_of(files, block_rows=300)
    inner = ex.ControlVariate(posterior, 50, ex.find_mode(posterior, jnp.zeros(3)))
    for structure in ("low rank", "diagonal"):
        kernel = ex.nogin(ex.ScoreCovariance(inner, structure), 0.05, 5.0)
        samples = ex.sample(kernel, jnp.zeros(3), 30, key=KEY, progress=False)
        assert np.isfinite(samples.position).all()


# What is refused


def test_what_needs_all_data_says_so(files):
    posterior, point = posterior_of(files), jnp.zeros(3)
    for make in (
        lambda: ex.FullGradient(posterior),
        lambda: ex.SVRG(posterior, 50, period=10),
        lambda: ex.SAGA(posterior, 50),
        lambda: ex.ScoreCovariance(ex.Minibatch(posterior, 50), rows="all"),
        lambda: posterior.potential(point),
        lambda: posterior.gradient(point),
    ):
        with pytest.raises(TypeError, match="needs all data in memory, but .* a source"):
            make()


def test_swaps_of_replicas_say_so(files):
    sampler = ex.replica_exchange(
        ex.sgld, ex.Minibatch(posterior_of(files), 50), 1e-3, temperatures=[1.0, 2.0]
    )
    with pytest.raises(TypeError, match="needs all data in memory"):
        ex.sample(sampler, jnp.zeros(3), 10, key=KEY, progress=False)


def test_bad_choices_say_why(files):
    posterior = posterior_of(files, block_rows=100)
    with pytest.raises(ValueError, match="replace=True can't be had with a source"):
        ex.Minibatch(posterior, 10, replace=True)
    with pytest.raises(ValueError, match="batching=.* can't be had with a source"):
        ex.Minibatch(posterior, 10, batching=ex.data.ShuffledEpochs())
    with pytest.raises(ValueError, match="larger than a block of the source, which has 100 rows"):
        ex.Minibatch(posterior, 200)
    with pytest.raises(TypeError, match="one source of all of them"):
        ex.Posterior(log_prior, logistic, (ex.data.npy(files[0]), ex.data.npy(files[1])))
    with pytest.raises(ValueError, match="can't be evaluated at this position"):
        ex.Minibatch(posterior, 10).init(KEY, jnp.zeros(4))


def test_an_error_of_the_first_read_is_raised_as_itself(files):
    x = np.load(files[0])
    x[3, 0] = np.nan
    np.save(files[0], x)
    scheme = Streamed(posterior_of(files).data, 50)
    with pytest.raises(ValueError, match="row 3"), errors_of_reading():
        jax.block_until_ready(first(scheme))
