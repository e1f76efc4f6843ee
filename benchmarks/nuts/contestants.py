"""Who is compared, and what is measured of each: `infer`, and the NUTS of other libraries."""

import dataclasses
import functools
import importlib.util
import statistics
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

import ergodax as ex
from benchmarks.nuts.problem import Problem, is_large, log_density, size
from ergodax import tune

CHAINS = 4
OURS = "ergodax infer"
CHUNK = 4_000  # draws of a chunk of its kernel, at most
CHUNK_SECONDS = 2.0  # that a chunk takes, about
FEW = 100  # draws, whose time tells how many make a chunk
HUGE = 2_000_000  # rows from which sums in single precision lose what NUTS needs
WARM_UP = 1_000
NUMBERS = 200_000_000  # numbers in the table times draws of a chunk of NUTS


@dataclasses.dataclass(frozen=True)
class Limits:
    """How long each contestant runs.

    Attributes:
        goal: the effective sample size of a finished run.
        least: seconds of sampling, at least.
        most: seconds of sampling, at most; beyond, the time to the goal is extrapolated.
    """

    goal: float = 10_000.0
    least: float = 1.0
    most: float = 60.0


@dataclasses.dataclass(frozen=True)
class Measured:
    """One contestant on one problem.

    Attributes:
        sampler: its name.
        num_data: N.
        setup_seconds: compilation, search for the mode, warm-up and tuning.
        ess: bulk, of the component with the least, of the draws that were timed.
        seconds: that these draws took, compiled.
        steps: of each chain in that time; a step of NUTS is a trajectory.
        error_mean: the largest error of a mean, in posterior sd.
        error_sd: the largest relative error of an sd.
        to_goal: seconds to the goal, set-up included.
        extrapolated: whether the goal was not reached, and `to_goal` follows from the rate.
        note: what is particular.
        gradients: of the whole data, of each chain, in those seconds; None for minibatches.
    """

    sampler: str
    num_data: int
    setup_seconds: float
    ess: float
    seconds: float
    steps: int
    error_mean: float
    error_sd: float
    to_goal: float
    extrapolated: bool
    note: str = ""
    gradients: float | None = None

    @property
    def gradients_each(self) -> float | None:
        """Gradients of the whole data to an effective draw: what no machine's load changes."""
        return None if self.gradients is None else CHAINS * self.gradients / self.ess

    @property
    def rate(self) -> float:
        """ESS per second while sampling."""
        return self.ess / self.seconds

    @property
    def microseconds(self) -> float:
        """A step of all chains together."""
        return 1e6 * self.seconds / self.steps

    def end_to_end(self, goal: float) -> float:
        """ESS per second of a run to the goal, end to end, compilation included."""
        return goal / self.to_goal


def least_ess(draws: np.ndarray) -> float:
    """ArviZ's bulk ESS of the worst component of draws of shape (chains, draws, d)."""
    from arviz_stats.base.array import array_stats

    values = array_stats.ess(draws.astype(np.float64), method="bulk", chain_axis=0, draw_axis=1)
    return float(np.min(values))


def until_goal(more: Callable[[int], np.ndarray], limits: Limits) -> tuple[np.ndarray, float]:
    """Chunks of draws until there are enough or the time is up, and the seconds they took.

    The seconds are the median chunk's times their number: other work on the machine matters less.
    `more` makes a chunk by its number; its draws have shape (chains, draws, d).
    """
    parts, seconds, looked = [], [], 0
    while True:
        begin = time.perf_counter()
        parts.append(more(len(parts)))
        seconds.append(time.perf_counter() - begin)
        if sum(seconds) > limits.most:
            break
        if sum(seconds) >= limits.least and len(parts) >= 1.3 * looked:
            looked = len(parts)
            if least_ess(np.concatenate(parts, axis=1)) >= limits.goal:
                break
    return np.concatenate(parts, axis=1), len(parts) * statistics.median(seconds)


def measured(
    name: str,
    problem: Problem,
    set_up: float,
    draws: np.ndarray,
    seconds: float,
    limits: Limits,
    note: str,
    thin: int = 1,
    gradients: float | None = None,
) -> Measured:
    """The figures of a run whose draws have shape (chains, draws, d) and took so many seconds.

    Before them `set_up` seconds had passed; `thin` steps make a draw. `gradients` are those of the
    whole data to a draw of one chain, None for minibatches.
    """
    whole = None if gradients is None else gradients * draws.shape[1]
    ess = least_ess(draws)
    return Measured(
        name, problem.num_data, set_up, ess, seconds, draws.shape[1] * thin,
        *problem.reference.errors(draws), set_up + limits.goal / ess * seconds,
        ess < limits.goal, note, whole,
    )  # fmt: skip


