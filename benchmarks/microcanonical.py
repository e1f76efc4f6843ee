"""Would adjusted microcanonical dynamics serve `infer` better than the no-U-turn sampler does?

    python -m benchmarks microcanonical groups-100 gaussian-1000 stochastic-volatility

For posteriors of the bank on which `infer` ends with NUTS: ESS of the worst mean for a thousand
gradients, by NUTS as it was tuned and by BlackJAX's adjusted microcanonical sampler (Robnik,
Cohn-Gordon and Seljak, arXiv:2503.01707). Both have the coordinates of NUTS's warm-up. The latter
begins at NUTS's last states and pays nothing for a warm-up: the search for its step is not counted,
and of several lengths of trajectory the best counts. So the comparison favours it.
"""

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

import ergodax as ex
from benchmarks.report import Table
from benchmarks.strangers import bank
from ergodax import diagnostics

CASES = (
    "groups-100", "groups-1000-centred", "effects-logistic-200", "gaussian-1000", "horseshoe",
    "gp-latent", "stochastic-volatility", "item-response-1pl", "logistic-500",
)  # fmt: skip
LENGTHS = 2, 4, 8, 16  # mean steps of a trajectory
ACCEPTANCE = 0.9
TUNING, DRAWS = 2_000, 1_000  # trajectories, the latter of each chain


def microcanonical(
    log_density: Callable[[Any], Any], starts: Any, length: int, key: Any
) -> tuple[np.ndarray, float, float]:
    """Draws (chains, draws, d), gradients that they took, and the share that was accepted."""
    from blackjax import adjusted_mclmc_find_L_and_step_size
    from blackjax.mcmc import adjusted_mclmc_dynamic as dynamic

    kernel = dynamic.build_kernel(
        integration_steps_fn=dynamic.make_random_trajectory_length_fn(True),
        next_random_arg_fn=lambda key: jax.random.split(key)[1],
    )

    def start(key: Any, position: Any) -> Any:
        return dynamic.init(position, log_density, key)

    @jax.jit
    def chain(key: Any, position: Any) -> Any:
        key_start, key_tune, key_run = jax.random.split(key, 3)
        state, found, *_ = adjusted_mclmc_find_L_and_step_size(
            kernel, log_density, TUNING, start(key_start, position), key_tune, ACCEPTANCE,
            diagonal_preconditioning=False, target_num_integration_steps=float(length),
        )  # fmt: skip

        def step(state: Any, key: Any) -> Any:
            state, info = kernel(
                key, state, log_density, found.step_size,
                integration_steps_params=(found.L / found.step_size,),
            )  # fmt: skip
            return state, (state.position, info.num_integration_steps, info.acceptance_rate)

        return jax.lax.scan(step, state, jax.random.split(key_run, DRAWS))[1]

    keys = jax.random.split(key, len(starts))
    draws, steps, accepted = jax.lax.map(lambda pair: chain(*pair), (keys, starts))
    # Two gradients a step by McLachlan's integrator.
    return np.asarray(draws, np.float64), 2.0 * float(np.sum(steps)), float(np.mean(accepted))


def rate(draws: np.ndarray, gradients: float) -> float:
    """ESS of the worst mean for a thousand gradients; 0 where the chains have not come together."""
    if not np.max(diagnostics.r_hat(draws)) < 1.05:
        return 0.0
    return 1_000.0 * float(np.min(diagnostics.ess(draws, "mean"))) / gradients


def row(name: str, seconds: float) -> list[str] | None:
    """A line of the table; None where NUTS was not the engine."""
    problem = bank.cases()[name].make()
    result = ex.infer(
        problem.target, problem.start, key=jax.random.key(0), max_seconds=seconds, progress=False
    )
    if not any(d.chosen == "NUTS" for d in result.account.decisions):
        return None
    coordinates, samples = result.tuned.coordinates, result.samples
    if samples.final_state.position.dtype != jax.numpy.result_type(float):
        return None  # it was done again in double precision, in which this process is not
    d = coordinates.dimension
    draws = coordinates.of_chains(samples.position).reshape(*samples.info.potential.shape, d)
    nuts = rate(np.asarray(draws, np.float64), float(np.sum(samples.info.evaluations)))

    def log_density(u: Any) -> Any:
        return -problem.target.potential(coordinates.position(u))

    best = (0.0, 0, 0.0)
    starts = samples.final_state.position
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        for number, length in enumerate(LENGTHS):
            key = jax.random.fold_in(jax.random.key(1), number)
            found, gradients, accepted = microcanonical(log_density, starts, length, key)
            best = max(best, (rate(found, gradients), length, accepted))
    ratio = best[0] / nuts if nuts else np.nan
    cells = [str(d), f"{nuts:.1f}", f"{best[0]:.1f}", str(best[1]), f"{best[2]:.2f}"]
    return [name, *cells, f"{ratio:.2f}"]


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser("python -m benchmarks microcanonical", description=__doc__)
    parser.add_argument("names", nargs="*", default=CASES, help="cases of the bank of strangers")
    parser.add_argument("--seconds", type=float, default=120.0, help="max_seconds of infer")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the table there")
    given = parser.parse_args(arguments)
    table = Table(
        "Adjusted microcanonical dynamics against NUTS, in the same coordinates",
        ("posterior", "d", "NUTS", "microcanonical", "steps", "accepted", "ratio"),
        notes=["ESS of the worst mean for 1,000 gradients; 0: the chains do not agree."],
    )
    for name in given.names:
        cells = row(name, given.seconds)
        if cells is not None:
            table.rows.append(cells)
            print(*cells, flush=True)
    print(f"\n{table.text()}")
    if given.markdown:
        given.markdown.write_text(table.markdown() + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
