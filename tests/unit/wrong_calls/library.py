"""Wrong calls of targets, estimators, samplers, schedules and `sample`."""

# pyright: reportArgumentType=false
# These calls are wrong, and the checker of an editor says so as well.

import jax
import jax.numpy as jnp
import numpy as np

import ergodax as ex
from unit.wrong_calls.case import Case

X, Y = np.ones((6, 2), "f4"), np.ones(6, "f4")
KEY = jax.random.key(0)
START = jnp.ones(2)


def prior(w):
    return -0.5 * jnp.sum(w**2)


def likelihood(w, example):
    x, y = example
    return -0.5 * (y - x @ w) ** 2


def posterior(log_prior=prior, log_likelihood=likelihood, data=(X, Y), **options):
    return ex.Posterior(log_prior, log_likelihood, data, **options)


def target():
    return ex.Target(lambda x: 0.5 * jnp.sum(x**2))


def full():
    return ex.FullGradient(target())


def square(x):
    return 1.0 + x**2


def run(kernel=None, position=START, num_steps=4, *, key=KEY, **options):
    kernel = ex.sgld(full(), 0.1) if kernel is None else kernel
    return ex.sample(kernel, position, num_steps, key=key, **options)


def run_on(posterior, position=START):
    return run(ex.sgld(ex.Minibatch(posterior, 2), 1e-3), position)


def with_nan(array, row):
    array = array.copy()
    array[row] = np.nan
    return array


DATA = {
    "data, none": Case(lambda: posterior(data=()), ValueError, ("data", "at least one array")),
    "data, no rows": Case(
        lambda: posterior(data=(X[:0], Y[:0])), ValueError, ("data[0]", "empty", "0 rows", "Check")
    ),
    "data, one number": Case(
        lambda: posterior(data=(X, np.float32(1))), ValueError, ("data[1]", "leading axis")
    ),
    "data, axes that disagree": Case(
        lambda: posterior(data={"x": X, "y": Y[:5]}),
        ValueError,
        ("data['x'] has 6", "data['y'] has 5", "Check for a truncated"),
    ),
    "data, NaN": Case(
        lambda: posterior(data=(X, with_nan(Y, 4))), ValueError, ("data[1]", "row 4", "Drop or")
    ),
    "data, infinite in JAX": Case(
        lambda: posterior(data=jnp.array([1.0, jnp.inf])), ValueError, ("data", "row 1", "impute")
    ),
    "data, too large": Case(
        lambda: posterior(data=np.full(3, 1e300)), ValueError, ("data", "float32", "Standardise")
    ),
    "data, text": Case(
        lambda: posterior(data=np.array(["a", "b"])), TypeError, ("data", "must be numbers")
    ),
    "data, too short rows": Case(
        lambda: run_on(posterior(data=(X[:, :1], Y))),
        ValueError,
        ("position", "float32[2]", "Check the position's shapes against the data's"),
    ),
    "batch_size, more than N": Case(
        lambda: ex.Minibatch(posterior(), 7), ValueError, ("batch_size=7", "6 rows", "Try")
    ),
    "batch_size, zero": Case(
        lambda: ex.Minibatch(posterior(), 0), ValueError, ("batch_size", "at least 1")
    ),
    "batch_size, fraction": Case(
        lambda: ex.Minibatch(posterior(), 2.0), TypeError, ("batch_size", "integer", "Try")
    ),
    "batch_size, flag": Case(
        lambda: ex.Minibatch(posterior(), True), TypeError, ("batch_size", "integer")
    ),
}