def run_ours(problem: Problem, seed: int, limits: Limits) -> Measured:
    """`infer` at its default accuracy, then its kernel on, to the goal."""
    key, key_draw = jax.random.split(jax.random.key(seed))
    infer = ex.infer  # what it imports is not counted, as of the others
    begin = time.perf_counter()
    found = infer(problem.posterior, jnp.zeros(problem.dimension), key=key, progress=False)
    tuned, positions = found.tuned, found.samples.final_state.position

    def more(number: int) -> np.ndarray:
        nonlocal positions
        samples = ex.sample(
            tuned.kernel, positions=positions, num_steps=chunk * tuned.thin, thin=tuned.thin,
            num_chains=CHAINS, collect=tuned.coordinates.position,
            key=jax.random.fold_in(key_draw, number + 3), progress=False,
        )  # fmt: skip
        positions = samples.final_state.position
        evaluations.append(float(np.mean(samples.info.evaluations)))
        return np.asarray(samples.position)

    evaluations: list[float] = []
    chunk, paces = FEW, []
    for number in (-3, -2):  # the first compiles, for larger chunks too; both are set-up
        start = time.perf_counter()
        more(number)
        paces.append((time.perf_counter() - start) / FEW)
    chunk = int(np.clip(CHUNK_SECONDS / paces[-1], FEW, CHUNK))
    evaluations.clear()
    set_up = time.perf_counter() - begin
    draws, seconds = until_goal(more, limits)
    what = [d.chosen for d in found.account.decisions if d.what in ("estimator", "sampler")]
    bound = 0.0 if tuned.bias is None else tuned.bias.worst(coarse=True)
    told = found.verdict().split(":")[0]
    note = f"{told}; {'; '.join(what)}; bias by its own bound at most {bound:.3f} sd"
    whole = tuned.bias is None  # NUTS, whose evaluations are of all rows, or HMC on some of them
    rows = 1 if isinstance(tuned.kernel, tune.Nuts) else problem.num_data
    return measured(
        OURS, problem, set_up, draws, seconds, limits, note, tuned.thin,
        float(np.mean(evaluations)) / rows if whole else None,
    )  # fmt: skip


Run = Callable[[Problem, int, Limits], Measured]


def _by_its_own_rules(run: Run) -> Run:
    """Other libraries promote dtypes and ranks where this one's tests forbid it."""

    @functools.wraps(run)
    def inside(problem: Problem, seed: int, limits: Limits) -> Measured:
        with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
            return run(problem, seed, limits)

    return inside


@_by_its_own_rules
def run_blackjax(problem: Problem, seed: int, limits: Limits) -> Measured:
    """Window adaptation with its default diagonal mass matrix, then NUTS; 4 chains by vmap."""
    import blackjax

    nuts: Any = blackjax.nuts  # its types do not say how it is called

    def density(u: Array, *given: Array) -> Array:
        centre, basis, *rows = given
        return log_density(centre + basis @ u, problem.prior_scale, *rows)

    def warm_up(keys: Array, starts: Array, *given: Array) -> Any:
        if is_large(problem):
            step = {"step_size": best_step, "inverse_mass_matrix": jnp.ones(problem.dimension)}
            algorithm = nuts(lambda u: density(u, *given), **step)
            parameters = jax.tree.map(lambda x: jnp.stack([jnp.asarray(x)] * CHAINS), step)
            return jax.vmap(algorithm.init)(starts), parameters
        adaptation: Any = blackjax.window_adaptation(nuts, lambda u: density(u, *given))
        run = lambda key, start: adaptation.run(key, start, WARM_UP)[0]  # noqa: E731
        return jax.vmap(run)(keys, starts)

    def draw(key: Array, states: Any, parameters: Any, *given: Array) -> Any:
        def step(states: Any, key: Array) -> Any:
            def one(key: Array, state: Any, parameters: Any) -> Any:
                return nuts(lambda u: density(u, *given), **parameters).step(key, state)

            states, info = jax.vmap(one)(jax.random.split(key, CHAINS), states, parameters)
            return states, (states.position, jnp.mean(info.num_integration_steps))

        return jax.lax.scan(step, states, jax.random.split(key, chunk))

    given, chunk, best_step = _given(problem), _chunk(problem), _whitened_step(problem)
    key_warm, key_draw = jax.random.split(jax.random.key(seed))
    starts = _starts(problem, key_warm)
    begin = time.perf_counter()
    keys = jax.random.split(key_warm, CHAINS)
    states, parameters = jax.block_until_ready(jax.jit(warm_up)(keys, starts, *given))
    compiled = jax.jit(draw).lower(key_draw, states, parameters, *given).compile()
    set_up = time.perf_counter() - begin
    gradients = []

    def more(number: int) -> np.ndarray:
        nonlocal states
        key = jax.random.fold_in(key_draw, number + 1)
        states, (u, counts) = compiled(key, states, parameters, *given)
        gradients.append(float(jnp.mean(counts)))
        return np.swapaxes(np.asarray(u), 0, 1)

    draws, seconds = until_goal(more, limits)
    set_up += _warm_up_charge(problem, seconds / draws.shape[1])
    draws = _of_u(given, draws)
    each = float(np.mean(gradients))
    run = (problem, set_up, draws, seconds, limits, _favour(problem))
    return measured("BlackJAX NUTS", *run, gradients=each)


