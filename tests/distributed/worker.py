"""One of several processes: `python worker.py SCENARIO FOLDER`, its number in the environment."""

import json
import sys
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import ergodax as ex
from ergodax import distributed
from ergodax.cluster.meshes import mesh
from ergodax.driver.progress import Clock
from ergodax.gradient.sharded import Stratified

D, N = 3, 41
_RNG = np.random.default_rng(1)
X = _RNG.normal(size=(N, D)).astype(np.float32)


def log_prior(w: Any) -> Any:
    return -0.5 * jnp.sum(w**2)


def log_likelihood(w: Any, x: Any) -> Any:
    return -0.5 * jnp.sum((x - w) ** 2)


def posterior(data: Any = X) -> ex.Posterior:
    return ex.Posterior(log_prior, log_likelihood, data)


def streamed(folder: Path) -> Any:
    """The rows from a file, in blocks that last for a few steps."""
    return ex.data.npy(folder / "x.npy", block_rows=12)


def kernel(step_size: float = 0.01, shards: int = 0, data: Any = X) -> Any:
    batch = ex.Minibatch(posterior(data), 4)
    return ex.sghmc(Stratified(batch, shards) if shards else batch, step_size, 1.0)


def sample(kernel: Any, steps: int = 40, **more: Any) -> ex.Samples:
    """Four chains, in chunks of 8 steps."""
    Clock.steps = lambda self: 8
    key = jax.random.key(3)
    options: dict[str, Any] = dict(key=key, num_chains=4, progress=False) | more
    return ex.sample(kernel, jnp.zeros(D, jnp.float32), steps, **options)


def error_of(call: Any) -> str:
    """The error that a call ends in."""
    try:
        call()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "none"


def together(folder: Path, number: int) -> dict[str, str]:
    """Runs that all come through, or all end."""
    chains, data = mesh(), mesh(1, 2)
    for name, where, shards in (("chains", chains, 0), ("data", data, 2)):
        stored = ex.Checkpoint(store=folder / name)
        own = sample(kernel(shards=shards), mesh=where, checkpoint=stored)
        every = distributed.gather(own, where)
        np.save(folder / f"{name}-{number}.npy", every.position)
        assert own.num_chains == (2 if name == "chains" else 4)
        same = jax.tree.map(np.array_equal, ex.Samples.load(folder / name).info, every.info)
        assert all(jax.tree.leaves(same)), "stored and gathered"
    stream = sample(kernel(data=streamed(folder)), mesh=chains)
    np.save(folder / f"stream-{number}.npy", distributed.gather(stream, chains).position)
    (folder / "file").touch()
    bad = ex.Checkpoint(store=folder / "file" / "run" if number == 1 else folder / "run")
    return {
        "step size": error_of(lambda: sample(kernel(0.01 + 0.01 * number), mesh=chains)),
        "steps": error_of(lambda: sample(kernel(), 40 + number, mesh=chains)),
        "key": error_of(lambda: sample(kernel(), key=jax.random.key(number), mesh=chains)),
        "disk": error_of(lambda: sample(kernel(), mesh=chains, checkpoint=bad)),
        "divergence": error_of(
            lambda: ex.sample(
                ex.sgld(ex.FullGradient(ex.Target(lambda x: jnp.sum(x**4))), 0.01),
                positions=jnp.ones((4, D)).at[3].set(1e30), num_chains=4, num_steps=9,
                key=jax.random.key(0), mesh=chains, progress=False,
            )
        ),
    }  # fmt: skip


def long(folder: Path, number: int) -> dict[str, Any]:
    """A run of some seconds, which can be killed and resumed."""

    def slowly(self: Clock) -> int:
        time.sleep(0.02)
        return 8

    Clock.steps = slowly
    key, start = jax.random.key(3), jnp.zeros(D, jnp.float32)
    try:
        ex.sample(
            kernel(), start, 2000, key=key, num_chains=4, mesh=mesh(), progress=False,
            checkpoint=ex.Checkpoint(folder / "run", every=0.1, resume=True),
        )  # fmt: skip
    except ex.Interrupted as stopped:
        return {"stopped": str(stopped)}
    return {"stopped": ""}


def uncaught(folder: Path, number: int) -> None:
    """An error between two runs, which nobody has told the others of."""
    for _ in range(3):
        sample(kernel(), mesh=mesh())
        if number == 1:
            raise ZeroDivisionError


def wide(mesh: Any = None, **more: Any) -> ex.Samples:
    """A position that is large enough to be split over the devices of a process."""
    normal = ex.Target(lambda w: jnp.sum((w - 0.125) ** 2))
    kernel = ex.sghmc(ex.FullGradient(normal), 0.1, 1.0)
    options: dict[str, Any] = dict(key=jax.random.key(3), num_chains=4, progress=False) | more
    return ex.sample(kernel, jnp.zeros((64, 96)), 20, thin=4, mesh=mesh, **options)


def parameters(folder: Path, number: int) -> dict[str, str]:
    """Two devices in each process, which share the arrays of a position."""
    where = mesh(2, 1, 2)
    stored = ex.Checkpoint(folder / "run", every=1e-6, store=folder / "draws")
    own = wide(where, checkpoint=stored)
    np.save(folder / f"parameters-{number}.npy", distributed.gather(own, where).position)
    assert own.num_chains == 2
    return {"over processes": error_of(lambda: wide(mesh(1, 1, 4)))}


SCENARIOS = {"together": together, "long": long, "uncaught": uncaught, "parameters": parameters}

if __name__ == "__main__":
    scenario, folder = sys.argv[1], Path(sys.argv[2])
    if scenario == "parameters":
        jax.config.update("jax_num_cpu_devices", 2)
    distributed.start(lost_after=10)
    number = jax.process_index()
    found = SCENARIOS[scenario](folder, number)
    (folder / f"found-{number}.json").write_text(json.dumps(found))
