"""Models with groups by `infer`: the verdict, the seconds, and how far off what is known.

Where parameters were simulated, `off` is the largest distance of a posterior mean from the truth,
in posterior sds. `--nuts` sets NumPyro's NUTS beside it, for the flights of New York.
"""

import argparse
import time
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

import ergodax as ex
from benchmarks.groups.models import CASES, MONTHS, Model, new_york
from benchmarks.groups.peer import by_nuts, compared, ours


def main(arguments: Sequence[str]) -> None:
    """Run the cases that are named, or all; print each as soon as it is known."""
    listed = "\n".join(f"  {name:<18}{what}" for name, (what, _) in CASES.items())
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks groups",
        description=f"{__doc__}\n{listed}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("cases", nargs="*", choices=[[], *CASES], help="by default all")
    parser.add_argument("--max-seconds", type=float, default=600.0, help="of each inference")
    parser.add_argument("--accuracy", type=float, default=0.05, help="in posterior sds")
    parser.add_argument("--latents", action="store_true", help="draw the latents too")
    nuts = "draws of each of two chains of NumPyro's NUTS, after as many of warm-up; 0: none"
    parser.add_argument("--nuts", type=int, default=0, metavar="DRAWS", help=nuts)
    parser.add_argument("--verbose", action="store_true", help="print tables and decisions")
    options = parser.parse_args(arguments)
    if options.nuts and not set(options.cases) & set(MONTHS):
        parser.error(f"--nuts has a model for {' and '.join(MONTHS)} alone; name one of them.")
    if options.nuts:
        import numpyro

        numpyro.set_host_device_count(2)
    for name in options.cases or CASES:
        model = CASES[name][1]()
        began = time.perf_counter()
        key = jax.random.key(0)
        given = {"accuracy": options.accuracy, "max_seconds": options.max_seconds}
        result = ex.infer(model.posterior, model.start, key=key, progress=False, **given)
        seconds = time.perf_counter() - began
        if options.verbose:
            print(f"\n{result}\n")
        line = f"{name:<18}{seconds:7.1f} s  ess {result.table['ess'].min():9,.0f}  "
        print(f"{line}{_off(model, result)}{result.verdict()}", flush=True)
        if options.latents:
            print(f"{'':<18}{_latents(model, result)}", flush=True)
        if options.nuts and name in MONTHS:
            flights = new_york(MONTHS[name])
            mine, theirs = ours(flights, result, seconds), by_nuts(flights, options.nuts)
            print(f"\n{compared(mine, theirs).text()}\n", flush=True)


def _off(model: Model, result: Any) -> str:
    """How far the truth lies from the means."""
    named, far = result.samples.named(), []
    for name, truth in model.truth.items():
        draws = named[name].reshape(-1, *named[name].shape[2:])
        far.append(np.max(np.abs(draws.mean(axis=0) - truth) / draws.std(axis=0)))
    return f"off {max(far):.1f} sd  " if far else ""


def _latents(model: Model, result: Any) -> str:
    """What a draw of all latents takes."""
    draws = jax.tree.map(lambda x: x[:, ::10], result.samples.position)
    began = time.perf_counter()
    latents = model.posterior.latents(draws, key=jax.random.key(1))
    return f"latents {latents.shape} in {time.perf_counter() - began:.1f} s"
