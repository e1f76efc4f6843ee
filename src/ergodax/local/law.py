"""The tempered law about trained weights, as a target."""

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from ergodax import tree
from ergodax.data.arrays import num_rows, sum_in_chunks
from ergodax.target.base import AbstractTarget, evaluated, returned
from ergodax.target.posterior import Posterior

CHUNK = 1024  # rows at a time: what a pass keeps stays in the caches


class _Localised(eqx.Module):
    """-gamma |w - w*|^2 / 2."""

    centre: PyTree
    localization: Float[Array, ""]

    def __call__(self, position: PyTree) -> Float[Array, ""]:
        return -0.5 * self.localization * squared_distance(position, self.centre)


class _Tempered(eqx.Module):
    """-beta (loss(w, example) - loss(w*, example)): differences keep the digits of a float32."""

    loss: Callable[[PyTree, PyTree], Any]
    centre: PyTree  # what moves: whole leaves, or of each leaf the entries at `places`
    leaves: PyTree  # those of which some entries move, at w*; None where all entries do
    places: PyTree  # the entries that move, as numbers in the flat leaf; None likewise
    rest: PyTree  # the leaves that stay as they are
    beta: Float[Array, ""]

    def weights(self, position: PyTree) -> PyTree:
        """The user's weights."""
        if self.places is not None:
            position = jax.tree.map(_put, self.leaves, self.places, position)
        return eqx.combine(position, self.rest)

    def __call__(self, position: PyTree, row: tuple[PyTree, Float[Array, ""]]) -> Array:
        example, base = row
        return -self.beta * (self.loss(self.weights(position), example) - base)


class LocalLaw(AbstractTarget):
    """U(w) = t (L_n(w) - L_n(w*)) + gamma |w - w*|^2 / 2, with t = n beta.

    The rows are gone through in chunks, so that a pass needs the memory of one chunk.
    """

    posterior: Posterior  # its data are (examples, their losses at w*)
    chunk: int = eqx.field(static=True)

    def potential(self, position: PyTree) -> Float[Array, ""]:
        """U."""
        rows, posterior = self.posterior.num_data, self.posterior
        if rows <= self.chunk:
            return posterior.potential(position)

        def part(batch: PyTree) -> Float[Array, ""]:
            return jnp.sum(posterior.log_likelihoods(position, batch))

        total = sum_in_chunks(part, posterior.data, rows, self.chunk)
        return -posterior.prior(position) - total

    def value_and_gradient(self, position: PyTree) -> tuple[Float[Array, ""], PyTree]:
        """U and its gradient, in one pass."""
        rows, posterior = self.posterior.num_data, self.posterior
        if rows <= self.chunk:
            return jax.value_and_grad(posterior.potential)(position)

        def part(batch: PyTree) -> tuple[Float[Array, ""], PyTree]:
            of = lambda x: jnp.sum(posterior.log_likelihoods(x, batch))  # noqa: E731
            return jax.value_and_grad(of)(position)

        value, score = sum_in_chunks(part, posterior.data, rows, self.chunk)
        prior, slope = posterior.prior_and_gradient(position)
        return -prior - value, jax.tree.map(lambda p, s: -p - s, slope, score)

    @property
    def evaluations(self) -> int:
        """n."""
        return self.posterior.num_data

    @property
    def num_data(self) -> int:
        """n."""
        return self.posterior.num_data

    @property
    def num_moving(self) -> int:
        """How many parameters move."""
        return tree.size(self.centre)

    @property
    def centre(self) -> PyTree:
        """What moves, at w*."""
        return self._tempered.centre

    @property
    def localization(self) -> Float[Array, ""]:
        """gamma."""
        prior: Any = self.posterior.log_prior
        return prior.localization

    @property
    def temperature(self) -> float:
        """1 / beta."""
        return 1.0 / float(self._tempered.beta)

    @property
    def _tempered(self) -> _Tempered:
        likelihood: Any = self.posterior.log_likelihood
        return likelihood

    def at_temperature(self, temperature: float) -> "LocalLaw":
        """The same law with beta = 1 / temperature."""
        beta = jnp.asarray(1.0 / temperature, self._tempered.beta.dtype)
        return eqx.tree_at(lambda law: law.posterior.log_likelihood.beta, self, beta)

    def excess_losses(self, position: PyTree) -> Float[Array, " n"]:
        """loss(w, example) - loss(w*, example) of each row, in chunks."""
        one = lambda row: self._tempered(position, row) / -self._tempered.beta  # noqa: E731
        return jax.lax.map(one, self.posterior.data, batch_size=min(self.chunk, self.num_data))


