"""`ergodax advise`: which sampler for which problem."""

import sys

from rich.console import Console
from rich.syntax import Syntax

from ergodax.cli.output import Json, tell_json
from ergodax.tune.advise import advise as advice_for


def advise(
    *,
    num_data: float,
    dimension: float,
    gradient_seconds: float | None = None,
    condition_number: float | None = None,
    modes: int | None = None,
    exact: bool = False,
    network: bool = False,
    json_: Json = False,
) -> None:
    """Recommend a sampler, with reasons and a program to begin from.

    Example: ergodax advise --num-data 1e6 --dimension 50

    Parameters
    ----------
    num_data
        Examples; 0 for a density without data.
    dimension
        Of the position.
    gradient_seconds
        What one gradient on all data takes, if it was measured.
    condition_number
        Largest curvature over least, if it is known.
    modes
        How many there are, if somebody has looked.
    exact
        No bias is allowed, however small.
    network
        The parameters are a neural network's weights.
    json_
        Print recommendation, reasons and code as JSON.
    """
    advice = advice_for(
        num_data,
        dimension,
        gradient_seconds=gradient_seconds,
        condition_number=condition_number,
        modes=modes,
        exact=exact,
        network=network,
    )
    if json_:
        named = ("recommendation", "reasons", "code")
        tell_json({name: getattr(advice, name) for name in named})
        return
    console = Console()
    console.print(f"[bold]{advice.recommendation}[/bold]", highlight=False)
    for reason in advice.reasons:
        console.print(f"  - {reason}", highlight=False, markup=False)
    console.print()
    if console.is_terminal:
        console.print(Syntax(advice.code, "python", background_color="default"))
    else:
        sys.stdout.write(advice.code)
