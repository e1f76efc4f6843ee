"""Step sizes, frictions and temperatures of other papers and libraries, in this one's convention.

Here the potential U is that of the whole data, and
    overdamped:  x+ = x - h grad U + N(0, 2 h T)
    underdamped: r+ = r - h grad U - h gamma r + N(0, 2 h T gamma M),   x+ = x + h M^-1 r+
Each `from_...` takes the other side's numbers and returns keyword arguments of `ex.sgld` or
`ex.sghmc`, which `SGLD` and `SGHMC` of `bridge.torch` take as well; each `to_...` takes these and
returns the other side's numbers. Numbers may be arrays.
Everywhere step_size is h, friction the rate gamma, temperature T, mass M, and num_data N.

Step size, friction and mass are one number too many: (h, gamma, M) and (h / sqrt(M),
gamma sqrt(M), 1) make the same positions from the same noise. Where the other side has no mass,
`from_...` gives the pair that belongs to the `mass` asked for.

Example:
    >>> import ergodax as ex
    >>> from ergodax import convert
    >>> target = ex.targets.gaussian([0.0], [[1.0]])
    >>> kernel = ex.sghmc(ex.FullGradient(target), **convert.from_chen(eta=1e-4, alpha=0.01))
"""

import functools
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from ergodax import tree
from ergodax.checks import LEAST, numbers, whole_number
from ergodax.tree import Number

Numbers = dict[str, Any]
COUNTS = ("num_integration_steps", "resample_every")
MAY_BE_ZERO = ("alpha", "friction", "momentum", "temperature")


def _of_numbers(function: Callable[..., Numbers]) -> Callable[..., Numbers]:
    """The same function, which refuses by name what is no number, or out of range."""
    names = tuple(inspect.signature(function).parameters)

    @functools.wraps(function)
    def checked(*given: Any, **more: Any) -> Numbers:
        named = {**dict(zip(names, given, strict=False)), **more}
        for name in named.keys() - {"scheme"}:
            named[name] = (whole_number if name in COUNTS else _checked)(name, named[name])
        try:
            np.broadcast_shapes(*(np.shape(x) for name, x in named.items() if name != "scheme"))
        except ValueError as error:
            shapes = {name: np.shape(value) for name, value in named.items()}
            raise ValueError(
                f"the arrays do not fit each other; their shapes are {shapes}."
            ) from error
        return function(**named)

    return checked


def _checked(name: str, value: Any) -> Any:
    """Numbers or arrays of them, positive or not negative, and momentum below 1."""
    value = numbers(name, value)
    if tree.is_traced(value):
        return value
    array = np.asarray(value, float)
    zero, below = name in MAY_BE_ZERO, 1.0 if name == "momentum" else np.inf
    if not (((array >= 0) if zero else (array >= LEAST)) & (array < below)).all():
        least = "zero or positive" if zero else "positive"
        raise ValueError(f"{name} must be {least} and below {below:g}, not {value!r}.")
    return value


# Overdamped Langevin dynamics


@_of_numbers
def from_welling_teh(epsilon: Number) -> Numbers:
    """x+ = x - (epsilon / 2) grad U + N(0, epsilon): the step of most papers on SGLD.

    Also of Patterson and Teh (the paper, not its published code), Li et al. and Ahn et al.

    Args:
        epsilon: their step size.

    Returns:
        step_size.

    Reference:
        Welling and Teh, Bayesian learning via stochastic gradient Langevin dynamics, 2011.
    """
    return {"step_size": 0.5 * epsilon}


@_of_numbers
def to_welling_teh(step_size: Number) -> Numbers:
    """The inverse of `from_welling_teh`: epsilon."""
    return {"epsilon": 2.0 * step_size}


@_of_numbers
def from_tfp_sgld(learning_rate: Number) -> Numbers:
    """TensorFlow Probability: x+ = x - (l / 2) data_size grad mean loss + N(0, l).

    Its data_size is the N of the posterior, and its loss holds the prior divided by N. The
    preconditioner is always on there: `ex.psgld` is the sampler to compare with, whose metric
    is 1 / (damping + sqrt(V)) where TFP has 1 / sqrt(V + diagonal_bias).

    Args:
        learning_rate: l.

    Returns:
        step_size.
    """
    return {"step_size": 0.5 * learning_rate}


