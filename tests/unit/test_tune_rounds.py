"""How many draws an inference begins with, and when it gives up a pilot."""

import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ergodax as ex
from ergodax.stats.estimators import scale_reduction
from ergodax.tune import doubts, lengths, rounds
from ergodax.tune.budget import Deadline
from ergodax.tune.decisions import LARGEST_R_HAT, DecisionLog, Tuned, differ, error_table
from ergodax.tune.doubts import narrowness
from ergodax.tune.kept import Kept
from ergodax.tune.nuts_kernel import Nuts
from ergodax.tune.reparametrisation import ReparametrisedTarget
from ergodax.tune.tails import endless_tail
from ergodax.tune.whitening import Coordinates

D, CHAINS = 20, 4
TARGET = ex.targets.gaussian(jnp.zeros(D), jnp.eye(D))
COORDINATES = Coordinates(jnp.zeros(D), jnp.eye(D))
TUNED = Tuned(None, COORDINATES, jnp.zeros((CHAINS, D)), None, 1, 0)


def first(monkeypatch, seconds, accuracy=0.05):
    monkeypatch.setattr(lengths, "seconds_of_gradient", lambda target, position: seconds)
    return lengths.first_round(TARGET, TUNED, accuracy, CHAINS)


def test_cheap_draws_are_many_and_dear_ones_are_those_that_are_needed(monkeypatch):
    assert first(monkeypatch, 1e-6) == lengths.AT_LEAST
    few = first(monkeypatch, 1.0)
    assert 1.0 / 0.05**2 < CHAINS * few < CHAINS * lengths.AT_LEAST
    assert few < first(monkeypatch, 0.002) < lengths.AT_LEAST
    assert first(monkeypatch, 1.0, accuracy=0.01) == lengths.AT_LEAST


def test_with_so_many_independent_draws_r_hat_is_below_its_limit(monkeypatch):
    """In 99 of 100 runs; of 300, 12 or more failures have a chance of 1 in 10,000."""
    count = first(monkeypatch, 1.0, accuracy=0.2)
    draws = np.random.default_rng(1).normal(size=(CHAINS, count, 300, D))
    largest = scale_reduction(draws, "split").max(axis=-1)
    assert np.sum(largest > LARGEST_R_HAT) < 12
    fewer = scale_reduction(draws[:, : count // 2], "split").max(axis=-1)
    assert np.mean(fewer > LARGEST_R_HAT) > 0.05, "the control"


def test_the_end_of_the_rounds_is_told_as_such():
    """Rounds with longer steps do not count."""
    kept = Kept(None, TARGET, jnp.zeros(D), jax.random.key(0), 60.0, accuracy=0.05, num_chains=4)
    found = rounds._Rounds(
        TARGET, TUNED, DecisionLog(), 0.05, CHAINS, Deadline.never(), False, kept
    )
    draws = np.random.default_rng(0).normal(size=(CHAINS, 20, D))
    found.samples = ex.Samples(draws, None, None)
    found.table = error_table(found.samples)
    found.r_hats, found.drawn = [1.0], rounds.ROUNDS
    assert f"after {rounds.ROUNDS} rounds" in found.shortcoming()
    found.longer = 2
    assert found.most == rounds.ROUNDS + 2 and "all there is room for" in found.shortcoming()


def funnel(z):
    """v of N(0, 1), and eight of N(0, exp(2 v))."""
    v, x = z[0], z[1:]
    return 0.5 * v**2 + 8.0 * v + 0.5 * jnp.sum(x**2) * jnp.exp(-2.0 * v)


@pytest.mark.slow
def test_where_a_step_is_unstable_shorter_ones_look():
    """The neck of a funnel, where trajectories turn back without a divergence."""
    target, begin, key = ex.Target(funnel), jnp.zeros(9), jax.random.key(2)
    coordinates = Coordinates(begin, jnp.eye(9))
    tuned = Tuned(Nuts(target, jnp.float32(0.2)), coordinates, jnp.zeros((CHAINS, 9)), None, 1, 50)
    kept = Kept(None, target, begin, key, np.inf)
    settings = {"accuracy": 0.1, "num_chains": CHAINS, "deadline": Deadline.after(40.0)}
    result = rounds.sample_rounds(
        target, tuned, key, DecisionLog(), progress=False, kept=kept, **settings
    )
    assert any(d.what == "shorter step" for d in result.account.decisions), str(result)
    row = result.table.iloc[0]
    assert abs(row["sd"] - 1.0) < 5.0 * row["mcse_sd"] or not result.converged, str(result)


def gorge(z):
    """x of N(0, 1), and y of N(0, s^2) with s from 1 to 1/20 where x passes 1."""
    log_s = -1.5 * (1.0 + jnp.tanh(4.0 * (z[0] - 1.0)))
    return 0.5 * z[0] ** 2 + 0.5 * z[1] ** 2 * jnp.exp(-2.0 * log_s) + log_s


@pytest.mark.slow
def test_divergent_trajectories_are_met_by_shorter_steps():
    """In place of the draws of longer ones. The control: not where a second attempt has time."""
    target, begin, key = ex.Target(gorge), jnp.zeros(2), jax.random.key(2)
    kernel = Nuts(target, jnp.float32(0.8))
    tuned = Tuned(kernel, Coordinates(begin, jnp.eye(2)), jnp.zeros((CHAINS, 2)), None, 1, 50)
    kept = Kept(None, target, begin, key, np.inf)
    settings = {"accuracy": 0.1, "num_chains": CHAINS, "deadline": Deadline.never()}
    settings |= {"progress": False, "kept": kept}
    first, careful = (
        rounds.sample_rounds(target, tuned, key, DecisionLog(), careful=careful, **settings)
        for careful in (False, True)
    )
    assert not first.converged and "diverged" in first.verdict()
    late = settings | {"kept": Kept(None, target, begin, key, 1e6), "deadline": Deadline.after(1e5)}
    last = rounds.sample_rounds(target, tuned, key, DecisionLog(), **late)
    for found in (careful, last):
        why = [d.why for d in found.account.decisions if d.what == "shorter step"]
        assert "diverged" in why[0], str(found)
        assert found.converged, str(found)
    row = careful.table.iloc[0]
    assert abs(row["mean"]) < 4.5 * row["mcse_mean"] and abs(row["sd"] - 1) < 4.5 * row["mcse_sd"]


@pytest.mark.slow
def test_with_shorter_steps_a_kept_inference_is_the_same_again(tmp_path, monkeypatch):
    """Though the time is up when it is looked at again, so that no shorter step would be begun."""
    y = jnp.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
    sigma = jnp.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])

    def schools(z):
        effects = z["mu"] + jnp.exp(z["log_tau"]) * z["standardised"]
        prior = (z["mu"] / 5.0) ** 2 + z["log_tau"] ** 2 + jnp.sum(z["standardised"] ** 2)
        return 0.5 * prior + 0.5 * jnp.sum(((y - effects) / sigma) ** 2)

    target = ex.Target(schools)
    begin = {"log_tau": jnp.zeros(()), "mu": jnp.zeros(()), "standardised": jnp.zeros(8)}
    settings = {"key": jax.random.key(2), "accuracy": 0.1, "progress": False, "max_seconds": 300.0}
    first = ex.infer(target, begin, checkpoint=ex.Checkpoint(tmp_path / "kept"), **settings)
    assert any(d.what == "shorter step" for d in first.account.decisions), str(first)
    monkeypatch.setattr(Deadline, "over", True)
    again = ex.infer(
        target, begin, checkpoint=ex.Checkpoint(tmp_path / "kept", resume=True), **settings
    )
    assert again.verdict() == first.verdict()
    jax.tree.map(np.testing.assert_array_equal, again.samples.position, first.samples.position)


