"""The folders of several processes inside the one of their run, and their draws joined again."""

import re
from pathlib import Path
from typing import Any

import jax
import numpy as np

from ergodax.driver.store import DrawStore
from ergodax.errors import CheckpointError

NAME = re.compile(r"process-(\d+)\.chains-(\d+)-(\d+)-of-(\d+)")


def name_of(process: int, first: int, end: int, num_chains: int) -> str:
    """The folder of one process.

    Args:
        process: its number.
        first: its first chain.
        end: the chain after its last.
        num_chains: of all processes.
    """
    return f"process-{process}.chains-{first}-{end}-of-{num_chains}"


def read(path: str | Path) -> dict[str, Any]:
    """The draws in a folder, of one process or of several: as many of each chain as all have.

    Raises:
        CheckpointError: not a store of draws, damaged, or without the draws of some chains.
    """
    folder = Path(path)
    parts = [
        (found, one) for one in folder.glob("process-*") if (found := NAME.fullmatch(one.name))
    ]
    if not parts:
        return DrawStore(folder).read()
    # Processes that share the data of a chain have the same draws of it.
    places = {(int(found[2]), int(found[3])): one for found, one in parts}
    chains = max(int(found[4]) for found, _ in parts)
    present = {chain for first, end in places for chain in range(first, end)}
    if missing := set(range(chains)) - present:
        raise CheckpointError(
            f"{folder} has no draws of the chains {sorted(missing)} of {chains}. Copy the folders "
            "process-* of the other processes into it, from the hosts that they ran on."
        )
    stores = [DrawStore(places[place]) for place in sorted(places)]
    draws = min(store.draws for store in stores)
    return jax.tree.map(lambda *x: _joined(draws, *x), *(store.read() for store in stores))


def _joined(draws: int, *parts: Any) -> Any:
    if not isinstance(parts[0], np.ndarray):
        return parts[0]
    return np.concatenate([part[:, :draws] for part in parts])