FUNCTIONS = {
    "log_prior, none": Case(
        lambda: posterior(log_prior=0.0), TypeError, ("log_prior", "must be a function")
    ),
    "log_likelihood, none": Case(
        lambda: posterior(log_likelihood=None), TypeError, ("log_likelihood", "function")
    ),
    "log_prior, vector": Case(
        lambda: run_on(posterior(log_prior=lambda w: -(w**2))),
        TypeError,
        ("log_prior", "scalar", "jnp.sum"),
    ),
    **{
        f"{name}, no return, {kind}": Case(
            lambda functions=functions: run_on(posterior(**functions)),
            TypeError,
            (f"{name} returns None", "`return`"),
        )
        for name, kind, functions in (
            ("log_prior", "of all", {"log_prior": lambda w: None}),
            ("log_likelihood", "of one", {"log_likelihood": lambda w, e: None}),
            ("log_likelihood", "batch", {"log_likelihood": lambda w, e: None, "batched": True}),
        )
    },
    **{
        f"log_likelihood, {kind}": Case(
            lambda value=value: run_on(posterior(log_likelihood=lambda w, e: value(e[1] - w[0]))),
            ValueError,
            ("can't be evaluated", "jax.numpy", "`if`", "jnp.where"),
        )
        for kind, value in (
            ("float()", float),
            ("NumPy", lambda x: np.asarray(x).sum()),
            ("if", lambda x: -x if x > 0 else x),
        )
    },
    "log_likelihood, vector": Case(
        lambda: run_on(posterior(log_likelihood=lambda w, e: -((e[1] - w) ** 2))),
        TypeError,
        ("log_likelihood", "ONE example", "batched=True"),
    ),
    "log_likelihood, already summed": Case(
        lambda: run_on(posterior(log_likelihood=lambda w, e: jnp.sum(e[0] @ w), batched=True)),
        TypeError,
        ("log_likelihood", "batched=True", "one number for each", "not shape ()"),
    ),
    "potential, none": Case(lambda: ex.Target(3.0), TypeError, ("potential", "function")),
    "potential, vector": Case(
        lambda: run(ex.sgld(ex.FullGradient(ex.Target(lambda x: x)), 0.1)),
        TypeError,
        ("potential", "one floating-point number", "jnp.sum"),
    ),
    "gradient, a target": Case(
        lambda: ex.sgld(target(), 0.1), TypeError, ("gradient", "ex.FullGradient(target)")
    ),
    "gradient, a posterior": Case(
        lambda: ex.sghmc(posterior(), 0.1), TypeError, ("gradient", "ex.Minibatch(posterior")
    ),
    "gradient, a function": Case(
        lambda: ex.langevin(jnp.sum, 0.1), TypeError, ("gradient", "ex.Minibatch")
    ),
    "target, a function": Case(
        lambda: ex.FullGradient(jnp.sum), TypeError, ("target", "ex.Target")
    ),
    "target of NoisyGradient": Case(
        lambda: ex.NoisyGradient(jnp.sum, 1.0), TypeError, ("target", "ex.Target")
    ),
    "posterior, a target": Case(
        lambda: ex.Minibatch(target(), 2), TypeError, ("posterior", "use ex.FullGradient")
    ),
    "hmc with a minibatch": Case(
        lambda: ex.hmc(ex.Minibatch(posterior(), 2), 0.1),
        TypeError,
        ("exact gradient", "Minibatch", "ex.FullGradient(target)"),
    ),
    "recipe, a dict": Case(
        lambda: ex.euler_maruyama({}, full(), 0.1), TypeError, ("recipe", "ex.Recipe")
    ),
}

NUMBERS = {
    "step_size, negative": Case(
        lambda: ex.sgld(full(), -0.1), ValueError, ("step_size", "positive", "-0.1")
    ),
    "step_size, zero": Case(lambda: ex.hmc(full(), 0.0), ValueError, ("step_size", "positive")),
    "step_size, NaN": Case(
        lambda: ex.langevin(full(), float("nan")), ValueError, ("step_size", "finite", "nan")
    ),
    "step_size, none": Case(
        lambda: ex.sgnht(full(), None), TypeError, ("step_size", "Try step_size=1e-3")
    ),
    "step_size, a vector": Case(
        lambda: ex.sgld(full(), jnp.ones(2)), TypeError, ("step_size", "number", "Try")
    ),
    "step_size, a schedule of vectors": Case(
        lambda: ex.sgld(full(), lambda t: jnp.ones(2)), TypeError, ("step_size", "one number")
    ),
    "temperature, negative": Case(
        lambda: ex.sgld(full(), 0.1, temperature=-1.0), ValueError, ("temperature", "zero or")
    ),
    "friction, negative": Case(
        lambda: ex.sghmc(full(), 0.1, friction=-1.0), ValueError, ("friction", "negative")
    ),
    "friction, negative in a splitting": Case(
        lambda: ex.langevin(full(), 0.1, friction=-1.0), ValueError, ("friction", "positive")
    ),
    "friction, a vector": Case(
        lambda: ex.sghmc(full(), 0.1, friction=jnp.ones(2)), TypeError, ("friction", "one number")
    ),
    "mass, indefinite": Case(
        lambda: ex.langevin(full(), 0.1, mass=jnp.diag(jnp.array([1.0, -1.0]))),
        ValueError,
        ("mass", "positive semidefinite", "-1"),
    ),
    "mass, singular": Case(
        lambda: ex.hmc(full(), 0.1, mass=jnp.ones((2, 2))), ValueError, ("mass", "definite")
    ),
    "mass, zero": Case(lambda: ex.sghmc(full(), 0.1, mass=0.0), ValueError, ("mass", "positive")),
    "mass, text": Case(
        lambda: ex.sghmc(full(), 0.1, mass="heavy"), TypeError, ("mass", "ex.Diagonal")
    ),
    "mass, three axes": Case(
        lambda: ex.langevin(full(), 0.1, mass=jnp.ones((2, 2, 2))), ValueError, ("mass", "matrix")
    ),
    "mass, of another size": Case(
        lambda: run(ex.langevin(full(), 0.1, mass=jnp.ones(3))),
        ValueError,
        ("Diagonal", "size 2", "(3,)", "mass"),
    ),
    "preconditioner, negative": Case(
        lambda: ex.sgld(full(), 0.1, preconditioner=-1.0), ValueError, ("preconditioner",)
    ),
    "covariance, not symmetric": Case(
        lambda: ex.NoisyGradient(target(), jnp.array([[1.0, 1.0], [0.0, 1.0]])),
        ValueError,
        ("covariance", "symmetric"),
    ),
    "thermal_mass, zero": Case(
        lambda: ex.sgnht(full(), 0.1, thermal_mass=0.0), ValueError, ("thermal_mass", "positive")
    ),
    "damping, text": Case(
        lambda: ex.psgld(full(), 0.1, damping="1"), TypeError, ("damping", "number", "'1'")
    ),
    "num_leapfrog_steps, zero": Case(
        lambda: ex.hmc(full(), 0.1, num_leapfrog_steps=0),
        ValueError,
        ("num_leapfrog_steps", "at least 1"),
    ),
    "scheme, unknown": Case(
        lambda: ex.sghmc(full(), 0.1, scheme="implicit"),
        ValueError,
        ("scheme", "'implicit'", "semi-implicit"),
    ),
    "scheme, unknown letter": Case(
        lambda: ex.langevin(full(), 0.1, scheme="BAOXB"),
        ValueError,
        ("scheme='BAOXB'", "'X'", "legal ones are A"),
    ),
    "scheme, missing letter": Case(
        lambda: ex.langevin(full(), 0.1, scheme="BAB"), ValueError, ("scheme", "no O", "'BAOAB'")
    ),
    "scheme, not a string": Case(
        lambda: ex.splitting(3, full(), 0.1), TypeError, ("scheme", "'BAOAB'")
    ),
    "compensate without a covariance": Case(
        lambda: run(ex.sgld(full(), 0.1, compensate=True)),
        ValueError,
        ("compensate=True", "FullGradient", "ex.KnownCovariance(gradient, covariance)"),
    ),
}

