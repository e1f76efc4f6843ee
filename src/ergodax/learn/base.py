"""What all regressions have in common: `fit` by `ex.infer`, draws in the user's units, verdict."""

import dataclasses
import re
import warnings
from typing import Any, ClassVar

import jax
import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import (
    _check_sample_weight,  # pyright: ignore[reportPrivateUsage]
    check_is_fitted,
    column_or_1d,
)

import ergodax as ex
from ergodax import tune
from ergodax.checks import flag, instance, real_array, real_number, shown, whole_number
from ergodax.driver import Samples
from ergodax.learn.design import (
    FormulaDesign,
    Matrix,
    as_numbers,
    columns_of,
    validate_data,
)
from ergodax.learn.families import Family
from ergodax.learn.regression import Draws, Model, Rows, regression
from ergodax.tune import Inference
from ergodax.tune.decisions import is_accurate

MARGIN = 0.9  # of the accuracy is asked of w: the intercept at 0 is a sum of several of them
MOST_DRAWS = 1_000  # that a prediction averages over, evenly spaced
NUMBERS = 2**22  # linear predictors held at a time
MOST_STORED = 2**27  # of log-likelihoods and predictive draws
GROUP_OF_NEW = 0x5EED  # of the latents of groups that were not in the data
COMPONENT = re.compile(r"(?:shared)?position\[(\d+)\]|shared\[(\d+)\]")  # as infer names them


class NotConvergedWarning(ConvergenceWarning):
    """A fit whose answer is less accurate than was asked for."""


