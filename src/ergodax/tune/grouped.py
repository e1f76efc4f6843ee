"""`infer` of a posterior with groups: without their latents, where these can be integrated out."""

import dataclasses
import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jaxtyping import PyTree

from ergodax.groups.marginal import TooCoarse
from ergodax.groups.posterior import GroupedPosterior
from ergodax.groups.quadrature import account_of
from ergodax.tune.decisions import Decision, Inference

LOOKED_AT = 4  # draws of the shared parameters, at which the quadrature is measured
LEFT = 0.2  # of the time, that a second inference needs

Infer = Callable[..., Inference]


def infer_groups(
    infer: Infer,
    posterior: GroupedPosterior,
    init: PyTree,
    *,
    max_seconds: float,
    options: dict[str, Any],
) -> Inference:
    """Sample the shared parameters alone, or with the latents where these can't be integrated out.

    The quadrature's nodes are chosen at `init`, and looked at again at draws, for which as much
    time is kept: where these need more nodes, all is done again with as many.

    Args:
        infer: `ex.infer`.
        posterior: with groups.
        init: shared parameters.
        max_seconds: for the whole.
        options: the other arguments of `infer`.
    """
    began = time.perf_counter()
    try:
        marginal = posterior.marginal(init)
    except TooCoarse as error:
        left = _left(max_seconds, began)
        return _jointly(infer, posterior, init, str(error), max_seconds=left, **options)
    took = time.perf_counter() - began
    result = infer(marginal, init, max_seconds=max(max_seconds - 2.0 * took, 0.0), **options)
    if not result.converged:
        return _told(result, posterior, "integrated out", str(account_of(marginal)))
    try:
        better = posterior.marginal(init, *_some(result))
        found = account_of(better)
    except TooCoarse as error:
        better, why = None, f"at draws, {error}"
    else:
        if found.order <= account_of(marginal).order:
            return _told(result, posterior, "integrated out", str(found))
        why = f"draws need more nodes than the start: {found}"
    left = _left(max_seconds, began)
    if left < LEFT * max_seconds or options.get("checkpoint") is not None:
        result.account.faults.append(f"{why}; begin there, with more time and no checkpoint")
        result = dataclasses.replace(result, converged=False)
        return _told(result, posterior, "integrated out", str(account_of(marginal)))
    if better is None:
        return _jointly(infer, posterior, init, why, max_seconds=left, **options)
    again = infer(better, init, max_seconds=left, **options)
    return _told(again, posterior, "integrated out", why)


def _jointly(
    infer: Infer, posterior: GroupedPosterior, init: PyTree, why: str, **options: Any
) -> Inference:
    """Shared parameters and latents."""
    target = posterior.joint(init)
    result = infer(target, target.start, **options)
    kind = "from non-centred to centred by the information of each group's rows"
    return _told(result, posterior, "sampled with the rest", f"{why}; latents {kind}")


def _left(max_seconds: float, began: float) -> float:
    return max(max_seconds - (time.perf_counter() - began), 0.0)


def _some(result: Inference) -> list[PyTree]:
    """Draws of all chains, evenly."""
    draws = result.samples.num_chains * result.samples.num_draws
    places = np.linspace(0, draws - 1, LOOKED_AT).round().astype(int)

    def at(place: int) -> PyTree:
        return jax.tree.map(
            lambda x: x.reshape(-1, *x.shape[2:])[place] if hasattr(x, "shape") else x,
            result.samples.position,
        )

    return [at(int(place)) for place in places]


def _told(result: Inference, posterior: GroupedPosterior, chosen: str, why: str) -> Inference:
    """With the decision about the latents in front of all others."""
    what = f"{posterior.num_data} rows in {posterior.num_groups} groups: {why}"
    result.account.decisions.insert(0, Decision("latents", chosen, what))
    return result