@pytest.mark.parametrize("unstable", [True, False])
@pytest.mark.parametrize("scale", [1.0, 1.5])
def test_what_shorter_steps_find_is_compared_with_what_was_found(monkeypatch, scale, unstable):
    rng = np.random.default_rng(1)
    parts = [
        ex.Samples(sd * rng.normal(size=(CHAINS, 500, D)), None, None) for sd in (1.0, scale, scale)
    ]
    run = rounds._Rounds(
        TARGET, TUNED, DecisionLog(), 0.05, CHAINS, Deadline.never(), progress=False,
        kept=Kept(None, TARGET, jnp.zeros(D), jax.random.key(0), 1.0), parts=list(parts), before=1,
    )  # fmt: skip
    monkeypatch.setattr(rounds._Rounds, "look", lambda self, key: None)
    run._compare(jax.random.key(0), unstable)
    assert len(run.parts) == 2, "those of the shorter steps"
    assert bool(run.faults) == (unstable and scale != 1.0)


def _begun(draws, **found):
    """Rounds that have made these draws."""
    kept = Kept(None, TARGET, jnp.zeros(D), jax.random.key(0), 60.0, accuracy=0.05, num_chains=4)
    kernel = Nuts(TARGET, jnp.float32(0.2))
    tuned = Tuned(kernel, COORDINATES, jnp.zeros((CHAINS, D)), None, 1, 0)
    settings = TARGET, tuned, DecisionLog(), 0.05, CHAINS, Deadline.never(), False, kept
    ones = np.ones(draws.shape[:2])
    info = types.SimpleNamespace(accepted=ones > 0.0, gradient_norm=ones, weight=None)
    return rounds._Rounds(*settings, parts=[ex.Samples(draws, info, None)], **found)


@pytest.mark.parametrize("before", [0, 1, 2])
def test_tails_are_told_by_rounds_of_the_same_chains(before):
    """Not by those before the step was made shorter, of which no draws are left."""
    draws = np.random.default_rng(0).standard_cauchy(size=(CHAINS, 2_000, D))
    run = _begun(draws, drawn=5, r_hats=[1.0] * before)
    run.look(jax.random.key(0))
    assert any("heavy" in fault for fault in run.faults) == (before + 1 >= rounds.SURE)


