"""What a run returns."""

from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import PyTree

from ergodax import tree
from ergodax.checks import file_path, leaves, whole_number
from ergodax.data.block import detach
from ergodax.persist import saved
from ergodax.stats.draws import check_unweighted
from ergodax.stats.summary import equal_weights, summarise, weighted


class Samples(eqx.Module):
    """The draws of one run.

    Attributes:
        position: the draws, or what `collect` made of them: leaves of shape
            (chains, draws, ...), as NumPy arrays.
        info: the Info of each draw's step, leaves of shape (chains, draws).
        final_state: the state of each chain after the last step, leading axis chains.
    """

    position: PyTree
    info: PyTree
    final_state: PyTree

    @property
    def num_chains(self) -> int:
        """How many chains."""
        return jax.tree.leaves(self.position)[0].shape[0]

    @property
    def num_draws(self) -> int:
        """Draws of each chain."""
        return jax.tree.leaves(self.position)[0].shape[1]

    def named(self) -> dict[str, np.ndarray]:
        """The leaves of `position` by name: the path of keys, joined by dots."""
        leaves = jax.tree_util.tree_leaves_with_path(self.position)
        arrays = [(path, leaf) for path, leaf in leaves if eqx.is_array(leaf)]
        return {tree.path_name(path) or "position": np.asarray(leaf) for path, leaf in arrays}

    def summary(self) -> Any:
        """A pandas DataFrame, a row for each component: mean, sd, mcse, ess, r_hat.

        mcse is the Monte Carlo standard error of the mean, ess the bulk effective sample size
        and r_hat the rank-normalised split R-hat of Vehtari et al. (2021). None of
        them sees the bias of a finite step size. Where the sampler gives the draws weights, as
        `time_rescaled` does, it is `postprocess.weighted`; else every draw counts alike: after
        decreasing steps the draws need weights, see there, and after `cyclical` the exploring
        ones must go, see `sampling_stage`.
        """
        if getattr(self.info, "weight", None) is not None:
            return weighted(self)
        return summarise(self.named())

    def equally_weighted(self) -> "Samples":
        """Draws that all count alike, from draws with weights: each as often as its weight says.

        Each chain has as many draws as before, some of them repeated and some gone, and
        `info.weight` is None. Draws without weights are returned as they are.
        """
        weight = getattr(self.info, "weight", None)
        if weight is None:
            return self
        which = equal_weights(np.asarray(weight))
        rows = np.arange(len(which))[:, None]
        info = eqx.tree_at(lambda info: info.weight, self.info, None)
        both = (self.position, info)
        position, info = jax.tree.map(lambda x: x[rows, which] if eqx.is_array(x) else x, both)
        return Samples(position, info, self.final_state)

    def sampling_stage(self) -> "Samples":
        """The draws of the sampling stages alone, where the sampler has others (`cyclical`).

        Raises:
            ValueError: the sampler has no stages, no draw lies in a sampling stage, or the
                chains are at different stages.
        """
        sampling = getattr(self.info, "sampling", None)
        if sampling is None:
            raise ValueError(
                "these draws have no info.sampling: their sampler has no exploring stage, so all "
                "of them are draws. Try the Samples as they are, or ex.cyclical."
            )
        sampling = np.asarray(sampling)
        if (sampling != sampling[:1]).any():
            raise ValueError("the chains are at different stages at the same draw.")
        if not sampling.any():
            raise ValueError(
                "no draw lies in a sampling stage. Try more steps, or a thin that does not divide "
                "the period."
            )
        return self._kept(sampling[0])

    def without(self, count: int) -> "Samples":
        """The same without the first `count` draws of each chain."""
        return self._kept(slice(whole_number("count", count, at_least=0), None))

    def _kept(self, which: Any) -> "Samples":
        both = (self.position, self.info)
        position, info = jax.tree.map(lambda x: x[:, which] if eqx.is_array(x) else x, both)
        return Samples(position, info, self.final_state)

    def to_arviz(self, *, dims: Any = None, coords: Any = None, more: Any = None) -> Any:
        """An ArviZ DataTree with groups `posterior` and `sample_stats`.

        Args:
            dims: {variable: names of its axes after chain and draw}, optional.
            coords: {axis: labels}, optional.
            more: {group: {variable: array}}, such as log likelihoods, leaves (chains, draws, ...).

        Raises:
            ValueError: the draws have weights, of which ArviZ knows nothing.
        """
        from arviz_base import from_dict

        check_unweighted(self.info, "ArviZ")
        groups: dict[str, dict[str, np.ndarray]] = {"posterior": self.named()}
        stats = {
            tree.path_name(path) or "info": np.asarray(leaf)
            for path, leaf in jax.tree_util.tree_leaves_with_path(self.info)
        }
        if stats:
            groups["sample_stats"] = stats
        for name, variables in (more or {}).items():
            groups[name] = groups.get(name, {}) | variables
        return from_dict(groups, dims=dims, coords=coords)

    def save(self, path: str | Path, *, dims: Any = None, coords: Any = None) -> Path:
        """Write to a folder, a Zarr group that ArviZ and xarray open.

        It is written beside its place and then renamed: draws that were there before stay until
        these are on the disk.

        Args:
            path: the folder; the suffix .zarr is added if there is none.
            dims: {variable: names of its axes after chain and draw}, optional.
            coords: {axis: labels}, optional.

        Returns:
            The path written.

        Raises:
            ValueError: the path ends in .npz, or an array does not begin with chains and draws.
            FileExistsError: there is something else than draws.
            CheckpointError: a run is writing to it.
        """
        final = detach(self.final_state)[1]  # the rows of a stream stay where they are
        return saved.save(Path(path), (self.position, self.info), final, dims, coords)

    @classmethod
    def load(cls, path: str | Path, like: PyTree = None) -> "Samples":
        """Read what `save` wrote, or the draws that an `ex.Checkpoint` has stored so far.

        Args:
            path: the folder; the Samples of a run that was stored have no final_state. The draws
                that several processes have stored in it are joined.
            like: a position of the same structure, needed only where the position is of a
                class that this library does not know, such as your own Equinox module;
                without it such a position comes back as a dict.

        Raises:
            FileNotFoundError: no such folder.
            CheckpointError: not a folder of draws, or damaged.
        """
        content = saved.load(file_path("path", path))
        position = content["position"]
        if like is not None:
            leaves("like", like)
            position = _as_in(like, position)
        return cls(position, content["info"], content["final_state"])


def _as_in(like: PyTree, position: PyTree) -> PyTree:
    """The arrays of `position` in the structure of `like`, matched by their paths."""
    leaves = jax.tree_util.tree_leaves_with_path(position)
    stored = {tree.path_name(path): leaf for path, leaf in leaves if eqx.is_array(leaf)}

    def find(path: tuple, leaf: Any) -> Any:
        if not eqx.is_array_like(leaf):
            return leaf
        name = tree.path_name(path)
        if name not in stored:
            raise ValueError(f"like has {name!r}, but the file's position has {sorted(stored)}.")
        return stored[name]

    return jax.tree_util.tree_map_with_path(find, like)