RUNS = {
    "position, integers": Case(
        lambda: run(position=np.arange(2)), TypeError, ("position", "int", "jnp.asarray(position")
    ),
    "position, NaN": Case(
        lambda: run(position=jnp.array([1.0, jnp.nan])), ValueError, ("position", "start at a")
    ),
    **{
        f"position, a tree for the {name}": Case(
            lambda target=target: run(ex.sgld(ex.FullGradient(target()), 0.1), {"a": jnp.ones(2)}),
            TypeError,
            ("position", "must be one array of shape (2,), not a dict", "jnp.zeros(2)"),
        )
        for name, target in (
            ("gaussian", lambda: ex.targets.gaussian([0.0, 0.0], 1.0)),
            ("banana", ex.targets.banana),
            ("funnel", ex.targets.funnel),
        )
    },
    **{
        f"collect, {found!r}": Case(
            lambda found=found: run(collect=lambda position: found),
            ValueError,
            ("collect returns no array", "`return`"),
        )
        for found in (None, "text", {}, 1.0)
    },
    "position, nothing": Case(lambda: run(position={}), ValueError, ("position", "nothing to")),
    "position, none at all": Case(
        lambda: run(position=None), ValueError, ("position", "positions", "pass either")
    ),
    "position, of another size": Case(
        lambda: run_on(posterior(), jnp.ones(3)),
        ValueError,
        ("position", "float32[3]", "Check the position's shapes"),
    ),
    "positions, both": Case(
        lambda: run(positions=jnp.ones((1, 2))), ValueError, ("position", "positions", "either")
    ),
    "positions, wrong axis": Case(
        lambda: run(position=None, positions={"x": jnp.ones((3, 2))}, num_chains=4),
        ValueError,
        ("positions['x']", "num_chains=4", "(3, 2)", "Leave num_chains out"),
    ),
    "checkpoint, a folder": Case(
        lambda: run(checkpoint="run"), TypeError, ("checkpoint=ex.Checkpoint('run')", "resume=True")
    ),
    "checkpoint, a number": Case(lambda: run(checkpoint=3), TypeError, ("ex.Checkpoint", "not 3")),
    "Checkpoint, no path": Case(lambda: ex.Checkpoint(3), TypeError, ("folder", "path", "not 3")),
    "Checkpoint, every": Case(
        lambda: ex.Checkpoint("run", every="10"), TypeError, ("every", "seconds", "'10'")
    ),
    "state, a position": Case(
        lambda: run(position=None, state=jnp.zeros(2)), TypeError, ("state", "samples.final_state")
    ),
    "key, a seed": Case(lambda: run(key=0), TypeError, ("key", "jax.random.key(0)", "not 0")),
    "key, several": Case(
        lambda: run(key=jax.random.split(KEY)), TypeError, ("key", "one key", "(2,)")
    ),
    "key, numbers": Case(lambda: run(key=jnp.ones(2)), TypeError, ("key", "jax.random.key(0)")),
    "num_steps, zero": Case(lambda: run(num_steps=0), ValueError, ("num_steps", "at least 1")),
    "num_steps, fraction": Case(
        lambda: run(num_steps=1e3), TypeError, ("num_steps", "integer", "1000.0")
    ),
    "num_chains, zero": Case(lambda: run(num_chains=0), ValueError, ("num_chains", "at least 1")),
    "num_chains, flag": Case(lambda: run(num_chains=True), TypeError, ("num_chains", "integer")),
    "thin, zero": Case(lambda: run(thin=0), ValueError, ("thin", "at least 1")),
    "thin, too much": Case(lambda: run(thin=5), ValueError, ("thin=5", "num_steps=4", "lower")),
    "burn_in, negative": Case(lambda: run(burn_in=-1), ValueError, ("burn_in", "at least 0")),
    "burn_in, too much": Case(
        lambda: run(burn_in=2**31 - 2), ValueError, ("burn_in + num_steps", "below 2^31")
    ),
    "kernel, a gradient": Case(
        lambda: run(full()), TypeError, ("kernel", "init and step", "ex.sgld")
    ),
    "kernel, a class": Case(lambda: run(ex.Kernel), TypeError, ("kernel", "ex.sgld")),
    "rmhmc, noisy gradient": Case(
        lambda: ex.rmhmc(ex.NoisyGradient(target(), 1.0), 0.1, square),
        TypeError,
        ("rmhmc needs the exact gradient", "ex.sgrhmc"),
    ),
    "metric, a number": Case(
        lambda: ex.sgrld(full(), 0.1, 2.0),
        TypeError,
        ("metric must be a function of the position", "preconditioner", "mass"),
    ),
    "metric, of the potential along a trajectory": Case(
        lambda: ex.rmhmc(full(), 0.1, ex.PotentialMetric(jnp.exp)),
        TypeError,
        ("PotentialMetric", "ex.Metric("),
    ),
    "metric, of the potential out of place": Case(
        lambda: ex.PotentialMetric(jnp.exp)(jnp.zeros(2)),
        TypeError,
        ("sgrld and sgrhmc", "ex.Metric("),
    ),
    "metric, divergence not a function": Case(
        lambda: ex.Metric(square, divergence=1.0), TypeError, ("divergence", "1.0")
    ),
    "rmhmc, iterations": Case(
        lambda: ex.rmhmc(full(), 0.1, square, max_iterations=2.5),
        TypeError,
        ("max_iterations", "2.5"),
    ),
    "rmhmc, tolerance": Case(
        lambda: ex.rmhmc(full(), 0.1, square, tolerance=0.0), ValueError, ("tolerance", "Try 1e-6")
    ),
    "resample_every, zero": Case(
        lambda: ex.sghmc(full(), 0.1, resample_every=0),
        ValueError,
        ("resample_every", "at least 1"),
    ),
    "resample_every, fraction": Case(
        lambda: ex.sghmc(full(), 0.1, resample_every=0.5), TypeError, ("resample_every", "0.5")
    ),
    "resample_every, no momentum": Case(
        lambda: run(ex.euler_maruyama(ex.dynamics.langevin(), full(), 0.1, resample_every=2)),
        ValueError,
        ("resample_every", "momentum"),
    ),
    "nogin without a covariance": Case(
        lambda: run(ex.nogin(full(), 0.1)),
        ValueError,
        ("nogin", "FullGradient", "ex.ScoreCovariance(gradient)", "ex.KnownCovariance"),
    ),
    "nogin, temperature zero": Case(
        lambda: ex.nogin(full(), 0.1, temperature=0.0), ValueError, ("temperature", "positive")
    ),
    "form, unknown": Case(
        lambda: ex.msgld(full(), 0.1, form="square"), ValueError, ("form", "'square'", "linear")
    ),
    "ccadl, scheme": Case(
        lambda: ex.ccadl(full(), 0.1, scheme="BAOAB"),
        ValueError,
        ("scheme", "'BAOAB'", "splitting"),
    ),
    "rotation, not skew": Case(
        lambda: ex.dynamics.irreversible_langevin(jnp.eye(2)), ValueError, ("rotation", "skew")
    ),
    "compensate, no diffusion": Case(
        lambda: run(
            ex.euler_maruyama(
                ex.dynamics.hamiltonian(), ex.NoisyGradient(target(), 1.0), 0.1, compensate=True
            )
        ),
        ValueError,
        ("compensate", "momentum", "friction"),
    ),
}

CASES = {**DATA, **FUNCTIONS, **NUMBERS, **RUNS}
