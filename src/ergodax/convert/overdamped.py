"""The step of overdamped Langevin dynamics, elsewhere and here."""

from typing import Any

Numbers = dict[str, Any]


def from_welling_teh(epsilon: Any) -> Numbers:
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


def to_welling_teh(step_size: Any) -> Numbers:
    """The inverse of `from_welling_teh`.

    Args:
        step_size: h.

    Returns:
        epsilon.
    """
    return {"epsilon": 2.0 * step_size}


def from_tfp_sgld(learning_rate: Any) -> Numbers:
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


def to_tfp_sgld(step_size: Any) -> Numbers:
    """The inverse of `from_tfp_sgld`.

    Args:
        step_size: h.

    Returns:
        learning_rate.
    """
    return {"learning_rate": 2.0 * step_size}


def from_blackjax_sgld(step_size: Any, temperature: Any = 1.0) -> Numbers:
    """BlackJAX's sgld has this library's convention: the numbers stay as they are.

    Args:
        step_size: h.
        temperature: T.

    Returns:
        step_size, temperature.
    """
    return {"step_size": step_size, "temperature": temperature}


to_blackjax_sgld = from_blackjax_sgld


def from_posteriors_sgld(lr: Any, temperature: Any = 1.0, *, num_data: Any = 1) -> Numbers:
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


def to_posteriors_sgld(step_size: Any, temperature: Any = 1.0, *, num_data: Any = 1) -> Numbers:
    """The inverse of `from_posteriors_sgld`.

    Args:
        step_size: h.
        temperature: T.
        num_data: what their log posterior is divided by.

    Returns:
        lr, temperature.
    """
    return {"lr": step_size * num_data, "temperature": temperature / num_data}
