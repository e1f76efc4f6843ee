"""Wrong calls of the samplers for many modes, of phases, and of weighted averages."""

# pyright: reportArgumentType=false
# These calls are wrong, and the checker of an editor says so as well.
import jax.numpy as jnp
import numpy as np

import ergodax as ex
from ergodax.postprocess import weighted
from ergodax.schedule import Phases, Polynomial
from unit.wrong_calls.case import Case
from unit.wrong_calls.library import full, posterior, run


def cyclical(sampler=ex.sgld, gradient=None, step_size=0.1, *, period=10, **options):
    gradient = full() if gradient is None else gradient
    return ex.cyclical(sampler, gradient, step_size, period=period, **options)


def exchange(sampler=ex.sgld, gradient=None, step_size=0.1, **options):
    gradient = full() if gradient is None else gradient
    return ex.replica_exchange(sampler, gradient, step_size, **options)


def minibatch(size):
    return ex.Minibatch(posterior(), size)


PHASES = {
    "phases, none": Case(lambda: Phases([]), ValueError, ("phases", "nothing", "Try")),
    "phases, a number": Case(lambda: Phases([0.1]), TypeError, ("phases", "pair", "0.1")),
    "phases, with an end": Case(
        lambda: Phases([(3, 0.1), (5, 0.2)]), ValueError, ("(None, value)", "(5, 0.2)")
    ),
    "phases, endless too early": Case(
        lambda: Phases([(None, 0.1), (None, 0.2)]), ValueError, ("only the last", "None")
    ),
    "phases, fractions of steps": Case(
        lambda: Phases([(1.5, 0.1), (None, 0.2)]), TypeError, ("steps", "integer", "1.5")
    ),
    "phases, no steps": Case(
        lambda: Phases([(0, 0.1), (None, 0.2)]), ValueError, ("steps", "at least 1", "0")
    ),
    "phases, negative": Case(
        lambda: Phases([(3, -0.1), (None, 0.2)]), ValueError, ("value", "zero or positive", "-0.1")
    ),
}

CYCLES = {
    "cyclical, a kernel": Case(
        lambda: cyclical(ex.sgld(full(), 0.1)), TypeError, ("sampler", "ex.sgld itself", "beside")
    ),
    "cyclical, period": Case(lambda: cyclical(period=2.5), TypeError, ("period", "integer", "2.5")),
    "cyclical, no period": Case(lambda: cyclical(period=0), ValueError, ("period", "at least 1")),
    "cyclical, all exploring": Case(
        lambda: cyclical(exploration=1.0),
        ValueError,
        ("exploration", "below 1", "1.0"),
    ),
    "cyclical, a schedule": Case(
        lambda: cyclical(step_size=Polynomial(0.1)), TypeError, ("step_size", "a number")
    ),
    "cyclical, a sampler that can't be cold": Case(
        lambda: cyclical(ex.hmc), ValueError, ("temperature 0", "hmc", "ex.sgld", "exploration=0")
    ),
    "cyclical, no momentum": Case(
        lambda: run(cyclical(resample=True)), ValueError, ("resample=True", "Try ex.sghmc")
    ),
    "sampling stage of a sampler without": Case(
        lambda: run().sampling_stage(), ValueError, ("info.sampling", "ex.cyclical")
    ),
}

REPLICAS = {
    "replicas, a kernel": Case(
        lambda: exchange(ex.sgld(full(), 0.1)), TypeError, ("sampler", "ex.sgld itself")
    ),
    "replicas, one temperature": Case(
        lambda: exchange(temperatures=(1.0,)), ValueError, ("temperatures", "two", "Try (1.0, 2.0")
    ),
    "replicas, temperatures that fall": Case(
        lambda: exchange(temperatures=(4.0, 1.0)), ValueError, ("temperatures", "rising", "first")
    ),
    "replicas, temperatures of text": Case(
        lambda: exchange(temperatures="hot"), ValueError, ("temperatures", "'hot'")
    ),
    "replicas, step sizes": Case(
        lambda: exchange(step_size=[0.1, 0.2, 0.3], temperatures=(1.0, 2.0)),
        ValueError,
        ("step_size has 3 entries", "2 temperatures", "one for each"),
    ),
    "replicas, swap_every zero": Case(
        lambda: exchange(swap_every=0), ValueError, ("swap_every", "at least 1")
    ),
    "replicas, swap_every fraction": Case(
        lambda: exchange(swap_every=0.5), TypeError, ("swap_every", "integer", "0.5")
    ),
    "replicas, batches without data": Case(
        lambda: exchange(swap_batch_size=3), TypeError, ("swap_batch_size", "data", "Omit")
    ),
    "replicas, batches of one": Case(
        lambda: exchange(gradient=minibatch(1)), ValueError, ("one example", "swap_batch_size=")
    ),
    "replicas, batches too large": Case(
        lambda: exchange(gradient=minibatch(2), swap_batch_size=7),
        ValueError,
        ("batch_size=7", "6 rows"),
    ),
    "replicas, a thermostat": Case(
        lambda: run(exchange(ex.sgnht)), ValueError, ("thermostat", "Try ex.sgld")
    ),
}

WEIGHTED = {
    "weighted, an array": Case(
        lambda: weighted(jnp.ones((2, 9))), TypeError, ("samples", "ex.sample")
    ),
    "weighted, of another length": Case(
        lambda: weighted(run(), np.ones(3)), ValueError, ("weights", "(1, 4)", "(3,)")
    ),
}

CASES = {**PHASES, **CYCLES, **REPLICAS, **WEIGHTED}
