"""What every kernel promises.

What tracing alone can tell is not computed. What is computed takes one program a kernel for `init`
and one for `step`, and one more for chains side by side; they are made once for this file.
"""

import functools
import inspect

import cloudpickle
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ergodax as ex
from conformance.positions import START, minibatch, tree_positions
from conformance.registry import KERNELS, H
from conformance.run import Drawing, drawing, numbers
from ergodax.integrator.hamiltonian import HamiltonianKernel
from ergodax.integrator.stepper import Stepper

WRAPPED = {
    "accumulate": lambda h: ex.online.accumulate(
        ex.sgld(minibatch(), h), after=1, every=2, moments=ex.online.Moments()
    ),
    "accumulate over cyclical": lambda h: ex.online.accumulate(
        KERNELS["cyclical, resampled"](h), every=2, moments=ex.online.Moments()
    ),
    "sghmc, resampled now and then": lambda h: ex.sghmc(minibatch(), h, resample_every=2),
}
ALL = KERNELS | WRAPPED
# Each sampler, estimator and wrapper once; what combines them in other ways is slow.
ONE_OF_EACH = {
    "sgld", "sgld, shuffled epochs", "sgld, control variate", "sgld, svrg", "sgld, saga",
    "sghmc, averaged scores", "sghmc, stratified", "sghmc, compensated", "langevin, BAOAB", "sgnht",
    "sms_ubu", "sa_sgld", "samadams", "barker", "lattice_random_walk", "microcanonical", "scir",
    "constant_sgd", "shampoo_sgld",
    "splitting, thermostat", "psgld", "sgfs", "sgrld", "sgrhmc", "nogin", "msgld", "ccadl",
    "ccadl, splitting", "hmc",
    "split hmc", "rmhmc", "recipe, dense diffusion", "cyclical, resampled", "replica exchange",
    "confidence", "austerity", "firefly", "tuna", "delayed acceptance, hmc", "accumulate",
}  # fmt: skip


def rows(names):
    """The names, those of further combinations marked as slow."""
    return [n if n in ONE_OF_EACH else pytest.param(n, marks=pytest.mark.slow) for n in names]


@functools.cache
def programs(name):
    """A kernel, and its two methods as `jax.jit` compiles them."""
    kernel = ALL[name](H)
    return kernel, jax.jit(kernel.init), jax.jit(kernel.step)


@functools.cache
def two_steps(name, seed):
    """The states before and after two steps from a vector, and their Infos."""
    _, init, step = programs(name)
    keys = jax.random.split(jax.random.key(seed), 3)
    start = init(keys[0], tree_positions()["vector"])
    one, first = step(keys[1], start)
    two, second = step(keys[2], one)
    return start, one, two, (first, second)


def of_types(tree):
    """Structure, shapes, dtypes and weak types of the arrays in a tree: what a scan compares."""
    arrays = eqx.filter(tree, lambda x: hasattr(x, "dtype"))
    return jax.tree.structure(arrays), [
        (x.shape, str(x.dtype), getattr(x, "weak_type", False)) for x in jax.tree.leaves(arrays)
    ]


def traced(kernel, position):
    """The states before and after a step, and its Info: shapes and dtypes alone."""
    keys = jax.random.split(jax.random.key(0))
    before = eqx.filter_eval_shape(kernel.init, keys[0], position)
    return before, *jax.eval_shape(kernel.step, keys[1], before)


@pytest.mark.parametrize("name", KERNELS)
def test_signature(name):
    kernel = KERNELS[name](H)
    assert isinstance(kernel, ex.Kernel)
    assert list(inspect.signature(kernel.init).parameters) == ["key", "position"]
    assert list(inspect.signature(kernel.step).parameters) == ["key", "state", "batch"]
    public = {name for name in dir(type(kernel)) if not name.startswith("_")}
    methods = {name for name in public if callable(getattr(type(kernel), name))}
    bases = [base for base in (Stepper, HamiltonianKernel) if isinstance(kernel, base)]
    parts = set().union(*(base.__abstractmethods__ for base in bases))  # what they are made of
    assert methods - parts == {"init", "step"}, "a kernel is these two methods and nothing else"


@pytest.mark.parametrize("name", rows(KERNELS))
def test_state_and_info(name):
    _, _, state, (first, info) = two_steps(name, 1)
    assert isinstance(state, ex.State) and isinstance(info, ex.Info)
    assert int(state.step) == 2
    for field, value in vars(info).items():
        assert value is None or (isinstance(value, jax.Array) and value.shape == ()), field
    assert bool(info.finite)
    assert int(first.evaluations) + int(info.evaluations) > 0
    assert 0.0 < float(info.step_size) <= H + 1e-6
    has_momentum = "momentum" in state.auxiliary or "hmc" in name
    assert (info.kinetic_temperature is not None) == has_momentum


@pytest.mark.parametrize("name", rows(KERNELS))
def test_chains_from_one_start_part_and_the_same_key_repeats(name):
    _, one, two, _ = two_steps(name, 1)
    _, other, another, _ = two_steps(name, 2)
    parted = (one.position != other.position) & (two.position != another.position)
    if "lattice" in name:  # chains on one lattice meet again and again
        assert (two.position != another.position).any()
    else:
        assert parted.all(), "every coordinate has noise of its own"
    again = two_steps.__wrapped__(name, 1)
    np.testing.assert_array_equal(two.position, again[2].position)