@_of_numbers
def to_tfp_sgld(step_size: Number) -> Numbers:
    """The inverse of `from_tfp_sgld`: learning_rate."""
    return {"learning_rate": 2.0 * step_size}


@_of_numbers
def from_blackjax_sgld(step_size: Number, temperature: Number = 1.0) -> Numbers:
    """BlackJAX's sgld has this library's convention: h and T stay as they are."""
    return {"step_size": step_size, "temperature": temperature}


to_blackjax_sgld = from_blackjax_sgld


@_of_numbers
def from_posteriors_sgld(lr: Number, temperature: Number = 1.0, *, num_data: Number = 1) -> Numbers:
    """The library `posteriors`, whose log posterior is usually divided by N: see num_data.

    x+ = x - lr grad (U / N) + N(0, 2 lr temperature), with exp(-U / N / temperature) invariant.

    Args:
        lr: their learning rate.
        temperature: theirs; 1 / N for the posterior itself.
        num_data: what their log posterior was divided by: N, or 1 where it was not.

    Returns:
        step_size, temperature.
    """
    return {"step_size": lr / num_data, "temperature": temperature * num_data}


@_of_numbers
def to_posteriors_sgld(
    step_size: Number, temperature: Number = 1.0, *, num_data: Number = 1
) -> Numbers:
    """The inverse of `from_posteriors_sgld`, with the same num_data: lr and temperature."""
    return {"lr": step_size * num_data, "temperature": temperature / num_data}


# SGHMC


@_of_numbers
def with_unit_mass(step_size: Number, friction: Number, mass: Number = 1.0) -> Numbers:
    """The step size and friction that make the same positions with mass 1; M is a number."""
    root = mass**0.5
    return {"step_size": step_size / root, "friction": friction * root, "mass": 1.0}


@_of_numbers
def from_chen(eta: Number, alpha: Number, *, mass: Number = 1.0) -> Numbers:
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


@_of_numbers
def to_chen(step_size: Number, friction: Number, *, mass: Number = 1.0) -> Numbers:
    """The inverse of `from_chen`: eta and alpha; M is a number."""
    return {"eta": step_size**2 / mass, "alpha": step_size * friction}