@_by_its_own_rules
def run_numpyro(problem: Problem, seed: int, limits: Limits) -> Measured:
    """NUTS with its default diagonal mass matrix, vectorised chains."""
    import numpyro  # pyright: ignore[reportMissingImports]
    from numpyro import distributions  # pyright: ignore[reportMissingImports]
    from numpyro.infer import MCMC, NUTS  # pyright: ignore[reportMissingImports]

    centre, basis, *rows = _given(problem)
    real = distributions.constraints.real_vector
    flat = distributions.ImproperUniform(real, (), (problem.dimension,))

    def model(*rows: Array) -> None:
        u = numpyro.sample("u", flat)
        numpyro.factor("density", log_density(centre + basis @ u, problem.prior_scale, *rows))

    chunk, best_step = _chunk(problem), _whitened_step(problem)
    key_warm, key_draw = jax.random.split(jax.random.key(seed))
    starts = _starts(problem, key_warm)
    large = is_large(problem)
    fixed = {"step_size": best_step, "adapt_step_size": False, "adapt_mass_matrix": False}
    begin = time.perf_counter()
    sampler: Any = MCMC(
        NUTS(model, **(fixed if large else {})), num_warmup=1 if large else WARM_UP,
        num_samples=chunk, num_chains=CHAINS, chain_method="vectorized", progress_bar=False,
        jit_model_args=True,
    )  # fmt: skip
    sampler.warmup(key_warm, *rows, init_params={"u": starts})
    jax.block_until_ready(sampler.post_warmup_state.z)
    warm = time.perf_counter() - begin

    def more(number: int) -> np.ndarray:
        key = jax.random.fold_in(key_draw, number + 1)
        sampler.run(key, *rows, extra_fields=("num_steps",))
        sampler.post_warmup_state = sampler.last_state
        gradients.append(float(np.mean(sampler.get_extra_fields()["num_steps"])))
        return np.asarray(sampler.get_samples(group_by_chain=True)["u"])

    gradients: list[float] = []
    begin = time.perf_counter()
    more(-1)
    first = time.perf_counter() - begin
    draws, seconds = until_goal(more, limits)
    compilation = max(0.0, first - seconds * chunk / draws.shape[1])
    set_up = warm + compilation + _warm_up_charge(problem, seconds / draws.shape[1])
    draws = _of_u((centre, basis), draws)
    run = (problem, set_up, draws, seconds, limits, _favour(problem))
    return measured("NumPyro NUTS", *run, gradients=float(np.mean(gradients)))


