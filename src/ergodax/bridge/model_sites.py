"""What a NumPyro model consists of, and why some models can't be sampled in batches."""

from typing import Any

from ergodax.bridge.model_program import inside

WHOLE = "With plate=None the model becomes an ex.Target, evaluated on the whole data."


def latent_sites(trace: dict) -> list[dict]:
    """The sites to be sampled, all of them continuous.

    Args:
        trace: of the model.

    Raises:
        ValueError: there is none, one is discrete, or a site is of a kind that no posterior has.
    """
    for name, site in trace.items():
        if site["type"] in ("param", "mutable"):
            raise ValueError(
                f"the model has the {site['type']} site {name!r}, which belongs to optimisation. "
                "Try a numpyro.sample with a prior."
            )
    latent = [s for s in trace.values() if s["type"] == "sample" and not s["is_observed"]]
    for site in latent:
        if getattr(site["fn"].support, "is_discrete", False):
            raise ValueError(
                f"the model has the discrete latent site {site['name']!r}, along which there is "
                "no gradient. Sum it out, as numpyro.distributions.MixtureSameFamily does."
            )
    if not latent:
        raise ValueError("the model has no latent site, so there is nothing to sample.")
    return latent


def data_plate(trace: dict, leaves: list[Any], plate: Any) -> str | None:
    """The name of the plate whose rows are the examples.

    Args:
        trace: of the model.
        leaves: of the model's arguments.
        plate: its name, None for no plate, or "auto" for the only one that will do.

    Returns:
        The name, or None where there is no plate of observed sites.

    Raises:
        ValueError: the plate will not do, none of several will, or more than one.
    """
    if plate is None:
        return None
    names = {frame.name: None for site in trace.values() if _is_observed(site)
             for frame in site["cond_indep_stack"]}  # fmt: skip
    if plate != "auto":
        if plate not in names:
            raise ValueError(
                f"plate={plate!r} is not a plate of observed sites; the model has {list(names)}."
            )
        names = {plate: None}
    faults = {name: fault(trace, leaves, name) for name in names}
    good = [name for name, why in faults.items() if why is None]
    if len(good) > 1:
        raise ValueError(f"the data may be the plates {good}: say which, as in plate={good[0]!r}.")
    if not good and faults:
        raise ValueError("; ".join(why for why in faults.values() if why) + f". {WHOLE}")
    return good[0] if good else None


def fault(trace: dict, leaves: list[Any], plate: str) -> str | None:
    """Why the rows of a plate can't be the examples of a posterior; None where they can.

    Args:
        trace: of the model.
        leaves: of the model's arguments.
        plate: the name of a plate.
    """
    size, subsample_size = trace[plate]["args"]
    if subsample_size not in (None, size):
        return (
            f"the plate {plate!r} is subsampled by the model ({subsample_size} of {size}), and "
            "the library draws its own batches: leave out subsample_size"
        )
    local = [s["name"] for s in trace.values()
             if s["type"] == "sample" and not s["is_observed"] and inside(s, plate)]  # fmt: skip
    if local:
        return (
            f"the latent sites {local} are local to the plate {plate!r}: a batch of its rows says "
            "nothing of the others'"
        )
    if not any(is_rows(leaf, size) for leaf in leaves):
        return (
            f"no argument of the model has the {size} rows of the plate {plate!r} as its leading "
            "axis: pass the data as arguments, not by a closure"
        )
    return None


def is_rows(leaf: Any, count: int) -> bool:
    """Whether an argument is an array with this many rows."""
    return hasattr(leaf, "shape") and leaf.shape[:1] == (count,)


def _is_observed(site: dict) -> bool:
    return site["type"] == "sample" and site["is_observed"]