def local_law(
    loss: Callable[[PyTree, PyTree], Any],
    weights: PyTree,
    data: PyTree,
    temperature: float,
    localization: float,
    trainable: Any = None,
    chunk: int | None = None,
    name: str = "data",
) -> LocalLaw:
    """The law about `weights`; see `learning_coefficient` for the arguments.

    `name` is what the user calls the data.

    Raises:
        TypeError: weights without floating-point arrays, a loss that returns no scalar, a mask of
            another kind.
        ValueError: no leaf that is trainable, or a loss that can't be evaluated at an example.
    """
    moving, rest, mask = _taken_apart(weights, trainable)
    moving = tree.freeze(moving, "weights")
    _check_precision(moving)
    dtype = tree.result_dtype(moving)
    leaves = places = None
    if mask is not None:  # the chains do not see the entries that stay
        leaves, places = moving, jax.tree.map(np.flatnonzero, mask)
        moving = jax.tree.map(lambda x, at: x.ravel()[at], leaves, places)
        places = jax.tree.map(jnp.asarray, places)
    beta = jnp.asarray(1.0 / temperature, dtype)
    tempered = _Tempered(loss, moving, leaves, places, rest, beta)
    prior = _Localised(moving, jnp.asarray(localization, dtype))
    examples = Posterior(prior, tempered, data).data
    _check_loss(tempered, moving, examples, name)
    rows = num_rows(examples)
    zeros = jnp.zeros(rows, dtype)
    law = LocalLaw(Posterior(prior, tempered, (data, zeros)), min(chunk or CHUNK, rows))
    base = eqx.filter_jit(law.excess_losses)(moving)
    return eqx.tree_at(lambda law: law.posterior.data, law, (law.posterior.data[0], base))


def _put(leaf: Array, places: Array, values: Array) -> Array:
    """The leaf with other values at some places."""
    return leaf.ravel().at[places].set(values, unique_indices=True).reshape(leaf.shape)


def squared_distance(position: PyTree, centre: PyTree) -> Float[Array, ""]:
    """|w - w*|^2."""
    away = tree.subtract(position, centre)
    return tree.dot(away, away)


def _check_loss(tempered: _Tempered, position: PyTree, examples: PyTree, name: str) -> None:
    """Fail where the loss of one example is no number. Raises: TypeError, ValueError."""
    example = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), examples)
    loss = evaluated(
        f"loss_of_one_example can't be evaluated at the weights and one example of {name}",
        "Check the shapes of the examples against those of the weights.",
        lambda x, row: returned("loss_of_one_example", tempered.loss(tempered.weights(x), row)),
        position,
        example,
    )
    many = not isinstance(loss, jax.ShapeDtypeStruct)
    if many or loss.shape != () or not jnp.issubdtype(loss.dtype, jnp.floating):
        kind = type(loss).__name__ if many else f"{loss.dtype} of shape {loss.shape}"
        raise TypeError(
            "loss_of_one_example must return a scalar for ONE example, a floating-point number, "
            f"not {kind}. " + ("Return the loss alone." if many else "Try jnp.sum(...).")
        )


def _check_precision(moving: PyTree) -> None:
    """Refuse half precision: a Metropolis test needs the energy to within a fraction of 1."""
    coarse = [str(x.dtype) for x in jax.tree.leaves(moving) if jnp.finfo(x.dtype).bits < 32]
    if coarse:
        raise TypeError(
            f"weights has arrays of {coarse[0]} that move, whose digits are too few for energies "
            "and steps. Give them in single precision, as in jax.tree.map(lambda w: w.astype("
            "jnp.float32), weights); the loss may round them again."
        )


def _taken_apart(weights: PyTree, trainable: Any) -> tuple[PyTree, PyTree, PyTree]:
    """What moves, the rest, and a mask of entries; each in the structure of the weights."""
    floats = jax.tree.map(eqx.is_inexact_array_like, weights)
    if not any(jax.tree.leaves(floats)):
        raise TypeError("weights has no floating-point array, so there is nothing to move.")
    mask = None
    if trainable is None:
        moves = floats
    elif _names(trainable):
        named = tree.chosen_by_name(trainable, weights)
        moves = jax.tree.map(lambda is_float, chosen: is_float and chosen, floats, named)
    else:
        moves, mask = _by_tree(weights, floats, trainable)
    if not any(jax.tree.leaves(moves)):
        names = [tree.path_name(path) for path, _ in jax.tree_util.tree_leaves_with_path(weights)]
        raise ValueError(
            f"trainable={trainable!r} chooses none of the weights' leaves, which are "
            f"{', '.join(names[:20])}. Try one of these names, or a pattern such as '*weight'."
        )
    moving, rest = eqx.partition(weights, moves)
    moving = jax.tree.map(jnp.asarray, moving)
    if mask is not None:
        mask = eqx.filter(mask, moves)
    return moving, rest, mask


def _names(trainable: Any) -> bool:
    """Whether it chooses by name; a module, although it can be called, is a tree of flags."""
    if isinstance(trainable, str) or (
        callable(trainable) and not isinstance(trainable, eqx.Module)
    ):
        return True
    return isinstance(trainable, Sequence) and all(isinstance(each, str) for each in trainable)


def _by_tree(weights: PyTree, floats: PyTree, trainable: PyTree) -> tuple[PyTree, PyTree]:
    """Which leaves move at all, and which of their entries; None where that is all of them."""
    there = jax.tree.structure(weights)
    if jax.tree.structure(trainable) != there:
        raise TypeError(
            "trainable must be a name or a pattern of leaves, a list of them, a function of a "
            "leaf's name, or a tree of the weights' structure with True and False, or an array of "
            "them, at each leaf."
        )
    flags = [np.asarray(m, bool) for m in jax.tree.leaves(trainable)]
    moves = [bool(f and m.any()) for f, m in zip(jax.tree.leaves(floats), flags, strict=True)]
    if all(m.all() or not m.any() for m in flags):
        return there.unflatten(moves), None
    leaves = zip(flags, jax.tree.leaves(weights), strict=True)
    whole = [np.broadcast_to(m, np.shape(x)) for m, x in leaves]
    return there.unflatten(moves), there.unflatten(whole)
