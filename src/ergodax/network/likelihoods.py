"""What a network's outputs mean: the likelihood of a target, and what it predicts."""

import abc
import math
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from ergodax import tree
from ergodax.checks import positive


class Outlook(NamedTuple):
    """What one draw predicts for n rows.

    Attributes:
        mean: probabilities of the classes, shape (n, classes); the probability of class 1,
            shape (n,); or expected targets, shape (n, ...).
        noise: the variance of a target about it, a number or shape (n,); None for classes.
    """

    mean: Float[Array, "n ..."]
    noise: Float[Array, ""] | Float[Array, " n"] | None


class Likelihood(eqx.Module):
    """The density of a target, given the network's output, and parameters of its own."""

    def start(self) -> dict[str, Array]:
        """The likelihood's own parameters where a chain begins; none by default."""
        return {}

    def log_prior(self, parameters: dict[str, PyTree]) -> Float[Array, ""] | float:
        """The log prior density of its own parameters."""
        return 0.0

    @abc.abstractmethod
    def log_density(
        self, parameters: dict[str, PyTree], outputs: Array, targets: Array
    ) -> Float[Array, " n"]:
        """The log density of each target at a position, normalised."""

    @abc.abstractmethod
    def outlook(self, parameters: dict[str, PyTree], outputs: Array) -> Outlook:
        """What the network's outputs at a position predict for each row."""

    @abc.abstractmethod
    def check(self, outputs: jax.ShapeDtypeStruct, targets: Any) -> None:
        """Refuse outputs or targets of a wrong shape or range; each has the leading axis n."""


class Gaussian(Likelihood):
    """Regression: y = f(x) + N(0, noise^2), the noise known or learned.

    The position of a network whose noise is learned has a further entry "log_noise", with a
    normal prior: the noise is log-normal.

    Args:
        noise: the standard deviation if it is known; None to learn it.
        median: of the learned noise's prior, and where chains begin.
        spread: standard deviation of the learned noise's logarithm.

    Raises:
        TypeError: not a number.
        ValueError: a number that is not positive and finite.
    """

    noise: Float[Array, ""] | None
    median: Float[Array, ""]
    spread: Float[Array, ""]

    def __init__(self, noise: Any = None, *, median: Any = 0.3, spread: Any = 1.0) -> None:
        self.noise = None if noise is None else positive("noise")(noise)
        self.median, self.spread = positive("median")(median), positive("spread")(spread)

    def start(self) -> dict[str, Array]:
        """The logarithm of the noise where it is learned."""
        return {} if self.noise is not None else {"log_noise": jnp.log(self.median)}

    def log_prior(self, parameters: dict[str, PyTree]) -> Float[Array, ""] | float:
        """Normal in the logarithm."""
        if self.noise is not None:
            return 0.0
        value = parameters["log_noise"]
        spread = tree.cast(self.spread, value)
        z = (value - jnp.log(tree.cast(self.median, value))) / spread
        return -0.5 * z**2 - jnp.log(spread) - 0.5 * math.log(2.0 * math.pi)

    def log_density(
        self, parameters: dict[str, PyTree], outputs: Array, targets: Array
    ) -> Float[Array, " n"]:
        """Normal, independent over the components of a target."""
        log_noise = self._log_noise(parameters, outputs)
        outputs = outputs.reshape(targets.shape)
        z = (tree.cast(targets, outputs) - outputs) * jnp.exp(-log_noise)
        density = -0.5 * z**2 - log_noise - 0.5 * math.log(2.0 * math.pi)
        return jnp.sum(density.reshape(len(density), -1), axis=1)

    def outlook(self, parameters: dict[str, PyTree], outputs: Array) -> Outlook:
        """The output and the noise's variance; a trailing axis of one is dropped."""
        mean = outputs[:, 0] if outputs.ndim == 2 and outputs.shape[1] == 1 else outputs
        return Outlook(mean, jnp.exp(2.0 * self._log_noise(parameters, outputs)))

    def _log_noise(self, parameters: dict[str, PyTree], like: Array) -> Array:
        if self.noise is not None:
            return jnp.log(tree.cast(self.noise, like))
        return tree.cast(parameters["log_noise"], like)

    def check(self, outputs: jax.ShapeDtypeStruct, targets: Any) -> None:
        """As many outputs as targets.

        Raises:
            ValueError: more or fewer.
        """
        if math.prod(outputs.shape) != math.prod(jnp.shape(targets)):
            raise ValueError(
                f"the network's output for a row has shape {outputs.shape[1:]}, but a target has "
                f"shape {jnp.shape(targets)[1:]}: regression needs one output for each number."
            )


