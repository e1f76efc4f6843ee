"""The crossed effects of flights by NumPyro's NUTS, beside `infer`: answers and speed.

NumPyro's model is the usual one: standardised effects, a plate for each kind and one for the rows.
Both chains run at once, one on each of two devices of the processor.
"""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.groups.models import KINDS, Flights, effects
from benchmarks.report import Table

CHAINS = 2


class Answer(NamedTuple):
    """Draws by name, leaves (chains, draws, ...), and what they took."""

    draws: dict[str, np.ndarray]
    seconds: float
    gradients: float = 0.0  # of all chains


def ours(flights: Flights, result: Any, seconds: float) -> Answer:
    """The draws of `infer` by the names of NumPyro's model."""
    found = result.samples.named()
    draws = {name: found[name] for name in ("mean", "slope")}
    draws |= {f"sd_{kind}": found[f"sd.{kind}"] for kind in KINDS}
    for kind in KINDS[1:]:
        draws[kind] = effects(found[kind], found[f"sd.{kind}"][..., None], flights.told(kind))
    return Answer({name: np.asarray(x, np.float64) for name, x in draws.items()}, seconds)


def standardised(flights: Flights) -> Callable[[dict[str, Any], Any, Any], None]:
    """NumPyro's model of `arguments(flights)`: effects sd z with z ~ N(0, 1)."""
    import numpyro
    from numpyro import distributions as dist

    def model(index: dict[str, Any], x: Any, y: Any) -> None:
        mean = numpyro.sample("mean", dist.Normal(0.0, 5.0))
        slope = numpyro.sample("slope", dist.Normal(0.0, 2.0).expand([x.shape[1]]).to_event(1))
        score = mean + x @ slope
        for kind in KINDS:
            sd = numpyro.sample(f"sd_{kind}", dist.HalfNormal(1.0))
            with numpyro.plate(f"{kind}s", flights.size(kind)):
                z = numpyro.sample(f"z_{kind}", dist.Normal(0.0, 1.0))
            effect: Any = numpyro.deterministic(kind, sd * z)
            score += effect[index[kind]]
        with numpyro.plate("rows", len(y)):
            numpyro.sample("late", dist.Bernoulli(logits=score), obs=y)

    return model


def arguments(flights: Flights) -> tuple[dict[str, Any], Any, Any]:
    """Numbers of the levels, covariates, outcomes."""
    index = {kind: jnp.asarray(codes, jnp.int32) for kind, codes in flights.index.items()}
    return index, jnp.asarray(flights.x, float), jnp.asarray(flights.y, float)


def by_nuts(flights: Flights, draws: int) -> Answer:
    """As many draws of each chain as of warm-up; the seconds include that and the compilation."""
    from numpyro.infer import MCMC, NUTS

    given = arguments(flights)
    settings = {"num_chains": CHAINS, "chain_method": "parallel", "progress_bar": False}
    began = time.perf_counter()
    mcmc = MCMC(NUTS(standardised(flights)), num_warmup=draws, num_samples=draws, **settings)
    mcmc.warmup(jax.random.key(0), *given, extra_fields=("num_steps",), collect_warmup=True)
    steps = float(np.sum(mcmc.get_extra_fields()["num_steps"]))
    warm: Any = mcmc.post_warmup_state
    mcmc.run(warm.rng_key, *given, extra_fields=("num_steps",))
    found = jax.block_until_ready(mcmc.get_samples(group_by_chain=True))
    seconds = time.perf_counter() - began
    steps += float(np.sum(mcmc.get_extra_fields()["num_steps"]))
    kept = {name: np.asarray(x, np.float64) for name, x in found.items() if name[:2] != "z_"}
    return Answer(kept, seconds, steps)


def compared(mine: Answer, theirs: Answer) -> Table:
    """How far apart means are, in sds, and sds, in percent; and the least ESS per second."""
    import ergodax as ex

    columns = ("numbers", "means apart, sd", "sds apart, %", "ESS infer", "ESS NUTS")
    table = Table("`infer` against NumPyro's NUTS", ("", *columns))
    least = []
    for name in mine.draws:
        a, b = (answer.draws[name] for answer in (mine, theirs))
        sd = b.std(axis=(0, 1))
        off = np.max(np.abs(a.mean(axis=(0, 1)) - b.mean(axis=(0, 1))) / sd)
        wide = np.max(np.abs(a.std(axis=(0, 1)) / sd - 1.0))
        sizes = [float(np.min(np.asarray(ex.diagnostics.ess(x)))) for x in (a, b)]
        least.append(sizes)
        cells = f"{off:.3f}", f"{100.0 * wide:.1f}", *(f"{size:,.0f}" for size in sizes)
        table.rows.append([name, str(sd.size), *cells])
    took = mine.seconds, theirs.seconds
    rates = [min(x) / seconds for x, seconds in zip(zip(*least, strict=True), took, strict=True)]
    each = 1e3 * CHAINS * theirs.seconds / theirs.gradients
    table.notes = [
        f"seconds, compilation and warm-up included: {took[0]:.0f} and {took[1]:.0f}",
        f"least ESS per second: {rates[0]:.2f} and {rates[1]:.3f}, ratio {rates[0] / rates[1]:.1f}",
        f"NUTS: {theirs.gradients:,.0f} gradients, {each:.2f} ms each of a chain",
    ]
    return table