@pytest.mark.parametrize("name", rows(ALL))
def test_chains_mapped_in_different_phases_are_what_they_are_alone(name):
    """At step 0 something is due in every kernel that does it periodically, at step 1 nothing."""
    kernel, _, step = programs(name)
    early, late, _, _ = two_steps(name, 1)
    keys = jax.random.split(jax.random.key(3))
    states = jax.tree.map(lambda *x: jnp.stack(x), early, late)
    together = jax.jit(jax.vmap(kernel.step))(keys, states)
    for chain, state in enumerate((early, late)):
        alone = step(keys[chain], state)
        mapped = jax.tree.map(lambda x, c=chain: x[c], together)
        assert jax.tree.structure(alone) == jax.tree.structure(mapped)
        np.testing.assert_allclose(numbers(mapped), numbers(alone), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", rows(ALL))
def test_one_program_serves_every_step_size(name):
    """What a program is compiled for is all but the values of a kernel's arrays."""
    if name == "optax schedule":
        pytest.skip("a closure that optax makes anew each time")
    one, other = ALL[name](H), ALL[name](H / 2)
    assert of_types(one) == of_types(other)
    static = [eqx.filter(k, eqx.is_array, inverse=True) for k in (one, other)]
    assert jax.tree.leaves(static[0]) == jax.tree.leaves(static[1])
    assert jax.tree.structure(one) == jax.tree.structure(other)
    arrays = [jax.tree.leaves(eqx.filter(k, eqx.is_array)) for k in (one, other)]
    assert any((a != b).any() for a, b in zip(*arrays, strict=True)), "the step size is an array"


@pytest.mark.parametrize("name", rows(ALL))
def test_pickled(name):
    kernel = programs(name)[0]
    copy = cloudpickle.loads(cloudpickle.dumps(kernel))
    ours, theirs = (jax.tree.leaves(eqx.filter(k, eqx.is_array)) for k in (kernel, copy))
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(a, b)
    assert type(copy) is type(kernel)


@pytest.mark.parametrize("name", rows(KERNELS))
def test_any_tree_is_a_position_a_scan_takes_a_step_and_no_key_is_used_twice(name):
    """JAX's checker raises where a key is used twice; trees of other kinds are in tests/slow."""
    kernel = programs(name)[0]
    for kind in ("tuple", "network", "constrained"):
        position = tree_positions()[kind]
        with jax.debug_key_reuse(True):
            before, after, _ = traced(drawing(kernel), position)
        frozen = ex.tree.freeze(position)
        assert of_types(after) == of_types(before), kind
        assert jax.tree.structure(after.position) == jax.tree.structure(frozen), kind
        # What is not an array comes back as it was, so the user's own functions still work.
        ours, theirs = (
            jax.tree.leaves(eqx.filter(tree, lambda x: not hasattr(x, "shape")))
            for tree in (ex.tree.thaw(ex.tree.bare(after.position)), ex.tree.bare(position))
        )
        assert ours == theirs, kind


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", rows(KERNELS))
def test_the_dtype_of_the_position_is_kept(name, dtype, x64):
    """Also single precision where double is on: step sizes and masses must not promote it."""
    _, state, _ = traced(KERNELS[name](H), tree_positions(jnp.dtype(dtype))["dict"])
    moving = (state.position, state.auxiliary, state.estimate and state.estimate.gradient)
    assert {leaf.dtype.name for leaf in jax.tree.leaves(moving)} == {dtype}


def test_the_rows_have_every_name():
    assert set(ALL) >= ONE_OF_EACH


def test_the_positions_are_one_point():
    for kind, position in tree_positions().items():
        arrays = eqx.filter(position, eqx.is_array)
        np.testing.assert_array_equal(numbers(arrays), START.astype("f4"), err_msg=kind)


def test_every_kernel_with_noisy_gradients_is_one_whose_estimator_is_seen_to_draw():
    """Those without an estimator of gradients test by likelihoods, and draw rows themselves."""
    without = {"confidence", "austerity", "firefly", "tuna", "delayed acceptance", "split hmc"}
    estimators = (Drawing, ex.FullGradient)
    for name, make in KERNELS.items():
        leaves = jax.tree.leaves(drawing(make(H)), is_leaf=lambda x: isinstance(x, estimators))
        seen = any(isinstance(leaf, estimators) for leaf in leaves)
        assert seen or name.partition(",")[0] in without, name


def test_the_checker_sees_the_key_of_a_batch_used_for_the_noise_too():
    kernel = drawing(ex.msgld(ex.KnownCovariance(minibatch(), 2.0), H))

    class Careless(ex.GradientEstimator):
        target = kernel.gradient.target
        init = staticmethod(kernel.gradient.init)

        def estimate(self, key, state, position):
            estimate, state = kernel.gradient.estimate(key, state, position)
            noise = ex.normal_like(key, position)
            return eqx.tree_at(lambda e: e.gradient, estimate, noise), state

    careless = Careless()  # pyright: ignore[reportCallIssue]
    careless = eqx.tree_at(lambda k: k.gradient, kernel, careless)
    with jax.debug_key_reuse(True), pytest.raises(jax.errors.KeyReuseError):
        traced(careless, tree_positions()["vector"])


def test_the_checker_sees_a_key_used_twice():
    kernel = KERNELS["sgld"](H)

    class Careless:
        init = staticmethod(kernel.init)

        def step(self, key, state):
            state, info = kernel.step(key, state)
            noise = ex.normal_like(key, state.position)
            return eqx.tree_at(lambda s: s.position, state, noise), info

    with jax.debug_key_reuse(True), pytest.raises(jax.errors.KeyReuseError):
        traced(Careless(), tree_positions()["vector"])
