"""Draws until the coefficient is known well enough, the first half always left out."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, PRNGKeyArray

from ergodax.local.chains import Chains, Trace, settled_chains
from ergodax.local.law import LocalLaw
from ergodax.stats.estimators import effective_size, halves, scale_reduction, standard_error
from ergodax.tune.budget import Deadline

FIRST_DRAWS = 40  # of each chain, before anything is told
ERRORS = 2.0  # standard errors that a printed error has
MOST_R_HAT = 1.05
FEWEST = 60.0  # effective draws, below which the Monte Carlo error is not known itself
SLUGGISH = 0.15  # effective draws a trajectory, below which trajectories are made longer
MOST_GROWTH = 3.0  # of the number of draws from one round to the next
MOST_DRAWS = 500_000  # of each chain
SPARE = 1.2  # times the draws that seem to be needed


class Told(NamedTuple):
    """What the draws that count say."""

    mean: float
    mcse: float
    ess: float
    r_hat: float  # of the energies
    r_hat_distance: float
    spread: float  # between the lowest and the highest mean of half a chain's energies
    spread_distance: float  # likewise of |w - w*|^2, over its mean

    @property
    def mixed(self) -> bool:
        """Whether the chains are as one, and long enough to know it."""
        r_hats = np.max([self.r_hat, self.r_hat_distance])
        return bool(self.ess >= FEWEST and r_hats <= MOST_R_HAT)  # False for NaN

    @property
    def sluggish(self) -> bool:
        """Whether the weights lag behind energies that are known."""
        return self.ess >= FEWEST and self.r_hat_distance > MOST_R_HAT

    @property
    def error(self) -> float:
        """Two standard errors; of chains too short for these, twice how far halves lie apart."""
        return ERRORS * float(self.mcse if self.mixed else np.max([self.mcse, self.spread]))

    def converged(self, accuracy: float) -> bool:
        """Whether the chains have forgotten where they began, as far as the accuracy goes.

        In many dimensions energies hardly vary, and a few draws of chains that come from below and
        from above tell enough, although R-hat can't be near 1 yet.
        """
        far = max(self.spread / max(abs(self.mean), 1e-300), self.spread_distance)
        return self.mixed or bool(far <= accuracy)

    def enough(self, accuracy: float) -> bool:
        """Whether they have converged and the error is within the accuracy."""
        return self.converged(accuracy) and self.error <= accuracy * abs(self.mean)


def told(trace: Trace) -> Told:
    """Mean, error and convergence; NaN of too few draws."""
    x = trace.energy
    if x.shape[1] < 4 or not np.isfinite(x).all():
        return Told(float(np.mean(x)) if x.size else np.nan, *[np.nan] * 6)
    pairs = [v if len(v) > 1 else halves(v) for v in (x, trace.distance)]
    r_hats = [float(scale_reduction(v)) for v in pairs]
    # Of halves, so that chains that drift together are apart from themselves.
    spreads = [float(np.ptp(halves(v).mean(axis=1))) for v in (x, trace.distance)]
    spreads[1] /= max(float(trace.distance.mean()), 1e-300)
    numbers = float(x.mean()), float(standard_error(x)), float(effective_size(x))
    return Told(*numbers, *r_hats, *spreads)


class Sampled(NamedTuple):
    """The chains and what was seen of them."""

    chains: Chains
    trace: Trace  # all draws after the step and the length were found
    burn_in: int  # of them, that do not count
    told: Told

    @property
    def counted(self) -> Trace:
        """The draws that count."""
        return self.trace.after(self.burn_in)

    @property
    def acceptance(self) -> float:
        """Of the trajectories; 0 of chains that can't move, NaN where there was no time for any."""
        if not self.trace.acceptance.size:
            return np.nan if self.chains.step else 0.0
        return float(self.trace.acceptance.mean())

    def seconds_wanted(self, accuracy: float, took: float) -> float:
        """About how long all would take to be within the accuracy, from how long it took."""
        off = ERRORS * self.told.mcse / (accuracy * abs(self.told.mean))
        more = np.max([off**2, FEWEST / self.told.ess, 1.0 if self.told.mixed else 2.0])
        return took * float(np.nan_to_num(more, nan=10.0))


def sampled(
    law: LocalLaw, key: PRNGKeyArray, num_chains: int, accuracy: float, deadline: Deadline
) -> Sampled:
    """Run chains until they agree and the Monte Carlo error is within the accuracy.

    After each round the latter half of all draws counts. So what is left of the start shrinks as
    the run goes on, whatever the relaxation time is. Where trajectories are hardly ever accepted in
    places, these are visited too rarely, which no R-hat sees: there the step is made shorter. Where
    all chains are below the loss at w*, more of them would not help.
    """
    chains = settled_chains(law, key, num_chains, deadline)
    trace, more = chains.run(FIRST_DRAWS).energies(), FIRST_DRAWS
    while True:
        done = trace.energy.shape[1]
        found = told(trace.after(done // 2))
        fits = trace.after(done - more).fits
        ready = fits and found.enough(accuracy)
        below = done > 2 * FIRST_DRAWS and (trace.energy[:, done // 2 :].mean(axis=1) < 0.0).all()
        if ready or below or deadline.over or done > MOST_DRAWS or not np.isfinite(found.mean):
            return Sampled(chains, trace, done // 2, found)
        if not fits:
            chains.shorten()
        elif found.sluggish or found.ess < SLUGGISH * trace.energy[:, done // 2 :].size:
            chains.lengthen()
        more = int(np.ceil(done * (_growth(found, accuracy) - 1.0)))
        trace = trace.joined(chains.run(more).energies())


def unmoved(law: LocalLaw, key: PRNGKeyArray, num_chains: int, deadline: Deadline) -> Sampled:
    """Chains at w*, from where no trajectory would be accepted."""
    nothing = np.zeros((num_chains, 0))
    trace = Trace(nothing, nothing, nothing[..., None], nothing)
    return Sampled(Chains(law, key, num_chains, deadline, 0.0), trace, 0, told(trace))


def _growth(found: Told, accuracy: float) -> float:
    """By which factor the draws shall become more."""
    off = ERRORS * found.mcse / (accuracy * max(abs(found.mean), 1e-300))
    wanted = SPARE * np.nanmax([off**2, FEWEST / found.ess])
    least = 1.25 if found.mixed else 2.0
    return float(np.clip(np.nan_to_num(wanted, nan=2.0), least, MOST_GROWTH))


def slope(energy: Float[np.ndarray, "chains draws"]) -> tuple[float, float]:
    """d lambda-hat / d log t and its standard error, from the same draws: E[x] - Var[x].

    It is 0 where the model is regular, and (m - 1) / log(t)^2 to first order for multiplicity m.
    """
    terms = energy - (energy - energy.mean()) ** 2
    return float(terms.mean()), float(standard_error(terms))