class Regression(BaseEstimator):
    """A regression in scikit-learn's convention, sampled by `ex.infer`.

    Args:
        formula: as of formulaic, `y ~ x + C(kind) + offset(log(time)) + (1 | plane)`; the last is
            an intercept that varies between groups. X is then a data frame, and y may be left out.
        prior_scale: sd of the normal prior of each coefficient times its column's sd (and, of a
            number, over the target's sd), and of the intercept at the columns' means.
        fit_intercept: whether there is one; a formula says so itself.
        accuracy: the error that is small enough, in posterior sds.
        num_chains: independent chains.
        max_seconds: when to give up.
        random_state: of everything random, as in scikit-learn.
        checkpoint: an `ex.Checkpoint`, where the inference is kept on disk.
        verbose: show progress bars, where standard error is a terminal.
    """

    family: ClassVar[Family]

    def __init__(
        self,
        formula: Any = None,
        *,
        prior_scale: Any = 1.0,
        fit_intercept: Any = True,
        accuracy: Any = 0.05,
        num_chains: Any = 4,
        max_seconds: Any = 600.0,
        random_state: Any = None,
        checkpoint: Any = None,
        verbose: Any = False,
    ) -> None:  # by convention any value is taken here, and looked at in `fit`
        self.formula = formula
        self.prior_scale = prior_scale
        self.fit_intercept = fit_intercept
        self.accuracy = accuracy
        self.num_chains = num_chains
        self.max_seconds = max_seconds
        self.random_state = random_state
        self.checkpoint = checkpoint
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, offset: Any = None) -> Any:
        """Sample the posterior.

        Args:
            X: an array or data frame of shape (rows, columns); text becomes indicators.
            y: the target, shape (rows,); with a formula it may be left out.
            sample_weight: of each row's log-likelihood, shape (rows,): 2 counts a row twice.
            offset: a term of the linear predictor whose coefficient is 1, shape (rows,).

        Returns:
            The estimator itself.

        Raises:
            TypeError: data or settings of the wrong kind.
            ValueError: NaN or infinity (with the column's name), shapes that do not fit, a target
                that is constant or has one class, numbers too large or small to compute with, or
                a model without columns, intercept and groups.

        Warns:
            NotConvergedWarning: with the cause.
            UserWarning: constant columns, whose coefficients are left out.
        """
        for name in ("accuracy", "prior_scale"):
            real_number(name, getattr(self, name), above=0.0)
        whole_number("num_chains", self.num_chains, at_least=2)
        for name in ("verbose", "fit_intercept"):
            flag(name, getattr(self, name))
        self._design: Any = None
        matrix, names, y = self._read(X, y)
        rows = self._rows(matrix, names, y, sample_weight, offset)
        intercept = self._design.intercept if self.formula is not None else self.fit_intercept
        self._varies = self._varying(rows, bool(intercept))
        left = list(np.asarray(names, object)[self._varies])
        rows = dataclasses.replace(rows, x=rows.x[:, self._varies], names=left)
        if not left and not intercept and rows.groups is None:
            raise ValueError(
                "the model has no column that varies, no intercept and no groups, so there is "
                "nothing to fit. Try an intercept: y ~ 1, or fit_intercept=True."
            )
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        model = regression(rows, self._law(), float(self.prior_scale), bool(intercept))
        self._seed, self._names = seed, names
        self._inferred(model, rows)
        return self

    def _law(self) -> Family:
        return self.family

    def _read(self, X: Any, y: Any) -> tuple[Matrix, list[str], np.ndarray]:
        """The rows to fit, the columns' names, and the target."""
        if self.formula is not None:
            instance("formula", self.formula, str, "text such as 'y ~ x'")
            design = self._design = FormulaDesign(self.formula, X)
            validate_data(self, X[design.variables], skip_check_array=True)
            matrix, names = design.matrix(X), design.names
            target = design.target(X) if y is None else y
        else:
            matrix, self._design = columns_of(self, X, reset=True)
            numbered = [f"x{k}" for k in range(matrix.x.shape[1])]
            names = list(getattr(self, "feature_names_in_", numbered))
            names = names if self._design is None else self._design.names
            target = y
        if target is None:
            validate_data(self, X, None, skip_check_array=True)
        target = column_or_1d(target, warn=True)
        if len(target) != len(matrix.x):
            raise ValueError(
                f"X and y have inconsistent numbers of samples, {len(matrix.x)} and {len(target)}."
            )
        if len(target) < 2:
            raise ValueError(f"n_samples={len(target)}: at least 2 rows are needed.")
        return matrix, names, target

    def _rows(
        self, matrix: Matrix, names: list[str], y: np.ndarray, sample_weight: Any, offset: Any
    ) -> Rows:
        """All that belongs to rows, without those of weight 0."""
        weight = None
        if sample_weight is not None:
            weight = _check_sample_weight(
                sample_weight, matrix.x, dtype=np.float64, ensure_non_negative=True
            )
        kept = np.ones(len(y), bool) if weight is None else weight > 0.0
        if not kept.any():
            raise ValueError("sample_weight is zero in every row: nothing is left to fit.")
        y, classes = self._coded(y, kept)
        shift = self._offset(matrix, offset)
        groups, group = None, ("", [])
        if matrix.groups is not None:
            groups, labels = pd.factorize(matrix.groups[kept], sort=True)
            groups, group = groups.astype(np.int32), (self._design.formula.group, list(labels))
        return Rows(
            matrix.x[kept], y, names, None if shift is None else shift[kept],
            None if weight is None else weight[kept], groups, group, classes,
        )  # fmt: skip

    def _offset(self, matrix: Matrix, offset: Any) -> np.ndarray | None:
        """Of the formula and of the call together."""
        if offset is None:
            return matrix.offset
        offset = real_array("offset", offset, ndim=1)
        if len(offset) != len(matrix.x):
            raise ValueError(
                f"offset must have a number for each of {len(matrix.x)} rows, not {len(offset)}."
            )
        return offset if matrix.offset is None else offset + matrix.offset

    def _coded(self, y: np.ndarray, kept: np.ndarray) -> tuple[np.ndarray, tuple[Any, ...]]:
        """The target of the rows that are kept as numbers, and its classes."""
        return as_numbers(y, "LogisticClassifier")[kept], ()

    def _varying(self, rows: Rows, intercept: bool) -> np.ndarray:
        """Which columns have a coefficient; the others are named."""
        varies = np.any(rows.x != (rows.x[0] if intercept else 0.0), axis=0)
        if not varies.all():
            names = [name for name, yes in zip(rows.names, varies, strict=True) if not yes]
            warnings.warn(
                f"constant columns have no coefficient and are left out: {shown(names, 300)}.",
                UserWarning,
                stacklevel=3,
            )
        return varies

    def _inferred(self, model: Model, rows: Rows) -> None:
        """Sample, and keep what was found in the user's units."""
        key, key_latents = jax.random.split(jax.random.key(self._seed))
        found = ex.infer(
            model.posterior,
            model.init,
            key=key,
            accuracy=MARGIN * self.accuracy,
            num_chains=self.num_chains,
            max_seconds=self.max_seconds,
            progress=self.verbose,
            checkpoint=self.checkpoint,
        )
        position, latents = found.samples.position, None
        if isinstance(position, dict):  # with the latents
            position, latents = position["shared"], position["latent"]
        elif model.group:
            latents = model.posterior.latents(found.samples, key=key_latents)
        self.model_ = model
        self._rows_ = rows
        shared = dataclasses.replace(found.samples, position=position)
        self.inference_ = in_units(dataclasses.replace(found, samples=shared), model, self.accuracy)
        self._latents = None if latents is None else model.units.target_scale * np.asarray(latents)
        self.converged_, self.verdict_ = self.inference_.converged, self._verdict(model)
        self.__dict__.pop("_tree", None)
        self._attributes(self.inference_.samples.position)
        if not self.converged_:
            warnings.warn(self.verdict_, NotConvergedWarning, stacklevel=3)

    def _verdict(self, model: Model) -> str:
        """Infer's, and whether the prior decides."""
        text = self.inference_.verdict()
        rows, columns = model.num_rows, len(model.columns)
        if columns + model.units.intercept > rows:
            text += (
                f"; prior-dominated: {columns} columns and {rows} rows, so that the prior decides "
                "about what the rows leave open"
            )
        return text

    def _attributes(self, draws: Draws) -> None:
        """`coef_` and `intercept_`: posterior means, 0 for columns that are constant."""
        mean = draws["coefficient"].mean(axis=(0, 1))
        self.coef_ = np.zeros((*mean.shape[:-1], len(self._names)))
        self.coef_[..., self._varies] = mean
        none = np.zeros(mean.shape[:-1])
        found = draws["intercept"].mean(axis=(0, 1)) if "intercept" in draws else none
        self.intercept_: Any = float(found) if np.ndim(found) == 0 else found

    def summary(self) -> pd.DataFrame:
        """A table of the posterior in the columns' own units.

        Returns:
            A row for each component: mean, sd, the 5 % and 95 % quantiles, the error in posterior
            sds, ess and r_hat.
        """
        check_is_fitted(self)
        table = self.inference_.table
        draws = np.concatenate(
            [x.reshape(x.shape[0] * x.shape[1], -1) for _, x in sorted(self._draws().items())],
            axis=1,
        )
        low, high = np.quantile(draws, [0.05, 0.95], axis=0)
        found = table[["mean", "sd"]].assign(**{"5%": low, "95%": high})
        return found.join(table[["error", "ess", "r_hat"]])

    def _draws(self) -> Draws:
        return self.inference_.samples.position

    def _matrix(self, X: Any, offset: Any) -> Matrix:
        """New rows, their constant columns left out, with the offset of formula and call."""
        check_is_fitted(self)
        if self.formula is None:
            matrix, _ = columns_of(self, X, self._design, reset=False)
        else:  # which takes the columns it needs by their names
            matrix = self._design.matrix(X)
        shift = self._offset(matrix, offset)
        if shift is None and self._rows_.offset is not None:
            raise ValueError("the model was fitted with an offset: predictions need offset=.")
        return Matrix(matrix.x[:, self._varies], matrix.groups, shift)

    def _predictor(self, matrix: Matrix, most: int | None = MOST_DRAWS) -> tuple[Any, Any]:
        """A function of a slice of rows to (draws, rows, classes...), and the shapes' draws."""
        flat = {
            name: x.reshape(x.shape[0] * x.shape[1], *x.shape[2:])
            for name, x in self._draws().items()
        }
        count = len(flat["coefficient"])
        every = slice(None, None, 1 if most is None else max(1, -(-count // most)))
        flat = {name: x[every] for name, x in flat.items()}
        latents = None
        if matrix.groups is not None:
            latents = self._of_groups(matrix.groups, flat["group_sd"], every)

        def eta(part: slice) -> np.ndarray:
            found = np.moveaxis(flat["coefficient"] @ matrix.x[part].T, -1, 1)
            if "intercept" in flat:
                found = found + flat["intercept"][:, None]
            shift = np.zeros(1) if matrix.offset is None else matrix.offset[part]
            shift = shift if latents is None else shift + latents(part)
            return found + shift[..., None] if found.ndim == 3 else found + shift

        shapes = {name: flat[name][:, None] for name in self._law().shapes}
        return eta, shapes

    def _of_groups(self, groups: np.ndarray, sd: np.ndarray, every: slice) -> Any:
        """The latents of rows; those of new groups are drawn, the same for the same name."""
        assert self._latents is not None
        known = {label: k for k, label in enumerate(self._rows_.group[1])}
        flat = self._latents.reshape(-1, self._latents.shape[2])[every]

        def of(part: slice) -> np.ndarray:
            where, labels = pd.factorize(groups[part])
            columns = np.empty((len(flat), len(labels)))
            for k, label in enumerate(labels):
                if label in known:
                    columns[:, k] = flat[:, known[label]]
                else:
                    name = list(str(label).encode())
                    rng = np.random.default_rng([GROUP_OF_NEW, self._seed, *name])
                    columns[:, k] = sd * rng.standard_normal(len(sd))
            return columns[:, where]

        return of

    def _parts(self, rows: int, width: int = 1) -> list[slice]:
        """Slices of rows whose linear predictors are held at a time."""
        step = max(1, NUMBERS // (MOST_DRAWS * width))
        return [slice(k, k + step) for k in range(0, rows, step)]

    @property
    def posterior_(self) -> Any:
        """An ArviZ tree with named coordinates, made when it is first asked for.

        Groups: posterior, sample_stats, observed_data, and, where there is room for a number for
        every row and draw, posterior_predictive and log_likelihood.
        """
        check_is_fitted(self)
        if "_tree" not in self.__dict__:
            from ergodax.learn.tree import posterior_tree

            self._tree = posterior_tree(self, self._rows_, self.model_, self._latents)
        return self._tree


def in_units(found: Inference, model: Model, accuracy: float) -> Inference:
    """An answer about standardised columns as one about the table, with its columns' names."""
    filled = f"{model.posterior.num_data} rows"  # up to a power of two, where rows are few
    names = model.sampled

    def told(text: str) -> str:
        text = text.replace(filled, f"{model.num_rows} rows")
        return COMPONENT.sub(lambda component: names[int(component[1] or component[2])], text)

    account = found.account
    account.faults[:] = map(told, account.faults)
    account.decisions[:] = [
        dataclasses.replace(d, chosen=told(d.chosen), why=told(d.why)) for d in account.decisions
    ]
    samples = Samples(model.units(found.samples.position), found.samples.info, None)
    bias = None if found.tuned.bias is None else found.tuned.bias.of(model.units)
    table = tune.error_table(samples, bias).set_axis(model.names)
    converged = is_accurate(table, accuracy) and not found.account.faults
    return dataclasses.replace(
        found, samples=samples, table=table, accuracy=accuracy, converged=converged
    )
