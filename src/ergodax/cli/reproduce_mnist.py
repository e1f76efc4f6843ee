"""`ergodax reproduce mnist`: posterior variances of a logistic regression, by passes."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

from ergodax.apps.reproduce import digits, digits_pages
from ergodax.cli.options import Many, folder
from ergodax.cli.reproduce import DEFAULTS, ReproduceOptions, run_experiment
from ergodax.learn import tables


def mnist(
    *,
    data: Path,
    classes: Annotated[tuple[str, str], Many] = ("7", "9"),
    components: int = 128,
    prior_scale: float = 10.0,
    reference: Path | None = None,
    options: ReproduceOptions = DEFAULTS,
) -> None:
    """Matthews and Weare (2018), section 5.3: posterior variances of MNIST's 7 against 9.

    NOGIN, mSGLD and CC-ADL as in the paper, and NOGIN in whitened coordinates with a fitted
    Gaussian as control variate, against long HMC with full gradients.

    Example: ergodax reproduce mnist --data mnist.npz --quick

    Parameters
    ----------
    data
        An .npz file with x_train and y_train.
    classes
        The two digits.
    components
        How many principal components of the images are the features, beside an intercept.
    prior_scale
        Standard deviation of each coefficient's normal prior.
    reference
        The file of the reference's variances: read if it fits, else written; reference.npz in
        the output folder by default.
    """
    if not data.exists():
        raise FileNotFoundError(f"no such file: --data {data}")
    size = digits.QUICK if options.quick else digits.Size()
    place = folder(options.output, "mnist")

    def run(say: Callable[[str], None]) -> digits.Result:
        images = tables.read_npz(data, "x_train", "y_train", classes)
        return digits.run(
            tables.prepare(images, images, components)[0],
            prior_scale,
            size,
            reference or place / "reference.npz",
            options.seed,
            options.progress,
            say,
        )

    run_experiment(
        "mnist",
        options,
        run,
        lambda result: {digits_pages.HEAD: digits_pages.errors_table(result)},
        digits_pages.write,
        digits_pages.LEGEND,
    )