def run_nutpie(problem: Problem, seed: int, limits: Limits) -> Measured:
    """NUTS in Rust on the density that PyMC compiles; chains on threads."""
    import nutpie  # pyright: ignore[reportMissingImports]
    import pymc  # pyright: ignore[reportMissingImports]

    features, labels = (np.asarray(x, np.float64) for x in problem.posterior.data)
    begin = time.perf_counter()
    with pymc.Model() as model:
        w = pymc.Normal("w", 0.0, problem.prior_scale, shape=problem.dimension)
        pymc.Bernoulli("y", logit_p=features @ w, observed=labels)
    compiled = nutpie.compile_pymc_model(model)
    common: dict[str, Any] = {"tune": WARM_UP, "chains": CHAINS, "progress_bar": False}
    nutpie.sample(compiled, draws=CHAINS, seed=seed, **common)
    set_up = time.perf_counter() - begin

    def run(draws: int) -> tuple[np.ndarray, float, float]:
        begin = time.perf_counter()
        trace = nutpie.sample(compiled, draws=draws, seed=seed + 1, **common)
        seconds = time.perf_counter() - begin
        return np.asarray(trace.posterior["w"]), seconds, float(trace.sample_stats.n_steps.mean())

    # It has no way to go on from a warm-up: the time of the draws is a difference.
    _, short, _ = run(CHAINS)  # fewer draws than chains would be warned of
    count = _chunk(problem)
    draws, seconds, gradients = run(count)
    while least_ess(draws) < limits.goal and seconds - short < limits.most / 4:
        count *= 4
        draws, seconds, gradients = run(count)
    note = f"warm-up {WARM_UP} steps, double precision"
    seconds = max(seconds - short, 1e-3)
    run_facts = (problem, set_up, draws, seconds, limits, note)
    return measured("nutpie NUTS", *run_facts, gradients=gradients)


PEERS: dict[str, Run] = {"blackjax": run_blackjax, "numpyro": run_numpyro, "nutpie": run_nutpie}
NEEDED = {"blackjax": ("blackjax",), "numpyro": ("numpyro",), "nutpie": ("nutpie", "pymc")}


def missing(peer: str) -> list[str]:
    """The packages that a peer needs and that are not installed."""
    return [name for name in NEEDED[peer] if importlib.util.find_spec(name) is None]


def _chunk(problem: Problem) -> int:
    """Draws that NUTS makes at a time, by one compiled program."""
    return int(np.clip(NUMBERS // size(problem), 10, 4_000))


def _whitened_step(problem: Problem) -> float:
    """The reference's, or that to which NUTS adapts on a standard normal of as many dimensions."""
    import blackjax

    if not is_large(problem):
        return 1.0
    if problem.reference.step is not None:
        return problem.reference.step
    start = jnp.zeros(problem.dimension)
    adaptation: Any = blackjax.window_adaptation(blackjax.nuts, lambda u: -0.5 * jnp.sum(u**2))
    run = jax.jit(lambda key: adaptation.run(key, start, WARM_UP)[0].parameters["step_size"])
    return float(run(jax.random.key(0)))


def _starts(problem: Problem, key: Array) -> Array:
    """u of each chain: 0, the mode, or draws of the posterior or its Gaussian approximation."""
    shape, known = (CHAINS, problem.dimension), problem.reference
    if is_large(problem) and known.draws is not None:
        return jnp.asarray(np.linalg.solve(known.basis, (known.draws[:CHAINS] - known.mean).T).T)
    return jax.random.normal(key, shape) if is_large(problem) else jnp.zeros(shape)


def _given(problem: Problem) -> tuple[Array, ...]:
    """A centre, a basis, the data; if huge, log-likelihoods at the centre."""
    known, large = problem.reference, is_large(problem)
    centre = jnp.asarray(known.mean if large else known.mode, jnp.float32)
    basis = known.basis if large else np.eye(problem.dimension)
    features, labels = problem.posterior.data
    given = centre, jnp.asarray(basis, jnp.float32), features, labels
    if problem.num_data < HUGE:
        return given
    scores = features @ centre
    return *given, labels * scores - jax.nn.softplus(scores)


def _warm_up_charge(problem: Problem, seconds_a_draw: float) -> float:
    """Seconds of a warm-up that was not run: each of its steps as cheap as a draw."""
    return WARM_UP * seconds_a_draw if is_large(problem) else 0.0


def _favour(problem: Problem) -> str:
    """What NUTS was given free."""
    if not is_large(problem):
        return f"begun at the mode, which is given free; warm-up {WARM_UP} steps"
    gift = "the step of a normal law, starts drawn from the posterior's Gaussian approximation"
    if problem.reference.draws is not None:
        gift = "the step and draws of the reference"
    text = f"given free: whitened coordinates, {gift}; warm-up charged as {WARM_UP} draws"
    return text + ("; sums taken from the mean, row by row" if problem.num_data >= HUGE else "")


def _of_u(given: tuple[Array, ...], draws: np.ndarray) -> np.ndarray:
    centre, basis = (np.asarray(x, np.float64) for x in given[:2])
    return centre + draws.astype(np.float64) @ basis.T
