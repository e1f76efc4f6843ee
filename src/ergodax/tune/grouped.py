"""`infer` of a posterior with groups: without their latents, where these can be integrated out."""

import dataclasses
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, PyTree

from ergodax import tree
from ergodax.groups.joint import JointTarget
from ergodax.groups.marginal import TooCoarse
from ergodax.groups.posterior import ACCURACY, GroupedPosterior
from ergodax.groups.quadrature import FINEST, AllGroups, account_of, log_marginal_of
from ergodax.groups.whitened import Whitened
from ergodax.target.base import AbstractTarget, Target
from ergodax.target.constrained import unconstrained
from ergodax.target.posterior import Posterior
from ergodax.tune.budget import Deadline
from ergodax.tune.curvature import LARGEST_DENSE, hessian_coordinates
from ergodax.tune.decisions import Decision, Inference
from ergodax.tune.descent import descent
from ergodax.tune.nuts import WHOLE, warm_up_seconds
from ergodax.tune.rounds import NON_CENTRED
from ergodax.tune.start import plain_coordinates
from ergodax.tune.whitening import unflattened

LOOKED_AT = 4  # draws of the shared parameters, at which the quadrature is measured
LEFT = 0.2  # of the time, that a second inference needs
SEARCH = 0.15  # of the time, for the mode with the latents
SECOND = "more-nodes"  # the folder of a second inference
INTEGRATED = "integrated out"
COLUMNS = 8  # of a Hessian at a time
ITERATIONS = 200  # of that search
AFFORDED = 0.5  # of the time: what NUTS on all groups may take, to need no other engine
STRICTER = 0.5  # times the accuracy that nodes must have at draws: at the mode, where all is best

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
    time is kept: where these need more nodes, all is done again with as many. With a checkpoint the
    second inference is kept in a folder inside of the first's.

    Args:
        infer: `ex.infer`.
        posterior: with groups.
        init: shared parameters.
        max_seconds: for the whole.
        options: the other arguments of `infer`.
    """
    began = time.perf_counter()
    kept = options.get("checkpoint") is not None  # then nothing may depend on the clock
    deadline = Deadline.never() if kept else Deadline.after(SEARCH * max_seconds)
    try:
        place, marginal = _marginal(posterior, init, deadline)
    except TooCoarse as error:
        left = _left(max_seconds, began)
        return _jointly(infer, posterior, init, str(error), max_seconds=left, **options)
    took = time.perf_counter() - began
    search = not isinstance(log_marginal_of(marginal).centres, Whitened)
    seconds, whole = max(max_seconds - took, 0.0), marginal
    if not search:
        whole = _whole(marginal, place, 0.0 if kept else seconds, options["num_chains"])
    result = infer(whole, place, max_seconds=max(seconds - took, 0.0), **options)
    account = account_of(marginal)
    if not result.converged or account.order == 1:
        return _told(result, posterior, INTEGRATED, str(account))
    try:
        better = posterior.marginal(place, *_some(result), search=search)
        found = account_of(better)
    except TooCoarse as error:
        better, why = None, f"at draws, {error}"
    else:
        if found.order <= account.order:
            found = dataclasses.replace(found, order=account.order)
            return _told(result, posterior, INTEGRATED, str(found))
        why = f"draws need more nodes than the start: {found}"
    left, options = _left(max_seconds, began), _beneath(options)
    if left < LEFT * max_seconds:
        result.account.faults.append(f"{why}; try more time")
        result = dataclasses.replace(result, converged=False)
        return _told(result, posterior, INTEGRATED, str(account))
    if better is None:
        return _jointly(infer, posterior, init, why, max_seconds=left, **options)
    again = infer(better, place, max_seconds=left, **options)
    return _told(again, posterior, INTEGRATED, why)


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
    place = _mode(posterior, init, deadline)
    if posterior.is_quadratic(place):  # latents of no variance: that is no place to begin
        return init, posterior.marginal(init)
    try:
        return place, posterior.marginal(place, accuracy=STRICTER * ACCURACY, search=False)
    except TooCoarse:
        return place, posterior.marginal(place)


def _mode(posterior: GroupedPosterior, init: PyTree, deadline: Deadline) -> PyTree:
    """The mode by Laplace's approximation: of the joint density in which z is standard normal."""
    target = posterior.joint(init)
    found = descent(target, tree.freeze(target.start), ITERATIONS, deadline=deadline)
    values = target.constrain(unflattened(target.start, found.position))["shared"]
    return values if tree.known_finite(tree.freeze(values)) else init


