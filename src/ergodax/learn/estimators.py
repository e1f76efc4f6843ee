"""The regressions: classes that fit, predict and say how sure they are, as in scikit-learn."""

from typing import Any

import numpy as np
from scipy import special
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from ergodax.checks import real_number
from ergodax.learn import families
from ergodax.learn.base import Regression
from ergodax.learn.design import classes_of
from ergodax.learn.families import Family

HALVINGS = 40  # of an interval that holds a quantile
MOST_HALVINGS = 600  # of counts, whose rates may differ by many powers of ten between draws
ONE_SD = 0.6826894921370859  # of a normal law lies within one sd


class _Regressor(RegressorMixin, Regression):
    """A regression of a number."""

    _heavy = False  # whether the predictive variance may be infinite

    def predict(
        self,
        X: Any,
        return_std: bool = False,
        interval: float | None = None,
        *,
        offset: Any = None,
    ) -> Any:
        """The predictive mean of new rows, and how sure it is.

        Args:
            X: rows like those of `fit`.
            return_std: give the sd of what will be observed, too.
            interval: give an interval, too, that has what will be observed with this probability,
                and equal tails.
            offset: as in `fit`, shape (rows,).

        Returns:
            The mean, shape (rows,); or a tuple of it, the sd, shape (rows,), and the interval's
            bounds, shape (rows, 2), as far as they were asked for.

        Raises:
            ValueError: columns that do not fit, NaN, or a level or an interval out of range.
        """
        if interval is not None:
            interval = real_number("interval", interval, above=0.0, below=1.0)
        matrix = self._matrix(X, offset)
        predictor, shapes = self._predictor(matrix)
        means, sds, bounds = [], [], []
        for part in self._parts(len(matrix.x)):
            eta = predictor(part)
            law = self._law().law(eta, shapes)
            mean, sd = self._moments(law, eta)
            means.append(mean)
            if return_std:
                spread = central_interval(law, ONE_SD, mean, sd) if self._heavy else None
                sds.append(sd if spread is None else np.ptp(spread, axis=1) / 2.0)
            if interval is not None:
                bounds.append(central_interval(law, interval, mean, sd))
        found = [np.concatenate(x) for x in (means, sds, bounds) if x]
        return found[0] if len(found) == 1 else tuple(found)

    def _moments(self, law: Any, eta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean and sd of the mixture over draws; of a law without a mean, of its middle."""
        if self._heavy:
            return eta.mean(axis=0), np.full(eta.shape[1], np.inf)
        middle = np.broadcast_to(law.mean(), eta.shape)
        return middle.mean(axis=0), np.sqrt(np.mean(law.var() + 0.0 * eta, 0) + middle.var(axis=0))

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """R² of the predictive mean; with a formula y may be left out."""
        return super().score(X, self._truth(X, y), sample_weight)

    def _truth(self, X: Any, y: Any) -> Any:
        check_is_fitted(self)
        return self._design.target(X) if y is None and self.formula is not None else y


def central_interval(law: Any, level: float, mean: np.ndarray, sd: np.ndarray) -> np.ndarray:
    """The quantiles of the mixture over draws, by halving; shape (rows, 2).

    By Cantelli's inequality the quantile q lies between mean - sd sqrt((1 - q) / q) and mean + sd
    sqrt(q / (1 - q)); where there is no variance, between those of the single draws. A count's is
    found when no two counts are in between, or nine figures are known.
    """
    found, counts = [], hasattr(law.dist, "pmf")
    margin = 1.0 if counts else sd  # for what is rounded
    for q in (0.5 * (1.0 - level), 0.5 * (1.0 + level)):
        if np.isfinite(sd).all():
            low = mean - sd * np.sqrt((1.0 - q) / q) - margin
            high = mean + sd * np.sqrt(q / (1.0 - q)) + margin
        else:
            each = law.ppf(q)
            low, high = each.min(axis=0), each.max(axis=0)
        for _ in range(MOST_HALVINGS if counts else HALVINGS):
            if counts and np.all(high - low < np.maximum(0.25, 1e-9 * high)):
                break
            middle = 0.5 * (low + high)
            below = np.mean(law.cdf(middle), axis=0) < q
            low, high = np.where(below, middle, low), np.where(below, high, middle)
        found.append(np.round(high) if counts else high)
    return np.stack(found, axis=1)


class LinearRegressor(_Regressor):
    """Linear regression with normal errors, whose sd is a parameter.

    y_i ~ N(intercept + x_i coefficient, residual_sd²). Priors on the standardised scale, in sds of
    the target: N(0, prior_scale²) for coefficients and intercept and for the logarithm of the
    residual sd. Arguments are those of `Regression`.

    Example:
        >>> import numpy as np
        >>> from ergodax.learn import LinearRegressor
        >>> x = np.arange(20.0)[:, None]
        >>> y = 3.0 * x[:, 0] + np.tile([-0.5, 0.5], 10)
        >>> model = LinearRegressor(random_state=0).fit(x, y)
        >>> mean, bounds = model.predict([[30.0]], interval=0.9)
        >>> bool(bounds[0, 0] < 90.0 < bounds[0, 1])
        True
    """

    family = families.LINEAR

    def _coded(self, y: np.ndarray, kept: np.ndarray) -> tuple[np.ndarray, tuple[Any, ...]]:
        y, classes = super()._coded(y, kept)
        if not y.max() > y.min():
            raise ValueError("the target is constant: there is nothing to predict.")
        return y, classes


class RobustRegressor(LinearRegressor):
    """Linear regression with Student's t for errors, which outliers hardly move.

    The degrees of freedom have the prior Gamma(2, 0.1); `residual_sd` is the scale of t. As the
    variance may be infinite, `predict(return_std=True)` gives half the width of the interval that
    has 68.3 %. Arguments are those of `Regression`.

    Example:
        >>> import numpy as np
        >>> from ergodax.learn import RobustRegressor
        >>> rng = np.random.default_rng(0)
        >>> x = rng.normal(size=(500, 1))
        >>> y = 2.0 * x[:, 0] + 0.1 * rng.standard_t(2.0, size=500)  # with outliers
        >>> model = RobustRegressor(random_state=0, verbose=False).fit(x, y)
        >>> bool(abs(model.coef_[0] - 2.0) < 0.05)
        True

    Reference:
        Juárez and Steel, Model-based clustering of non-Gaussian panel data based on skew-t
        distributions, 2010.
    """

    family, _heavy = families.ROBUST, True


class PoissonRegressor(_Regressor):
    """Counts y_i ~ Poisson(exp(offset_i + intercept + x_i coefficient)).

    Arguments are those of `Regression`; the intercept's prior is about the log of the mean.

    Example:
        >>> import numpy as np
        >>> from ergodax.learn import PoissonRegressor
        >>> rng = np.random.default_rng(0)
        >>> x = rng.normal(size=(500, 1))
        >>> y = rng.poisson(np.exp(1.0 + 0.5 * x[:, 0]))
        >>> model = PoissonRegressor(random_state=0, verbose=False).fit(x, y)
        >>> bool(abs(model.coef_[0] - 0.5) < 0.1)
        True
    """

    family = families.POISSON

    def _coded(self, y: np.ndarray, kept: np.ndarray) -> tuple[np.ndarray, tuple[Any, ...]]:
        y, classes = super()._coded(y, kept)
        if y.min() < 0 or not y.max() > 0:
            raise ValueError(f"y must be counts, not all of them 0; the least is {y.min():g}.")
        return y, classes

    def __sklearn_tags__(self) -> Tags:
        """As scikit-learn asks."""
        tags = super().__sklearn_tags__()
        tags.target_tags.positive_only = True
        return tags


class NegativeBinomialRegressor(PoissonRegressor):
    """Counts whose variance mu + a mu² is larger than their mean mu, by the dispersion a.

    The root of a, which is the relative sd of the rates, is exponential with mean 1 a priori.
    Arguments are those of `Regression`.

    Example:
        >>> import numpy as np
        >>> from ergodax.learn import NegativeBinomialRegressor
        >>> rng = np.random.default_rng(0)
        >>> x = rng.normal(size=(500, 1))
        >>> y = rng.poisson(np.exp(1.0 + 0.5 * x[:, 0]) * rng.gamma(2.0, 0.5, size=500))
        >>> model = NegativeBinomialRegressor(random_state=0, verbose=False).fit(x, y)
        >>> bool(abs(model.coef_[0] - 0.5) < 0.2)
        True

    Reference:
        Simpson et al., Penalising model component complexity, 2017 (the prior).
    """

    family = families.NEGATIVE_BINOMIAL


class LogisticClassifier(ClassifierMixin, Regression):
    """Logistic regression of two classes, or multinomial of more.

    Of more than two classes each has coefficients of its own that sum to 0 over the classes, with
    such a prior that the log odds of any two classes are as with two alone: N(0, prior_scale²) for
    their coefficients of standardised columns. Arguments are those of `Regression`.

    Example:
        >>> import numpy as np
        >>> from ergodax.learn import LogisticClassifier
        >>> x = np.linspace(-2.0, 2.0, 40)[:, None]
        >>> label = np.where(np.sin(40 * x[:, 0]) + 2 * x[:, 0] > 0, "yes", "no")
        >>> model = LogisticClassifier(random_state=0).fit(x, label)
        >>> model.predict([[2.0]]).tolist(), model.predict_proba([[2.0]]).shape
        (['yes'], (1, 2))
    """

    family = families.LOGISTIC

    def _law(self) -> Family:
        return families.MULTINOMIAL if len(self.classes_) > 2 else families.LOGISTIC

    def _coded(self, y: np.ndarray, kept: np.ndarray) -> tuple[np.ndarray, tuple[Any, ...]]:
        self.classes_ = classes_of(y, y[kept])
        if self.formula is not None and self._design.formula.group and len(self.classes_) > 2:
            raise ValueError(
                f"groups are supported for two classes, and y has {len(self.classes_)}. Write the "
                "model with ex.groups.GroupedPosterior."
            )
        codes = np.searchsorted(self.classes_, y[kept])
        return codes.astype(np.float64), tuple(self.classes_.tolist())

    def _attributes(self, draws: dict[str, np.ndarray]) -> None:
        """`coef_` has a row for each class, and one for two, as in scikit-learn."""
        super()._attributes(draws)
        self.coef_, self.intercept_ = np.atleast_2d(self.coef_), np.atleast_1d(self.intercept_)

    def predict_proba(self, X: Any, *, offset: Any = None) -> np.ndarray:
        """The predictive probability of each class, an average over draws.

        Args:
            X: rows like those of `fit`.
            offset: of the log odds, as in `fit`, shape (rows,).

        Returns:
            Shape (rows, classes), in the order of `classes_`.

        Raises:
            ValueError: columns that do not fit, or NaN.
        """
        matrix = self._matrix(X, offset)
        predictor, _ = self._predictor(matrix)
        found = []
        for part in self._parts(len(matrix.x), len(self.classes_)):
            eta = predictor(part)
            if eta.ndim == 3:
                found.append(special.softmax(eta, axis=-1).mean(axis=0))
            else:
                p = special.expit(eta).mean(axis=0)
                found.append(np.stack([1.0 - p, p], axis=1))
        return np.concatenate(found)

    def predict(self, X: Any, *, offset: Any = None) -> np.ndarray:
        """The most probable class, shape (rows,)."""
        probabilities = self.predict_proba(X, offset=offset)
        return self.classes_[np.argmax(probabilities, axis=1)]

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """The share of rows whose class is predicted; with a formula y may be left out."""
        check_is_fitted(self)
        truth = self._design.target(X) if y is None and self.formula is not None else y
        return super().score(X, truth, sample_weight)
