"""Small steps as one piece of machine code: the same numbers, and only where it can be done."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
from jax import lax
from jax.extend.core import jaxprs_in_params

import ergodax as ex
from ergodax.driver import compile as compiling
from ergodax.driver import cpu_fusion, executor, loop
from ergodax.driver.cpu_fusion import CALLS, KNOWN, fused, is_small
from ergodax.driver.loop import Way

KEY = jax.random.key(5)
X = jnp.linspace(0.1, 0.9, 6, dtype=jnp.float32)
N = jnp.arange(6, dtype=jnp.int32)
OTHER_NAMES = {  # of primitives that are called so in other versions of JAX, or not by name
    "checkpoint", "closed_call", "copy_p", "core_call", "custom_vjp_call", "jit", "pjit", "remat",
    "threefry2x32",
}  # fmt: skip

pytestmark = pytest.mark.skipif(
    not cpu_fusion.understood(), reason="this version of XLA does not take the hints on CPUs"
)


@jax.custom_jvp
def doubled(x):
    return 2.0 * x


doubled.defjvps(lambda tangent, result, x: 2.0 * tangent)


def elementwise(x, n):
    """Functions of single numbers."""
    real = [
        jnp.sin, jnp.cos, jnp.tan, jnp.sinh, jnp.cosh, jnp.tanh, jnp.exp, jnp.exp2, jnp.expm1,
        jnp.log, jnp.log1p, jnp.sqrt, lax.rsqrt, jnp.cbrt, lax.floor, lax.ceil, lax.round,
        jnp.sign, jnp.abs, lax.erf, lax.erfc, lax.erf_inv, lax.lgamma, jax.nn.sigmoid,
        jnp.isfinite, lax.neg, lax.stop_gradient, lambda a: a**3, jnp.square, doubled,
        lambda a: lax.reduce_precision(a, 8, 7), lax.optimization_barrier, jnp.copy,
        lambda a: lax.clamp(0.2, a, 0.8), lambda a: a.astype(jnp.int32),
    ]  # fmt: skip
    pairs = [
        jnp.add, jnp.subtract, jnp.multiply, jnp.divide, jnp.maximum, jnp.minimum, jnp.power,
        jnp.arctan2, lax.rem, lax.eq, lax.ne, lax.lt, lax.le, lax.gt, lax.ge,
    ]  # fmt: skip
    whole = [lax.bitwise_and, lax.bitwise_or, lax.bitwise_xor, lax.shift_left]
    whole += [lax.shift_right_logical, lax.shift_right_arithmetic]
    out = [f(x) for f in real] + [f(x, x[::-1]) for f in pairs] + [f(n, n[::-1]) for f in whole]
    return [*out, lax.bitwise_not(n), lax.bitcast_convert_type(x, jnp.uint32)]


def arrays(x, n):
    """Functions of arrays, and those that call others."""
    matrix = x.reshape(2, 3)
    out = [f(x) for f in (jnp.sum, jnp.max, jnp.min, jnp.prod, jnp.argmax, jnp.argmin, jnp.cumsum)]
    out += [jnp.all(x > 0.5), jnp.any(x > 0.5), jnp.where(x > 0.5, x, n), x[::-1], x[1:3]]
    out += [matrix @ x[:3], matrix.T, jnp.concatenate([x, x]), jnp.stack([x, x]), jnp.pad(x, 1)]
    out += [lax.dynamic_slice(x, (n[2],), (2,))]
    out += [x[n[::-1]], jnp.squeeze(x[:1]), x + jnp.arange(6)]
    out += [*jnp.split(x, 2), *lax.split(x, (2, 4)), *matrix]
    out += [jax.grad(lambda x: jnp.sum(x * x))(x), jnp.broadcast_to(x[0], (3,))]
    out += [lax.cond(x[0] > 0, jnp.sin, jnp.cos, x), jax.checkpoint(jnp.sin)(x)]
    out += [lax.scan(lambda c, v: (c + v, c), 0.0, x)[1]]
    return [*out, lax.while_loop(lambda v: v[0] < 10.0, lambda v: 2.0 * v, x)]


def random(x, n):
    """What draws random numbers."""
    key = jax.random.fold_in(jax.random.split(jax.random.key(n[3]))[0], n[1])
    key = jax.random.wrap_key_data(jax.random.key_data(key))
    return [jax.random.normal(key, (3,)), jax.random.bits(key, (3,)), jax.random.gamma(key, x)]


def primitives(jaxpr):
    names = set()
    for equation in jaxpr.eqns:
        names.add(equation.primitive.name)
        for inner in jaxprs_in_params(equation.params):
            names |= primitives(inner)
    return names


@pytest.mark.slow
def test_everything_that_is_called_known_can_be_done():
    seen = set()
    for function in (elementwise, arrays, random):
        with jax.numpy_dtype_promotion("standard"):
            seen |= primitives(jax.make_jaxpr(function)(X, N).jaxpr)
            hinted = fused(eqx.filter_jit(function))
            for chains in (lambda f: f, jax.vmap):
                given = (
                    (X, N)
                    if chains is not jax.vmap
                    else (jnp.stack([X, 0.9 * X]), jnp.stack([N, N[::-1]]))
                )
                program = jax.jit(chains(hinted), compiler_options=cpu_fusion.WITHOUT_LIBRARY)
                plain = jax.jit(chains(function))(*given)
                for got, wanted in zip(program(*given), plain, strict=True):
                    np.testing.assert_allclose(got, wanted, rtol=2e-5, atol=1e-6)
    assert (KNOWN | CALLS) - seen <= OTHER_NAMES


def test_what_is_small():
    assert is_small(lambda x: 2.0 * x, X)
    assert is_small(lambda x: 2.0 * x, X, times=5_000)
    assert not is_small(lambda x: 2.0 * x, X, times=6_000)
    assert not is_small(lambda x: 2.0 * x, jnp.ones(cpu_fusion.FUSED_NUMBERS + 1))
    twice = lambda x, n: lax.fori_loop(0, n, lambda _, v: 2.0 * v, x)  # noqa: E731
    assert is_small(lambda x: twice(x, 1_000), X) and not is_small(lambda x: twice(x, 6_000), X)
    many = cpu_fusion.MOST_OPERATIONS + 1
    assert not is_small(lambda x: sum(jnp.sin(x) for _ in range(many)), X[0])
    assert not is_small(jax.jit(lambda x: sum(jnp.sin(x) for _ in range(many))), X[0])


@pytest.mark.parametrize(
    "function",
    [jnp.sort, lambda x: jnp.linalg.cholesky(jnp.outer(x, x)), lambda x: jnp.fft.fft(x).real],
    ids=["sort", "cholesky", "fft"],
)
def test_what_is_not_known_stays_as_it_is(function):
    assert not is_small(function, X)


def test_a_version_of_xla_without_the_options_goes_without(monkeypatch):
    monkeypatch.setattr(cpu_fusion, "WITHOUT_LIBRARY", {"xla_cpu_no_such_option": True})
    cpu_fusion.understood.cache_clear()
    try:
        assert not is_small(lambda x: 2.0 * x, X)
    finally:
        cpu_fusion.understood.cache_clear()


def posterior(rows=400):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, 3)).astype(np.float32)
    y = (rng.random(rows) < scipy.special.expit(x[:, 0])).astype(np.float32)
    return ex.Posterior(
        lambda w: -0.5 * jnp.sum(w**2),
        lambda w, row: row[1] * (w @ row[0]) - jax.nn.softplus(w @ row[0]),
        (x, y),
    )


def kernels():
    batch = ex.Minibatch(posterior(), 8)
    control = ex.ControlVariate(posterior(), 8, jnp.zeros(3), order=2)
    return {
        "sgld": ex.sgld(batch, 1e-3),
        "sghmc": ex.sghmc(batch, 1e-2, 1.0),
        "sgnht": ex.sgnht(batch, 1e-2, 1.0),
        "nogin": ex.nogin(ex.ScoreCovariance(control, "diagonal"), 1e-2, 1.0),
        "hmc": ex.hmc(
            ex.FullGradient(ex.targets.gaussian(jnp.zeros(3), jnp.eye(3))),
            0.1,
            num_leapfrog_steps=3,
        ),
        "splitting": ex.splitting(
            "BAOAB", ex.FullGradient(ex.targets.gaussian(jnp.zeros(3), jnp.eye(3))), 0.1, 1.0
        ),
    }


@pytest.mark.slow
@pytest.mark.parametrize("name", kernels())
@pytest.mark.parametrize("chains", [1, 3])
def test_the_steps_are_the_same(name, chains):
    """Over so few steps that rounding does not grow; a wrong operation is seen in the first."""
    kernel = kernels()[name]
    starts = jnp.full((chains, 3), 0.3)
    (keys, _, states), way = executor.start(None, kernel, KEY, starts)
    assert way == Way(small=True)
    ends = []
    for choice in (False, True):
        advance = executor.PROGRAMS[choice].advance
        step, numbers = loop.Step(kernel, Way(small=choice)), (jnp.int32(0), jnp.int32(10))
        where = None, step, (keys, [], states), numbers
        (after, well, _), text = advance(*where), advance.lower(*where).as_text()
        assert well.all() and ("xla_cpu_small_call" in text) is choice
        ends.append(after)
    for got, wanted in zip(*map(jax.tree.leaves, ends), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)


def test_the_switch(monkeypatch):
    assert is_small(lambda x: 2.0 * x, X)
    monkeypatch.setattr(cpu_fusion, "FUSED_NUMBERS", 0)
    assert not is_small(lambda x: 2.0 * x, X)


@pytest.mark.parametrize(("text", "value"), [(None, 7), ("0", 0), ("9", 9)])
def test_measured_numbers_can_be_given(text, value, monkeypatch):
    if text is not None:
        monkeypatch.setenv("ERGODAX_OF_THIS_TEST", text)
    assert compiling.measured("ERGODAX_OF_THIS_TEST", 7) == value


@pytest.mark.parametrize("text", ["", "-1", "2.5", "10"])
def test_a_measured_number_that_is_none_is_refused(text, monkeypatch):
    monkeypatch.setenv("ERGODAX_OF_THIS_TEST", text)
    with pytest.raises(ValueError, match="ERGODAX_OF_THIS_TEST must be an integer in .0, 9."):
        compiling.measured("ERGODAX_OF_THIS_TEST", 7, 9)


def test_the_work_of_a_function_within_is_counted():
    """Once where it is called, and as often as a loop is long."""

    def loop(x):
        return lax.scan(lambda c, _: (jax.jit(jnp.sin)(c), None), x, None, length=5)[0]

    once = cpu_fusion._work(jax.make_jaxpr(jax.jit(jnp.sin))(X).jaxpr)
    often = cpu_fusion._work(jax.make_jaxpr(loop)(X).jaxpr)
    assert once == (X.size, 1) and often[0] == 5 * X.size


def test_the_way_of_a_small_step_is_the_small_one():
    kernel = ex.sgld(ex.FullGradient(ex.targets.gaussian(jnp.zeros(3), jnp.eye(3))), 0.1)
    for chains in (1, 4):
        keys = jax.random.split(KEY, chains)
        states = jax.vmap(kernel.init, (0, None))(keys, jnp.zeros(3))
        assert loop.way_of_steps(kernel, keys, states).small
