"""Step size, friction and mass of SGHMC, elsewhere and here."""

from typing import Any

from ergodax.convert.overdamped import Numbers


def with_unit_mass(step_size: Any, friction: Any, mass: Any = 1.0) -> Numbers:
    """The step size and friction that make the same positions with mass 1.

    Args:
        step_size: h.
        friction: the rate gamma.
        mass: M, a number.
    """
    root = mass**0.5
    return {"step_size": step_size / root, "friction": friction * root, "mass": 1.0}


def from_chen(eta: Any, alpha: Any, *, mass: Any = 1.0) -> Numbers:
    """v+ = v - eta grad U - alpha v + N(0, 2 alpha eta),   x+ = x + v+, with v = h M^-1 r.

    Their estimate beta of the gradient's noise is `compensate` here.

    Args:
        eta: their learning rate.
        alpha: their momentum decay; 1 - alpha is what others call momentum.
        mass: the M wanted.

    Returns:
        step_size, friction, mass.

    Reference:
        Chen, Fox and Guestrin, Stochastic gradient Hamiltonian Monte Carlo, 2014, Eq. (15).
    """
    step_size = (eta * mass) ** 0.5
    return {"step_size": step_size, "friction": alpha / step_size, "mass": mass}


def to_chen(step_size: Any, friction: Any, *, mass: Any = 1.0) -> Numbers:
    """The inverse of `from_chen`.

    Args:
        step_size: h.
        friction: the rate gamma.
        mass: M, a number.

    Returns:
        eta, alpha.
    """
    return {"eta": step_size**2 / mass, "alpha": step_size * friction}


def from_blackjax_sghmc(
    step_size: Any, num_integration_steps: int = 10, alpha: Any = 0.01, *, mass: Any = 1.0
) -> Numbers:
    """BlackJAX's sghmc at temperature 1: the explicit scheme, momenta drawn anew each call.

    One call there is `num_integration_steps` steps here, on one batch there and on a fresh one
    for each here. At another temperature its momenta are still drawn from N(0, 1), which no
    setting here repeats. The explicit scheme is unstable where h k >= gamma M, with k the
    curvature of U; the default scheme of `ex.sghmc` is not.

    Args:
        step_size: h.
        num_integration_steps: steps in a call.
        alpha: their friction, a rate.
        mass: the M wanted.

    Returns:
        step_size, friction, mass, scheme, resample_every.
    """
    root = mass**0.5
    return {
        "step_size": step_size * root,
        "friction": alpha / root,
        "mass": mass,
        "scheme": "euler",
        "resample_every": num_integration_steps,
    }


def to_blackjax_sghmc(
    step_size: Any,
    friction: Any,
    resample_every: int,
    *,
    mass: Any = 1.0,
    scheme: str = "euler",
) -> Numbers:
    """The inverse of `from_blackjax_sghmc`.

    Args:
        step_size: h.
        friction: the rate gamma.
        resample_every: steps between two draws of the momentum.
        mass: M, a number.
        scheme: must be "euler", which is all that BlackJAX has.

    Returns:
        step_size, num_integration_steps, alpha.

    Raises:
        ValueError: another scheme.
    """
    if scheme != "euler":
        raise ValueError(f"scheme must be 'euler', not {scheme!r}: BlackJAX has no other.")
    unit = with_unit_mass(step_size, friction, mass)
    return {
        "step_size": unit["step_size"],
        "num_integration_steps": resample_every,
        "alpha": unit["friction"],
    }


def from_posteriors_sghmc(
    lr: Any, alpha: Any = 0.01, temperature: Any = 1.0, *, num_data: Any = 1, mass: Any = 1.0
) -> Numbers:
    """The library `posteriors`, with beta = 0: the explicit scheme, m a momentum of mass 1.

    x+ = x + lr m,   m+ = m - lr grad (U / N) - lr alpha m + N(0, 2 lr alpha temperature)

    Args:
        lr: their learning rate.
        alpha: their friction.
        temperature: theirs; 1 / N for the posterior itself.
        num_data: what their log posterior was divided by: N, or 1 where it was not.
        mass: the M wanted.

    Returns:
        step_size, friction, mass, temperature, scheme.
    """
    slower = (num_data / mass) ** 0.5
    return {
        "step_size": lr / slower,
        "friction": alpha * slower,
        "mass": mass,
        "temperature": temperature * num_data,
        "scheme": "euler",
    }


def to_posteriors_sghmc(
    step_size: Any,
    friction: Any,
    temperature: Any = 1.0,
    *,
    num_data: Any = 1,
    mass: Any = 1.0,
    scheme: str = "euler",
) -> Numbers:
    """The inverse of `from_posteriors_sghmc`.

    Args:
        step_size: h.
        friction: the rate gamma.
        temperature: T.
        num_data: what their log posterior is divided by.
        mass: M, a number.
        scheme: must be "euler", which is all that posteriors has.

    Returns:
        lr, alpha, temperature.

    Raises:
        ValueError: another scheme.
    """
    if scheme != "euler":
        raise ValueError(f"scheme must be 'euler', not {scheme!r}: posteriors has no other.")
    slower = (num_data / mass) ** 0.5
    return {
        "lr": step_size * slower,
        "alpha": friction / slower,
        "temperature": temperature / num_data,
    }
