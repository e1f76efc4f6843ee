"""`infer` of a posterior with groups: without their latents, where these can be integrated out."""

import dataclasses
import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jaxtyping import PyTree

from ergodax import tree
from ergodax.groups.marginal import TooCoarse
from ergodax.groups.posterior import ACCURACY, GroupedPosterior
from ergodax.groups.quadrature import FINEST, account_of
from ergodax.groups.whitened import Whitened
from ergodax.target.posterior import Posterior
from ergodax.tune.budget import Deadline
from ergodax.tune.decisions import Decision, Inference
from ergodax.tune.start import descent
from ergodax.tune.whitening import unflattened

LOOKED_AT = 4  # draws of the shared parameters, at which the quadrature is measured
LEFT = 0.2  # of the time, that a second inference needs
SEARCH = 0.15  # of the time, for the mode with the latents
ITERATIONS = 200  # of that search
STRICTER = 0.1  # times the accuracy that nodes must have at draws: at the mode, where all is best

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
        place, marginal = _marginal(posterior, init, Deadline.after(SEARCH * max_seconds))
    except TooCoarse as error:
        left = _left(max_seconds, began)
        return _jointly(infer, posterior, init, str(error), max_seconds=left, **options)
    took = time.perf_counter() - began
    search = isinstance(marginal.log_likelihood.centres, Whitened)
    result = infer(marginal, place, max_seconds=max(max_seconds - 2.0 * took, 0.0), **options)
    account = account_of(marginal)
    if not result.converged or account.order == 1:
        return _told(result, posterior, "integrated out", str(account))
    try:
        better = posterior.marginal(place, *_some(result), search=not search)
        found = account_of(better)
    except TooCoarse as error:
        better, why = None, f"at draws, {error}"
    else:
        if found.order <= account.order:
            found = dataclasses.replace(found, order=account.order)
            return _told(result, posterior, "integrated out", str(found))
        why = f"draws need more nodes than the start: {found}"
    left = _left(max_seconds, began)
    if left < LEFT * max_seconds or options.get("checkpoint") is not None:
        result.account.faults.append(f"{why}; begin there, with more time and no checkpoint")
        result = dataclasses.replace(result, converged=False)
        return _told(result, posterior, "integrated out", str(account))
    if better is None:
        return _jointly(infer, posterior, init, why, max_seconds=left, **options)
    again = infer(better, place, max_seconds=left, **options)
    return _told(again, posterior, "integrated out", why)


def _marginal(
    posterior: GroupedPosterior, init: PyTree, deadline: Deadline
) -> tuple[PyTree, Posterior]:
    """Where to begin, and the posterior without its latents.

    Unless these are known in closed form, their modes are predicted from those at the mode of
    Laplace's approximation: the joint density with every latent at its own. Where no rule is good
    enough by that, they are searched for.

    Raises:
        TooCoarse: no rule is good enough.
    """
    if posterior.density.dimension not in FINEST or posterior.is_quadratic(init):
        return init, posterior.marginal(init)
    target = posterior.joint(init)
    found = descent(target, tree.freeze(target.start), ITERATIONS, deadline=deadline)
    values = target.constrain(unflattened(target.start, found.position))["shared"]
    place = values if tree.known_finite(tree.freeze(values)) else init
    try:
        return place, posterior.marginal(place, accuracy=STRICTER * ACCURACY, search=False)
    except TooCoarse:
        return place, posterior.marginal(place)


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
