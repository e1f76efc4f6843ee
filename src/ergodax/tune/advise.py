"""Which sampler for which problem: a recommendation, its reasons, and code that runs."""

import dataclasses

from ergodax.checks import flag, real_number
from ergodax.tune import example_programs
from ergodax.tune.curvature import LARGEST_DENSE

SMALL = 2_000  # examples whose full gradient costs what a batch's step does
CHEAP = 1e-4  # seconds of a full gradient that is as cheap as a batch's step
ILL_CONDITIONED = 100.0


@dataclasses.dataclass(frozen=True)
class Advice:
    """What `advise` returns; `print` it.

    Attributes:
        recommendation: one sentence.
        reasons: why, a sentence each.
        code: a program that runs as it stands, on a small model to be replaced by yours.
    """

    recommendation: str
    reasons: tuple[str, ...]
    code: str

    def __str__(self) -> str:
        """The sentence, the reasons as a list, the program."""
        reasons = "\n".join(f"  - {reason}" for reason in self.reasons)
        return f"{self.recommendation}\n{reasons}\n\n{self.code}"


def advise(
    num_data: float | int,
    dimension: float | int,
    *,
    gradient_seconds: float | int | None = None,
    condition_number: float | int | None = None,
    modes: int | None = None,
    exact: bool = False,
    network: bool = False,
) -> Advice:
    """Recommend a sampler by the size and the shape of a problem.

    Networks: cyclical SGHMC. Several modes: replica exchange. Cheap full gradients: NUTS. No bias
    allowed: firefly. One mode and up to 1,024 dimensions: NOGIN with control variates, which
    `infer` tunes. More dimensions: SGHMC on SVRG's gradients; pSGLD where the scales differ much.

    Args:
        num_data: N, examples; 0 for a target without data.
        dimension: d, of the position.
        gradient_seconds: that one full gradient takes, if it was measured.
        condition_number: the largest curvature over the least, if it is known.
        modes: how many there are; None where nobody has looked.
        exact: no bias is allowed, however small.
        network: the parameters are a neural network's weights.

    Raises:
        ValueError: a number out of range.

    Example:
        >>> from ergodax.tune.advise import advise
        >>> advise(1e6, 50).recommendation
        'ex.infer: NOGIN with control variates, tuned by itself.'
    """
    ranges = {
        "num_data": (num_data, 0),
        "dimension": (dimension, 1),
        "gradient_seconds": (gradient_seconds, 0),
        "condition_number": (condition_number, 1),
        "modes": (modes, 1),
    }
    for name, (value, least) in ranges.items():
        if value is not None or name in ("num_data", "dimension"):
            real_number(name, value, at_least=least)
    flag("exact", exact)
    flag("network", network)
    total, d = round(float(num_data)), round(float(dimension))
    cheap = total <= SMALL or (gradient_seconds is not None and gradient_seconds <= CHEAP)
    if network:
        choice = _network(total)
    elif modes is not None and modes > 1:
        choice = _several_modes(total, modes)
    elif cheap:
        choice = _cheap(total, gradient_seconds)
    elif exact:
        choice = _exact(total)
    elif d > LARGEST_DENSE:
        choice = _wide(total, d, condition_number)
    else:
        choice = _large(total, d)
    recommendation, reasons, code = choice
    reasons += _scales(condition_number, d, code)
    if modes is None and not network:
        reasons += (
            "Nobody has counted the modes: ex.infer looks for others than the first; every "
            "recommendation but replica exchange is for one mode.",
        )
    return Advice(recommendation, reasons, code)


_Choice = tuple[str, tuple[str, ...], str]


def _network(total: int) -> _Choice:
    return (
        "Cyclical SGHMC on minibatches.",
        (
            "A network's posterior has more modes than any chain visits; each cycle's large steps "
            "look for another one, and its small steps sample it.",
            f"A batch costs the same however many of the {total:,} examples there are.",
            "The weights of the modes are those of their basins, not of the posterior; for "
            "predictions that matters little. If layers have very different scales: ex.psgld.",
        ),
        example_programs.NETWORK,
    )


def _several_modes(total: int, modes: int) -> _Choice:
    return (
        "Replica exchange.",
        (
            f"{modes} modes: a single chain stays in the one where it starts, and gives the others "
            "no weight or a wrong one; hot replicas cross and hand down what they find.",
            "See that the swap rates are above 0.2 and that the cold chains agree (R-hat).",
        ),
        example_programs.tempered(total, SMALL),
    )


def _cheap(total: int, seconds: float | int | None) -> _Choice:
    cost = f"{total:,} examples" if seconds is None else f"a full gradient takes {seconds:.2g} s"
    reason = "without data there is nothing to take batches of" if total == 0 else cost
    sampler = "HMC with full gradients" if total > SMALL else "NUTS"
    code = example_programs.full() if total > SMALL else example_programs.inference(total)
    call = "ex.hmc" if total > SMALL else "ex.infer"
    return (
        f"{call}: {sampler}.",
        (
            f"{reason[0].upper()}{reason[1:]}: a step on a batch would be no cheaper, and full "
            "gradients have no bias.",
        ),
        code,
    )


def _exact(total: int) -> _Choice:
    return (
        "Firefly Monte Carlo, with bounds tuned at the mode.",
        (
            "It samples the posterior itself, with no bias from step or batch.",
            f"With bounds that touch at the mode few of the {total:,} rows are looked at in a "
            "step; it needs a lower bound on the likelihood, which logistic regression has.",
            "Without a bound but with bounded changes: ex.exact.tuna. Where a bias of a "
            "hundredth of a posterior sd will do, ex.infer is far cheaper.",
        ),
        example_programs.exact(),
    )


def _wide(total: int, d: int, condition_number: float | int | None) -> _Choice:
    if condition_number is not None and condition_number > ILL_CONDITIONED:
        return (
            "pSGLD: minibatches with a diagonal preconditioner.",
            (
                f"{d:,} dimensions are too many for matrices of all directions, and scales that "
                "differ by much need a step each: the preconditioner is learnt in the burn-in.",
            ),
            example_programs.preconditioned(),
        )
    return (
        "SGHMC on SVRG's gradients.",
        (
            f"{d:,} dimensions: control variates at a fixed centre weaken as the chain moves "
            "away, which it does the further the more dimensions there are; SVRG's moves along.",
            f"Its passes over the {total:,} examples cost half as much as its batches. If memory "
            "or time forbids passes: ex.Minibatch, with smaller steps.",
        ),
        example_programs.moving(),
    )


def _large(total: int, d: int) -> _Choice:
    return (
        "ex.infer: NOGIN with control variates, tuned by itself.",
        (
            f"{total:,} examples: with one mode, control variates there make a batch of some ten "
            "as quiet as a hundred times as many, and a draw costs the same however large N is.",
            f"{d:,} dimensions: small enough to whiten the posterior by its curvature.",
            "NOGIN takes out the variance inflation by the noise that is left, and the bias of its "
            "step is measured and reported.",
        ),
        example_programs.inference(total),
    )


def _scales(condition_number: float | int | None, d: int, code: str) -> tuple[str, ...]:
    if condition_number is None or condition_number <= ILL_CONDITIONED or "psgld" in code:
        return ()
    if "ex.infer" in code:
        text = "ex.infer changes to coordinates in which it is 1"
    elif d <= LARGEST_DENSE:
        text = "pass the inverse covariance as `mass`, or use tune.round_coordinates"
    else:
        text = "standardise the parameters, or use ex.psgld"
    return (f"Condition number {condition_number:.3g}: {text}.",)