def test_rounds_that_end_are_not_called_want_of_time(monkeypatch):
    monkeypatch.setattr(rounds, "narrowness", lambda *_, key: (1.0, 1.0))
    draws = np.random.default_rng(0).normal(size=(CHAINS, 50, D))
    for late, told in ((False, "the rounds had too few draws"), (True, "there was no time")):
        run = _begun(draws, drawn=rounds.ROUNDS + 1, shortened=1, longer=1, late=late)
        run.samples, run.good = run.parts[0], True
        assert run._deeper(jax.random.key(0)) == 0
        assert told in run.faults[0] and "density narrows" in run.faults[0]


def test_a_density_as_narrow_everywhere_needs_no_shorter_step():
    draws = np.random.default_rng(0).normal(size=(CHAINS, 200, D)).astype(np.float32)
    norms = np.linalg.norm(draws, axis=-1)
    top, usual = narrowness(TARGET, COORDINATES, draws, norms, key=jax.random.key(0))
    assert top == pytest.approx(1.0, rel=0.01) and usual == pytest.approx(1.0, rel=0.01)


def test_the_narrowest_place_is_found_and_its_curvature_is_right():
    """Of the funnel: exp(-2 v) in eight directions, where x is as large as there."""
    rng = np.random.default_rng(0)
    v = rng.normal(size=(CHAINS, 200))
    x = rng.normal(size=(CHAINS, 200, 8)) * np.exp(v)[..., None]
    draws = np.concatenate([v[..., None], x], axis=-1).astype(np.float32)
    gradients = jax.vmap(jax.vmap(jax.grad(funnel)))(draws)
    norms = np.linalg.norm(gradients, axis=-1)
    coordinates = Coordinates(jnp.zeros(9), jnp.eye(9))
    top, usual = narrowness(ex.Target(funnel), coordinates, draws, norms, key=jax.random.key(0))
    assert top > np.exp(-2.0 * v.min()) and usual < 0.05 * top


def test_tables_differ_only_by_more_than_chance_and_accuracy():
    rng = np.random.default_rng(3)

    def table(shift=0.0, scale=1.0):
        draws = scale * rng.normal(size=(CHAINS, 1_000, 5)) + shift
        return error_table(ex.Samples(draws, None, None))

    first = table()
    assert not differ(first, table(), 0.05)
    assert differ(first, table(shift=0.2), 0.05) and not differ(first, table(shift=0.2), 0.3)
    assert differ(first, table(scale=1.2), 0.05) and not differ(first, table(scale=1.2), 0.3)


def test_a_step_is_too_long_near_the_limit_and_where_the_density_narrows():
    for dimension in (1, 10, 1_000):  # the step to which it is adapted on a normal law
        assert doubts.shortening(1.55 / dimension**0.25, 1.0, 1.0) == 1.0
    assert doubts.shortening(0.1, 150.0, 1.0) == doubts.shortening(0.1, 250.0, 100.0) == 1.0
    assert doubts.shortening(0.1, 250.0, 1.0) == doubts.LESS, "it narrows"
    assert doubts.shortening(0.1, 350.0, 100.0) == doubts.HALF, "it goes on beyond the draws"


def test_chains_that_have_not_moved_are_told_and_no_tail_is_read_off_them():
    rng, target = np.random.default_rng(4), ex.Target(lambda x: 0.5 * jnp.sum(x**2))
    draws = {"a": rng.standard_normal((CHAINS, 20)), "b": rng.standard_normal((CHAINS, 20, 2))}
    assert doubts.standing_still(draws) == ""
    draws["a"][1] = draws["a"][1, :1]
    assert doubts.standing_still(draws) == "", "another part of it moves"
    draws["b"][1] = draws["b"][1, :1]
    assert doubts.standing_still(draws).startswith(f"1 of {CHAINS} chains stand still")
    flat = ex.Target(lambda x: 0.5 * x[0] ** 2)  # whose second component has no end
    with jax.enable_x64(True):
        like, moving = jnp.zeros(2), rng.standard_normal((CHAINS, 20, 2))
        assert endless_tail(target, like, moving) == ""
        assert "position[1]" in endless_tail(flat, like, moving, [1])
        moving[0] = moving[0, :1]
        assert endless_tail(flat, like, moving, [1]) == ""


def test_effects_are_named_only_where_scales_were_seen_to_follow_others():
    kept = Kept(None, TARGET, jnp.zeros(D), jax.random.key(0), 60.0, accuracy=0.05, num_chains=4)
    run = rounds._Rounds(TARGET, TUNED, DecisionLog(), 0.05, CHAINS, Deadline.never(), False, kept)
    run.drawn, run.r_hats = rounds.ROUNDS, [1.0]
    draws = np.exp(1.2 * np.random.default_rng(0).normal(size=(CHAINS, 500, D)))
    run.samples = ex.Samples(draws, None, None)
    run.table = error_table(run.samples)
    assert "effects" not in run.neck + run.shortcoming()
    run.target = object.__new__(ReparametrisedTarget)
    assert "standardised effects" in run.neck