@_of_numbers
def from_blackjax_sghmc(
    step_size: Number, num_integration_steps: int = 10, alpha: Number = 0.01, *, mass: Number = 1.0
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


@_of_numbers
def to_blackjax_sghmc(
    step_size: Number,
    friction: Number,
    resample_every: int,
    *,
    mass: Number = 1.0,
    scheme: str = "euler",
) -> Numbers:
    """The inverse of `from_blackjax_sghmc`: step_size, num_integration_steps and alpha.

    `resample_every` is the number of steps between two draws of the momentum; M is a number.

    Raises:
        ValueError: a scheme other than "euler", which is all that BlackJAX has.
    """
    _check_euler(scheme, "BlackJAX")
    unit = with_unit_mass(step_size, friction, mass)
    return {
        "step_size": unit["step_size"],
        "num_integration_steps": resample_every,
        "alpha": unit["friction"],
    }


@_of_numbers
def from_posteriors_sghmc(
    lr: Number,
    alpha: Number = 0.01,
    temperature: Number = 1.0,
    *,
    num_data: Number = 1,
    mass: Number = 1.0,
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


@_of_numbers
def to_posteriors_sghmc(
    step_size: Number,
    friction: Number,
    temperature: Number = 1.0,
    *,
    num_data: Number = 1,
    mass: Number = 1.0,
    scheme: str = "euler",
) -> Numbers:
    """The inverse of `from_posteriors_sghmc`, with the same num_data: lr, alpha and temperature.

    M is a number.

    Raises:
        ValueError: a scheme other than "euler", which is all that posteriors has.
    """
    _check_euler(scheme, "posteriors")
    slower = (num_data / mass) ** 0.5
    return {
        "lr": step_size * slower,
        "alpha": friction / slower,
        "temperature": temperature / num_data,
    }


def _check_euler(scheme: str, library: str) -> None:
    if not isinstance(scheme, str) or scheme != "euler":
        raise ValueError(f"scheme must be 'euler', not {scheme!r}: {library} has no other.")


# Optimisers: learning rate, momentum and weight decay


@_of_numbers
def from_wenzel(
    learning_rate: Number,
    momentum: Number,
    temperature: Number = 1.0,
    *,
    num_data: Number,
    mass: Number = 1.0,
) -> Numbers:
    """m+ = beta m - h grad U + N(0, 2 (1 - beta) T M),   x+ = x + h M^-1 m+, h = sqrt(l M / N).

    Args:
        learning_rate: l, on the mean loss U / N.
        momentum: beta, in [0, 1).
        temperature: T; cold posteriors have T < 1.
        num_data: N.
        mass: the M wanted.

    Returns:
        step_size, friction, mass, temperature.

    Reference:
        Wenzel, Roth, Veeling, Swiatkowski, Tran, Mandt, Snoek, Salimans, Jenatton and Nowozin,
        How good is the Bayes posterior in deep neural networks really?, 2020.
    """
    step_size = (learning_rate * mass / num_data) ** 0.5
    return {
        "step_size": step_size,
        "friction": (1.0 - momentum) / step_size,
        "mass": mass,
        "temperature": temperature,
    }


@_of_numbers
def to_wenzel(
    step_size: Number,
    friction: Number,
    temperature: Number = 1.0,
    *,
    num_data: Number,
    mass: Number = 1.0,
) -> Numbers:
    """The inverse of `from_wenzel`: learning_rate, momentum and temperature; M is a number."""
    return {
        "learning_rate": step_size**2 * num_data / mass,
        "momentum": 1.0 - step_size * friction,
        "temperature": temperature,
    }


@_of_numbers
def from_torch_sgd(
    lr: Number, momentum: Number = 0.0, *, num_data: Number, mass: Number = 1.0
) -> Numbers:
    """torch.optim.SGD on a mean loss: b+ = momentum b + grad (U / N),   x+ = x - lr b+.

    That is `ex.sghmc`, or `bridge.torch.SGHMC`, at temperature 0, with no dampening and no
    Nesterov step; at temperature T it is the sampler that moves like it. Without momentum its
    positions are those of `ex.sgld` with the step lr / N. For a weight decay see
    `from_weight_decay`.

    Args:
        lr: the learning rate.
        momentum: in [0, 1).
        num_data: N.
        mass: the M wanted.

    Returns:
        step_size, friction, mass.
    """
    numbers = from_wenzel(lr, momentum, num_data=num_data, mass=mass)
    return {name: numbers[name] for name in ("step_size", "friction", "mass")}


@_of_numbers
def to_torch_sgd(
    step_size: Number, friction: Number, *, num_data: Number, mass: Number = 1.0
) -> Numbers:
    """The inverse of `from_torch_sgd`: lr and momentum; M is a number."""
    numbers = to_wenzel(step_size, friction, num_data=num_data, mass=mass)
    return {"lr": numbers["learning_rate"], "momentum": numbers["momentum"]}


@_of_numbers
def from_weight_decay(weight_decay: Number, *, num_data: Number) -> Numbers:
    """The Gaussian prior that a weight decay on the mean loss is: precision N weight_decay.

    Args:
        weight_decay: w, in mean loss + (w / 2) |x|^2.
        num_data: N.

    Returns:
        scale, the prior's standard deviation.
    """
    return {"scale": (num_data * weight_decay) ** -0.5}


@_of_numbers
def to_weight_decay(scale: Number, *, num_data: Number) -> Numbers:
    """The inverse of `from_weight_decay`: weight_decay, from the prior's standard deviation."""
    return {"weight_decay": 1.0 / (num_data * scale**2)}
