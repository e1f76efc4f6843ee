"""What an optimiser's learning rate, momentum and weight decay are as a sampler's numbers."""

from typing import Any

from ergodax.convert.overdamped import Numbers


def from_wenzel(
    learning_rate: Any,
    momentum: Any,
    temperature: Any = 1.0,
    *,
    num_data: Any,
    mass: Any = 1.0,
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


def to_wenzel(
    step_size: Any, friction: Any, temperature: Any = 1.0, *, num_data: Any, mass: Any = 1.0
) -> Numbers:
    """The inverse of `from_wenzel`.

    Args:
        step_size: h.
        friction: the rate gamma.
        temperature: T.
        num_data: N.
        mass: M, a number.

    Returns:
        learning_rate, momentum, temperature.
    """
    return {
        "learning_rate": step_size**2 * num_data / mass,
        "momentum": 1.0 - step_size * friction,
        "temperature": temperature,
    }


def from_torch_sgd(
    lr: Any,
    momentum: Any,
    *,
    num_data: Any,
    mass: Any = 1.0,
) -> Numbers:
    """torch.optim.SGD on a mean loss: b+ = momentum b + grad (U / N),   x+ = x - lr b+.

    That is `ex.sghmc` at temperature 0, with no dampening and no Nesterov step; at temperature
    T it is the sampler that moves like it.

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


def to_torch_sgd(step_size: Any, friction: Any, *, num_data: Any, mass: Any = 1.0) -> Numbers:
    """The inverse of `from_torch_sgd`.

    Args:
        step_size: h.
        friction: the rate gamma.
        num_data: N.
        mass: M, a number.

    Returns:
        lr, momentum.
    """
    numbers = to_wenzel(step_size, friction, num_data=num_data, mass=mass)
    return {"lr": numbers["learning_rate"], "momentum": numbers["momentum"]}


def from_weight_decay(weight_decay: Any, *, num_data: Any) -> Numbers:
    """The Gaussian prior that a weight decay on the mean loss is: precision N weight_decay.

    Args:
        weight_decay: w, in mean loss + (w / 2) |x|^2.
        num_data: N.

    Returns:
        scale, the prior's standard deviation.
    """
    return {"scale": (num_data * weight_decay) ** -0.5}


def to_weight_decay(scale: Any, *, num_data: Any) -> Numbers:
    """The inverse of `from_weight_decay`.

    Args:
        scale: the prior's standard deviation.
        num_data: N.

    Returns:
        weight_decay.
    """
    return {"weight_decay": 1.0 / (num_data * scale**2)}