def _whole(
    marginal: Posterior, place: PyTree, max_seconds: float, num_chains: int
) -> AbstractTarget:
    """All groups as one target, where batches have nothing to win.

    That is where NUTS can be afforded, or where a batch of less than all groups says little of the
    curvature, which has as many numbers as the parameters squared.
    """
    target = Target(AllGroups(marginal), constraints=marginal.constraints)
    if tree.size(tree.freeze(place)) ** 2 > marginal.num_data:
        return target
    if not max_seconds:
        return marginal
    free, start = unconstrained(target, place)
    needed = WHOLE * warm_up_seconds(free, plain_coordinates(start), num_chains)
    return target if needed < AFFORDED * max_seconds else marginal


def _jointly(
    infer: Infer, posterior: GroupedPosterior, init: PyTree, why: str, **options: Any
) -> Inference:
    """Shared parameters and latents."""
    began = time.perf_counter()
    deadline = Deadline.after(SEARCH * options["max_seconds"])
    target = _rounded(posterior.joint(_mode(posterior, init, deadline)))
    options["max_seconds"] = max(options["max_seconds"] - (time.perf_counter() - began), 0.0)
    result = infer(target, target.start, **options)
    kind = "in numbers of unit scale by the curvature at the mode"
    return _told(result, posterior, "sampled with the rest", f"{why}; all {kind}")


@eqx.filter_jit
def _bend(target: JointTarget) -> Float[Array, "p p"]:
    """The Hessian in the numbers of the shared parameters, all z at 0."""
    flat, unravel = tree.ravel(tree.freeze(target.start["shared"]))
    rest = target.start["z"]
    slope = jax.grad(lambda x: target.potential({"shared": tree.thaw(unravel(x)), "z": rest}))
    columns = jnp.eye(len(flat), dtype=flat.dtype)
    return lax.map(lambda e: jax.jvp(slope, (flat,), (e,))[1], columns, batch_size=COLUMNS)


def _rounded(target: JointTarget) -> JointTarget:
    """The target with shared parameters of unit scale, where their curvature can be had."""
    place = target.start["shared"]
    if tree.size(tree.freeze(place)) > LARGEST_DENSE:
        return target
    found = hessian_coordinates(place, np.asarray(_bend(target)))
    centre = tree.ravel(tree.freeze(place))[0]
    return target.rounded(centre, found.basis) if np.isfinite(found.basis).all() else target


def _beneath(options: dict[str, Any]) -> dict[str, Any]:
    """The options of a second inference, whose checkpoint lies inside of the first's."""
    given = options.get("checkpoint")
    if given is None:
        return options
    places = {name: getattr(given, name) for name in ("folder", "store")}
    inside = {name: place and Path(place) / SECOND for name, place in places.items()}
    return {**options, "checkpoint": dataclasses.replace(given, **inside)}


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
    """With the decision about the latents in front, and the others in terms of groups.

    What `infer` has sampled without latents are the shared parameters, given groups for rows; and
    in both cases nothing is to be had from writing the model in another form.
    """
    account = result.account

    def said(text: str) -> str:
        text = text.replace(NON_CENTRED, "")
        return re.sub(r"\brows\b", "groups", text) if chosen == INTEGRATED else text

    account.decisions[:] = [
        Decision(d.what, said(d.chosen), said(d.why)) for d in account.decisions
    ]
    account.faults[:] = [said(fault) for fault in account.faults]
    what = f"{posterior.num_data} rows in {posterior.num_groups} groups: {why}"
    account.decisions.insert(0, Decision("latents", chosen, what))
    return result
