"""`infer` as a contestant, with its times and its errors."""

import time

import jax
import jax.numpy as jnp
import numpy as np

import ergodax as ex
from ergodax.apps.compare_measure import CHAINS, OURS, Limits, Measured, measured, until_goal
from ergodax.apps.compare_problem import Problem
from ergodax.tune.infer import infer
from ergodax.tune.nuts import Nuts

CHUNK = 4_000  # draws of a chunk of its kernel, at most
CHUNK_SECONDS = 2.0  # that a chunk takes, about
FEW = 100  # draws, whose time tells how many make a chunk


def run_ours(problem: Problem, seed: int, limits: Limits) -> Measured:
    """`infer` at its default accuracy, then its kernel on, to the goal."""
    key, key_draw = jax.random.split(jax.random.key(seed))
    begin = time.perf_counter()
    found = infer(problem.posterior, jnp.zeros(problem.dimension), key=key, progress=False)
    tuned, positions = found.tuned, found.samples.final_state.position

    def more(number: int) -> np.ndarray:
        nonlocal positions
        samples = ex.sample(
            tuned.kernel,
            positions=positions,
            num_steps=chunk * tuned.thin,
            thin=tuned.thin,
            num_chains=CHAINS,
            collect=tuned.coordinates.position,
            key=jax.random.fold_in(key_draw, number + 3),
            progress=False,
        )
        positions = samples.final_state.position
        evaluations.append(float(np.mean(samples.info.evaluations)))
        return np.asarray(samples.position)

    evaluations: list[float] = []
    chunk, paces = FEW, []
    for number in (-3, -2):  # the first compiles
        start = time.perf_counter()
        more(number)
        paces.append((time.perf_counter() - start) / FEW)
    chunk = int(np.clip(CHUNK_SECONDS / paces[-1], FEW, CHUNK))
    more(-1)  # compiles a buffer of this size; all this is charged as set-up
    evaluations.clear()
    set_up = time.perf_counter() - begin
    draws, seconds = until_goal(more, limits)
    what = [d.chosen for d in found.account.decisions if d.what in ("estimator", "sampler")]
    bound = 0.0 if tuned.bias is None else tuned.bias.worst(coarse=True)
    told = found.verdict().split(":")[0]
    note = f"{told}; {'; '.join(what)}; bias by its own bound at most {bound:.3f} sd"
    whole = tuned.bias is None  # NUTS, whose evaluations are of all rows, or HMC on some of them
    rows = 1 if isinstance(tuned.kernel, Nuts) else problem.num_data
    return measured(
        OURS, problem, set_up, draws, seconds, limits, note, tuned.thin,
        float(np.mean(evaluations)) / rows if whole else None,
    )  # fmt: skip
