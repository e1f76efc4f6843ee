"""Networks that fit, predict and say how sure they are, as in scikit-learn."""

import math
import types
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, PyTree
from scipy.special import ndtr
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, column_or_1d

from ergodax import network, tree
from ergodax.checks import choice, flag, instance, real_number, shown, whole_number
from ergodax.learn import members
from ergodax.learn.base import MOST_DRAWS, NUMBERS
from ergodax.learn.design import (
    as_numbers,
    check_labels,
    classes_of,
    columns_of,
    validate_data,
)
from ergodax.learn.estimators import central_interval
from ergodax.learn.members import PRIOR, Measured, Members, measured_prior
from ergodax.learn.modules import ACTIVATIONS, Perceptron, drawn_anew, each_draw, of_one_row
from ergodax.network.likelihoods import Likelihood
from ergodax.tune.budget import Deadline

STEPS_OF_EPOCH, BATCHES = 32, (16, 128)  # of the optimiser; its least and largest batch
CHECKED = 256  # rows held out on which the optimised members are measured
LEAST_ROWS = 64  # that are predicted at once, so that few programs are compiled


class _Network(BaseEstimator):
    """A Bayesian network in scikit-learn's convention.

    Args:
        hidden_layer_sizes: units of each hidden layer.
        activation: "silu", "tanh", "relu" or "gelu".
        module: in place of the layers, any that `network.posterior` takes, whose matrices are drawn
            anew for each member but the first, with their own sds; or a function of a key that
            makes one.
        prior: one of network.priors; by default normal, with an sd of 4 / sqrt(inputs) for classes;
            for a regression twice as wide as the optimised weights, and at least 1 / sqrt(inputs).
        num_members: networks, each sampled from an optimum of its own.
        max_epochs: of the optimiser, which stops when no member gets better.
        validation_fraction: of the rows, which decide when; the draws are of all rows.
        num_steps: of each member's sampling, seven tenths of them burn-in; by default 12,000, and
            as many again where predictions of the members differ and there are at most 11,000 rows.
        num_draws: of each member that are kept.
        batch_size: rows of a gradient of the sampling, where there are more.
        max_seconds: when to end, with fewer steps if need be.
        random_state: of everything random, as in scikit-learn.
        verbose: show progress bars, where standard error is a terminal.

    Attributes:
        prior_: of the weights, see `prior`.
        measured_: a `Measured`.
        verdict_: the same in words.
    """

    def __init__(
        self,
        hidden_layer_sizes: Any = (16, 16, 16, 16),
        *,
        activation: Any = "silu",
        module: Any = None,
        prior: Any = None,
        num_members: Any = 8,
        max_epochs: Any = 1000,
        validation_fraction: Any = 0.1,
        num_steps: Any = None,
        num_draws: Any = 100,
        batch_size: Any = 16_384,
        max_seconds: Any = 600.0,
        random_state: Any = None,
        verbose: Any = False,
    ) -> None:  # by convention any value is taken here, and looked at in `fit`
        self.hidden_layer_sizes = hidden_layer_sizes
        self.activation = activation
        self.module = module
        self.prior = prior
        self.num_members = num_members
        self.max_epochs = max_epochs
        self.validation_fraction = validation_fraction
        self.num_steps = num_steps
        self.num_draws = num_draws
        self.batch_size = batch_size
        self.max_seconds = max_seconds
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any) -> Any:
        """Optimise the members, and sample the weights of each.

        Args:
            X: an array or data frame of shape (rows, columns); text becomes indicators.
            y: the target, shape (rows,).

        Returns:
            The estimator itself.

        Raises:
            TypeError: data or settings of the wrong kind.
            ValueError: NaN or infinity (with the column's name), shapes that do not fit, or a
                target that is constant or has one class.
        """
        self._check_settings()
        self._design: Any = None
        x, y = self._read(X, y, reset=True)
        y = self._coded(y)
        spread = x.std(axis=0)
        self._centre, self._spread = x.mean(axis=0), np.where(spread > 0.0, spread, 1.0)
        self._key = jax.random.key(int(check_random_state(self.random_state).randint(2**31 - 1)))
        self._learn(self._scaled(x), self._targets(y), None, 1.0)
        return self

    def _more(self, X: Any, y: Any) -> Any:
        """Rows more, for members that go on from where they are."""
        self._check_settings()
        x, y = self._read(X, y, reset=False)
        old_x, old_y = self.network_posterior_.data
        new_x, new_y = self._scaled(x), self._targets(self._coded_again(y))
        share = len(new_y) / (len(old_y) + len(new_y))
        self._key = jax.random.fold_in(self._key, 1)
        self._learn(
            np.concatenate([old_x, new_x]), np.concatenate([old_y, new_y]), self.members_, share
        )
        return self

    def _check_settings(self) -> None:
        for name in ("num_members", "max_epochs", "num_draws", "batch_size"):
            whole_number(name, getattr(self, name))
        if self.num_steps is not None:
            whole_number("num_steps", self.num_steps)
        real_number("validation_fraction", self.validation_fraction, above=0.0, below=1.0)
        real_number("max_seconds", self.max_seconds, above=0.0)
        choice("activation", self.activation, tuple(ACTIVATIONS))
        flag("verbose", self.verbose)
        instance("hidden_layer_sizes", self.hidden_layer_sizes, tuple | list, "such as (16, 16)")
        for width in self.hidden_layer_sizes:
            whole_number("hidden_layer_sizes", width)

    def _columns(self, X: Any, reset: bool) -> np.ndarray:
        matrix, self._design = columns_of(self, X, self._design, reset=reset)
        return matrix.x

    def _read(self, X: Any, y: Any, reset: bool) -> tuple[np.ndarray, np.ndarray]:
        if y is None:
            validate_data(self, X, y)  # says so in scikit-learn's words
        x = self._columns(X, reset)
        y = column_or_1d(y, warn=True)
        if len(x) != len(y):
            raise ValueError(
                f"X and y have inconsistent numbers of samples, {len(x)} and {len(y)}."
            )
        if reset and len(y) < 2:
            raise ValueError(f"n_samples={len(y)}: at least 2 rows are needed.")
        return x, y

    def _scaled(self, x: np.ndarray) -> np.ndarray:
        return ((x - self._centre) / self._spread).astype(np.float32)

    def _modules(self, inputs: int) -> list[Any]:
        """The members' modules, before they are optimised."""
        keys = jax.random.split(jax.random.fold_in(self._key, 2), self.num_members)
        if self.module is None:
            sizes = (inputs, *self.hidden_layer_sizes, self._outputs())
            return [Perceptron(sizes, self.activation, key) for key in keys]
        flax = any(c.__module__.startswith("flax") for c in type(self.module).__mro__)
        if isinstance(self.module, eqx.Module) or flax:
            return [self.module]
        return [self.module(key) for key in keys]

    def _learn(self, x: np.ndarray, y: np.ndarray, before: Members | None, share: float) -> None:
        """Optimise, where there are no members yet, and sample."""
        deadline = Deadline.after(self.max_seconds)
        modules = self._modules(x.shape[1])
        if before is None:
            self.prior_ = PRIOR if self.prior is None else self.prior
        posterior = self._posterior(modules[0], x, y)
        keys = jax.random.split(jax.random.fold_in(self._key, 3), 3)
        if before is None:
            positions = [tree.freeze(posterior.position(each)) for each in modules]
            if len(positions) < self.num_members:
                keys_new = jax.random.split(keys[0], self.num_members - 1)
                positions += [drawn_anew(positions[0], key) for key in keys_new]
            starts = jax.tree.map(lambda *w: jnp.stack(w), *positions)
            batch = int(np.clip(len(y) // STEPS_OF_EPOCH, *BATCHES))
            self.ensemble_ = network.deep_ensemble(
                posterior, starts, key=keys[1], batch_size=batch, epochs=self.max_epochs,
                held_out=min(max(self.validation_fraction, 1.0 / len(y)), 1.0 - 1.0 / len(y)),
                progress=self.verbose,
            )  # fmt: skip
            if self.prior is None:
                self.prior_ = self._default_prior(posterior)
                posterior = self._posterior(modules[0], x, y)
        self.members_ = members.settled_members(
            posterior,
            self.ensemble_.positions if before is None else before.last,
            key=keys[2],
            num_steps=self.num_steps,
            share=share,
            num_draws=self.num_draws,
            batch_size=self.batch_size,
            deadline=deadline,
            setting=None if before is None else before.setting,
            progress=self.verbose,
        )
        self.network_posterior_ = posterior
        self._measure()

    def _posterior(self, module: Any, x: np.ndarray, y: np.ndarray) -> network.NetworkPosterior:
        """Of the weights, with `prior_`."""
        batched = True if self.module is None else None
        return network.posterior(module, (x, y), self._likelihood(), self.prior_, batched=batched)

    def _measure(self) -> None:
        """What `measured_` and `verdict_` say."""
        x, y = (np.asarray(a) for a in self.network_posterior_.data)
        held = self.ensemble_.held_out[:CHECKED]
        draws = jax.tree.leaves(self.members_.positions)[0].shape[:2]
        r_hat = members.disagreement(self.network_posterior_, self.members_)
        together = self._predicted(x[held], y[held], self.ensemble_.positions)
        density = float(together.log_density.mean()) - self._log_unit()
        found = Measured(self.members_.setting.energy_error, r_hat, density)
        self.measured_ = found
        self.verdict_ = (
            f"{draws[0]} members, {draws[1]} draws of each; a step's energy error has variance "
            f"{found.energy_error:.2g} for a dimension; R-hat of predictions among members "
            f"{found.r_hat:.3f} (median); log density of the optimised members on rows held out "
            f"{found.held_out:.3f}"
        )

    def _predicted(self, x: Any, y: Any = None, positions: PyTree = None) -> Any:
        """Prediction in the network's own units, of rows filled up to few different numbers."""
        positions = self._most() if positions is None else positions
        filled = max(LEAST_ROWS, 2 ** math.ceil(math.log2(max(1, len(x)))))
        x = np.resize(np.asarray(x), (filled, *np.shape(x)[1:])) if len(x) else x
        posterior = of_one_row(self.network_posterior_)
        if y is not None:
            found = network.predict(posterior, positions, x, np.resize(np.asarray(y), filled))
            return found[: len(y)]
        return network.predict(posterior, positions, x)

    def _most(self) -> PyTree:
        """The draws that a prediction averages over."""
        flat = self.members_.flat
        every = max(1, -(-len(jax.tree.leaves(flat)[0]) // MOST_DRAWS))
        return jax.tree.map(lambda x: x[::every], flat)

    def _new(self, X: Any) -> np.ndarray:
        check_is_fitted(self)
        return self._scaled(self._columns(X, reset=False))

    def log_density(self, X: Any, y: Any) -> Float[np.ndarray, " rows"]:
        """The log of the predictive density of each target, in its own units.

        Args:
            X: rows like those of `fit`.
            y: their targets, shape (rows,).
        """
        x, y = self._new(X), self._targets(self._coded_again(column_or_1d(y)))
        return self._predicted(x, y).log_density - self._log_unit()

    def calibration(self, X: Any, y: Any) -> network.Calibration:
        """Whether probabilities are what they say: `network.coverage`, of classes `calibration`.

        Args:
            X: rows like those of `fit`, which `fit` has not seen.
            y: their targets, shape (rows,).
        """
        x, y = self._new(X), self._targets(self._coded_again(column_or_1d(y)))
        found = self._predicted(x, y)
        if found.below is None:
            return network.calibration(found.mean, y)
        return network.coverage(np.clip(found.below, 0.0, 1.0))

    # What a regressor and a classifier differ in:

    def _default_prior(self, posterior: network.NetworkPosterior) -> network.priors.Prior:
        return PRIOR

    def _outputs(self) -> int:
        raise NotImplementedError

    def _likelihood(self) -> Likelihood:
        raise NotImplementedError

    def _coded(self, y: np.ndarray) -> np.ndarray:
        raise NotImplementedError

    def _coded_again(self, y: np.ndarray) -> np.ndarray:
        raise NotImplementedError

    def _targets(self, y: np.ndarray) -> np.ndarray:
        return y

    def _log_unit(self) -> float:
        return 0.0


class MLPRegressor(RegressorMixin, _Network):
    """A perceptron with an output for the mean and one for the noise, its weights sampled.

    y ~ N(m(x), s(x)^2), where the network has the outputs m and a, and s = 0.001 + log(1 + exp a),
    all of standardised columns and target. Arguments are those of the class in common; a `module`
    of your own has two outputs.

    Example:
        >>> import numpy as np
        >>> from ergodax.learn import MLPRegressor
        >>> x = np.linspace(-2.0, 2.0, 60)[:, None]
        >>> quick = dict(num_members=2, max_epochs=50, num_steps=400, num_draws=20)
        >>> model = MLPRegressor((8, 8), random_state=0, **quick).fit(x, np.sin(2 * x[:, 0]))
        >>> mean, sd, bounds = model.predict(x[:3], return_std=True, interval=0.9)
        >>> mean.shape, sd.shape, bounds.shape
        ((3,), (3,), (3, 2))

    Reference:
        Neal, Bayesian learning for neural networks, 1996; Sommer, Robnik, Nozadze, Seljak and
        Rügamer, Microcanonical Langevin ensembles, 2025.
    """

    def partial_fit(self, X: Any, y: Any) -> Any:
        """`fit` at first; then rows more, on which the members go on from where they are.

        Rows and units of the first call stay; the steps are in proportion to what is new.
        """
        return self._more(X, y) if hasattr(self, "members_") else self.fit(X, y)

    def predict(self, X: Any, return_std: bool = False, interval: float | None = None) -> Any:
        """The predictive mean of new rows, and how sure it is.

        Args:
            X: rows like those of `fit`.
            return_std: give the sd of what will be observed, too.
            interval: give an interval, too, that has what will be observed with this probability,
                and equal tails.

        Returns:
            The mean, shape (rows,); or a tuple of it, the sd, shape (rows,), and the interval's
            bounds, shape (rows, 2), as far as they were asked for.

        Raises:
            ValueError: columns that do not fit, NaN, or an interval out of range.
        """
        if interval is not None:
            interval = real_number("interval", interval, above=0.0, below=1.0)
        x = self._new(X)
        found = self._predicted(x)
        mean, sd = found.mean[: len(x)], np.sqrt(found.variance[: len(x)])
        answers = [self._middle + self._unit * mean]
        if return_std:
            answers.append(self._unit * sd)
        if interval is not None:
            part = max(1, NUMBERS // MOST_DRAWS)
            bounds = [
                self._bounds(x[k : k + part], interval, mean[k : k + part], sd[k : k + part])
                for k in range(0, len(x), part)
            ]
            answers.append(self._middle + self._unit * np.concatenate(bounds))
        return answers[0] if len(answers) == 1 else tuple(answers)

    def _bounds(
        self, x: np.ndarray, level: float, mean: np.ndarray, sd: np.ndarray
    ) -> Float[np.ndarray, "rows 2"]:
        filled = np.resize(x, (max(LEAST_ROWS, 2 ** math.ceil(math.log2(len(x)))), x.shape[1]))
        outlooks = each_draw(self.network_posterior_, self._most(), filled)
        centres = np.asarray(outlooks.mean, np.float64)[:, : len(x)]
        widths = np.sqrt(np.asarray(outlooks.noise, np.float64)[:, : len(x)])
        law = types.SimpleNamespace(cdf=lambda y: ndtr((y - centres) / widths), dist=None)
        return central_interval(law, level, mean, sd)

    def _default_prior(self, posterior: network.NetworkPosterior) -> network.priors.Prior:
        return measured_prior(posterior, self.ensemble_.positions)

    def _outputs(self) -> int:
        return 2

    def _likelihood(self) -> Likelihood:
        return network.likelihoods.HeteroscedasticGaussian()

    def _coded(self, y: np.ndarray) -> np.ndarray:
        y = self._coded_again(y)
        self._middle, self._unit = float(y.mean()), float(y.std())
        if not self._unit > 0.0:
            raise ValueError("the target is constant: there is nothing to predict.")
        return y

    def _coded_again(self, y: np.ndarray) -> np.ndarray:
        return as_numbers(y, "MLPClassifier")

    def _targets(self, y: np.ndarray) -> np.ndarray:
        return ((y - self._middle) / self._unit).astype(np.float32)

    def _log_unit(self) -> float:
        return math.log(self._unit)


class MLPClassifier(ClassifierMixin, _Network):
    """A perceptron whose outputs are the logits of two classes or more, its weights sampled.

    Arguments are those of the class in common; a `module` of your own has an output for each class.

    Example:
        >>> import numpy as np
        >>> from ergodax.learn import MLPClassifier
        >>> x = np.linspace(-2.0, 2.0, 60)[:, None]
        >>> quick = dict(num_members=2, max_epochs=50, num_steps=400, num_draws=20)
        >>> label = np.where(np.abs(x[:, 0]) < 1.0, "near", "far")
        >>> model = MLPClassifier((8, 8), random_state=0, **quick).fit(x, label)
        >>> model.predict([[0.0], [2.0]]).tolist(), model.predict_proba([[0.0]]).shape
        (['near', 'far'], (1, 2))

    Reference:
        As of `MLPRegressor`.
    """

    def partial_fit(self, X: Any, y: Any, classes: Any = None) -> Any:
        """`fit` at first; then rows more, on which the members go on from where they are.

        Args:
            X: rows like those of `fit`.
            y: their classes, shape (rows,).
            classes: all that will ever come, for the first call; by default those of its rows.
        """
        if hasattr(self, "members_"):
            return self._more(X, y)
        self._given = None if classes is None else np.unique(classes)
        try:
            return self.fit(X, y)
        finally:
            del self._given

    def predict_proba(self, X: Any) -> Float[np.ndarray, "rows classes"]:
        """The predictive probability of each class, an average over draws.

        Args:
            X: rows like those of `fit`.

        Raises:
            ValueError: columns that do not fit, or NaN.
        """
        x = self._new(X)
        found = self._predicted(x).mean[: len(x)]
        return found / found.sum(axis=1, keepdims=True)

    def predict(self, X: Any) -> np.ndarray:
        """The most probable class, shape (rows,)."""
        probabilities = self.predict_proba(X)
        return self.classes_[np.argmax(probabilities, axis=1)]

    def _outputs(self) -> int:
        return len(self.classes_)

    def _likelihood(self) -> Likelihood:
        return network.likelihoods.Categorical()

    def _coded(self, y: np.ndarray) -> np.ndarray:
        self.classes_ = classes_of(y, getattr(self, "_given", None))
        return self._coded_again(y)

    def _coded_again(self, y: np.ndarray) -> np.ndarray:
        check_labels(y)
        new = ~np.isin(y, self.classes_)
        if new.any():
            raise ValueError(
                f"y has the class {shown(y[new][:1].tolist()[0])}, which is none of "
                f"{shown(self.classes_.tolist(), 300)}."
            )
        return np.searchsorted(self.classes_, y).astype(np.int32)