class HeteroscedasticGaussian(Likelihood):
    """Regression with a noise that differs between rows: y = m(x) + N(0, s(x)^2).

    The outputs of a row are m and a number a, of which s = floor + log(1 + exp(a)).

    Args:
        floor: the least standard deviation, in the target's units: where rows can be fitted
            exactly, the density has no bound without it.

    Raises:
        TypeError: not a number.
        ValueError: a number that is not positive and finite.
    """

    floor: Float[Array, ""] = eqx.field(default=1e-3, converter=positive("floor"))

    def log_density(
        self, parameters: dict[str, PyTree], outputs: Array, targets: Array
    ) -> Float[Array, " n"]:
        """Normal, with the row's own standard deviation."""
        mean, noise = outputs[:, 0], self._variance(outputs)
        apart = tree.cast(targets, mean).reshape(mean.shape) - mean
        return -0.5 * (apart**2 / noise + jnp.log(2.0 * math.pi * noise))

    def outlook(self, parameters: dict[str, PyTree], outputs: Array) -> Outlook:
        """The first output, and the variance by the second."""
        return Outlook(outputs[:, 0], self._variance(outputs))

    def _variance(self, outputs: Array) -> Float[Array, " n"]:
        return (tree.cast(self.floor, outputs) + jax.nn.softplus(outputs[:, 1])) ** 2

    def check(self, outputs: jax.ShapeDtypeStruct, targets: Any) -> None:
        """Two outputs, and one target.

        Raises:
            ValueError: more or fewer.
        """
        if outputs.shape[1:] != (2,) or math.prod(jnp.shape(targets)) != outputs.shape[0]:
            raise ValueError(
                "HeteroscedasticGaussian needs two outputs for a row and one target, not outputs "
                f"of shape {outputs.shape[1:]} and targets of {jnp.shape(targets)[1:]}."
            )


class Categorical(Likelihood):
    """Classification: the outputs of a row are the logits of its classes."""

    def log_density(
        self, parameters: dict[str, PyTree], outputs: Array, targets: Array
    ) -> Float[Array, " n"]:
        """The log-softmax at the label; NaN for what is no label."""
        density = jax.nn.log_softmax(outputs, axis=-1)
        labels = targets.astype(jnp.int32)[:, None]
        found = jnp.take_along_axis(density, labels, axis=-1, mode="clip")[:, 0]
        return _of_labels(found, targets, outputs.shape[-1])

    def outlook(self, parameters: dict[str, PyTree], outputs: Array) -> Outlook:
        """The softmax."""
        return Outlook(jax.nn.softmax(outputs, axis=-1), None)

    def check(self, outputs: jax.ShapeDtypeStruct, targets: Any) -> None:
        """A vector of logits, and labels from 0 to classes - 1.

        Raises:
            ValueError: no such vector, or other labels.
        """
        if len(outputs.shape) != 2 or outputs.shape[1] < 2:
            raise ValueError(
                "classification needs a vector of at least 2 logits for a row, not an output of "
                f"shape {outputs.shape[1:]}. For two classes and one output try "
                "network.likelihoods.Bernoulli()."
            )
        check_labels(targets, outputs.shape[1])


class Bernoulli(Likelihood):
    """Classification in two: the output of a row is the log odds of class 1."""

    def log_density(
        self, parameters: dict[str, PyTree], outputs: Array, targets: Array
    ) -> Float[Array, " n"]:
        """log sigmoid of the log odds, or of minus them; NaN for what is no label."""
        logits = outputs.reshape(targets.shape)
        signed = jnp.where(targets.astype(jnp.int32) == 1, logits, -logits)
        return _of_labels(jax.nn.log_sigmoid(signed), targets, 2)

    def outlook(self, parameters: dict[str, PyTree], outputs: Array) -> Outlook:
        """The probability of class 1."""
        return Outlook(jax.nn.sigmoid(outputs.reshape(len(outputs))), None)

    def check(self, outputs: jax.ShapeDtypeStruct, targets: Any) -> None:
        """One output, and labels 0 and 1.

        Raises:
            ValueError: several outputs, or other labels.
        """
        if math.prod(outputs.shape) != outputs.shape[0]:
            raise ValueError(
                f"Bernoulli needs one output for a row, not shape {outputs.shape[1:]}. "
                "For more classes try network.likelihoods.Categorical()."
            )
        check_labels(targets, 2)


def _of_labels(density: Array, targets: Array, classes: int) -> Float[Array, " n"]:
    """The density; NaN where a target is no label, as rows may have that are read later.

    A factor, so that the gradient is NaN as well, which is all that many samplers look at.
    """
    labels = targets.astype(jnp.int32)
    right = (labels.astype(targets.dtype) == targets) & (labels >= 0) & (labels < classes)
    return density * jnp.where(right, 1.0, jnp.nan).astype(density.dtype)


def check_labels(targets: Any, classes: int) -> None:
    """Refuse labels that are not integers from 0 to classes - 1. Raises: ValueError."""
    if jnp.ndim(targets) != 1:
        raise ValueError(f"labels must have shape (n,), not {jnp.shape(targets)}.")
    if tree.is_traced(targets):
        return
    labels = np.asarray(targets)
    wrong = labels[(labels != np.floor(labels)) | (labels < 0) | (labels >= classes)]
    if len(wrong):
        raise ValueError(
            f"labels must be integers from 0 to {classes - 1}, not {wrong[0]!r}. "
            "np.unique(labels, return_inverse=True)[1] numbers any labels so."
        )
