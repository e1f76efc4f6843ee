"""Make generated calls and print what they came to: python -m property.calls --count 20000.

In an interpreter of its own, without the type checker of the tests, as users have it.
"""

import argparse
import collections
import contextlib
import faulthandler
import io
import json
import os
import resource
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("JAX_TRACEBACK_FILTERING", "off")  # the frames of JAX are what is looked for

import jax  # noqa: E402
import numpy as np  # noqa: E402

from ergodax import Kernel  # noqa: E402
from property.calls import subjects, values  # noqa: E402
from property.calls.builders import builders  # noqa: E402
from property.calls.outcomes import Outcome, outcome  # noqa: E402
from property.calls.users import users  # noqa: E402

HARD_LIMIT = 120  # seconds, of a call that does not come back from compiled code
MEMORY = 16 << 30  # bytes of addresses: a call that asks for more fails, and not the machine
TRACED = 0.1  # share of the kernels whose first step is traced


def generated(seed: int, number: int, named: dict[str, subjects.Subject]) -> tuple[str, dict]:
    """A subject and its arguments, one to three of them spoilt; call `number` of this seed."""
    rng = np.random.default_rng((seed, number))
    weights = np.array([subject.weight for subject in named.values()])
    name = list(named)[rng.choice(len(named), p=weights / weights.sum())]
    arguments = dict(named[name].arguments)
    spoilt = rng.choice(len(arguments), min(1 + rng.poisson(0.3), len(arguments)), replace=False)
    for k in spoilt:
        key, value = list(arguments)[k], values.hostile(rng)
        arguments[key] = (value,) if key == "*" else value
    return name, arguments


def called(name: str, arguments: dict[str, Any], subject: subjects.Subject, trace: bool) -> Any:
    """Make a call, and trace the first step of a kernel."""
    more = {key: value for key, value in arguments.items() if key != "*"}
    with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
        result = subject.function(*arguments.get("*", ()), **more)
        if trace and isinstance(result, Kernel):
            state = jax.eval_shape(result.init, subjects.KEY, subjects.START)
            jax.eval_shape(result.step, subjects.KEY, state)


def made(count: int, seed: int, first: int = 0, only: str = "") -> dict[int, tuple[str, Outcome]]:
    """What each of the calls came to, by its number."""
    found = {}
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        everything = builders() | users(Path(folder))
        named = {name: each for name, each in everything.items() if name.startswith(only)}
        for number in range(first, first + count):
            name, arguments = generated(seed, number, named)
            trace = number % round(1 / TRACED) == 0
            call = lambda: called(name, arguments, named[name], trace)  # noqa: E731, B023
            faulthandler.dump_traceback_later(HARD_LIMIT, exit=True)
            found[number] = (name, outcome(call))
            faulthandler.cancel_dump_traceback_later()
    return found


def report(found: dict[int, tuple[str, Outcome]], seconds: float) -> str:
    """Counts of each kind, and the places of those from inside, the most frequent first."""
    kinds = collections.Counter(each.kind for _, each in found.values())
    lines = [f"{len(found)} calls, {seconds:.0f} s"]
    for kind in ("fine", "refused", "inside", "hang"):
        lines.append(f"  {kind:<8} {kinds[kind]:>6}  {100 * kinds[kind] / len(found):.2f} %")
    places = collections.defaultdict(list)
    for number, (name, each) in found.items():
        if each.kind in ("inside", "hang"):
            places[name, each.where].append((number, each.message))
    for (name, where), those in sorted(places.items(), key=lambda item: -len(item[1])):
        number, message = those[0]
        lines.append(f"  {len(those):>4} {name}  {where}  #{number}: {message}")
    return "\n".join(lines)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="number of the first call")
    parser.add_argument("--only", default="", help="subjects whose names begin so")
    parser.add_argument("--json", action="store_true", help="the counts, for a test")
    options = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    begun = time.process_time()
    found = made(options.count, options.seed, options.first, options.only)
    text = report(found, time.process_time() - begun)
    kinds = collections.Counter(each.kind for _, each in found.values())
    print(json.dumps({"kinds": kinds, "report": text}) if options.json else text)


if __name__ == "__main__":
    main()
