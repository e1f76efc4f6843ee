"""Friction, bias and variance reduction: chains against exact laws, and one program for each."""

import jax
import numpy as np
import pytest
from scipy import stats

import ergodax as ex
from gallery.figures import bias, friction, sweep, variance_reduction

pytestmark = pytest.mark.slow

MOST = stats.norm.isf(0.5e-6)  # of a z score: one false alarm in a million


def unlikely(errors, expected):
    """Where the mean square of the chains' errors is not the exact one, by a test of level 1e-6.

    An average over m effective draws of a Gaussian's square is a chi-squared variable with m
    degrees of freedom, whose own square varies by 2 + 12 / m; the standard deviation of the average
    is sqrt(2 / m). Where there are too few draws for that, nothing is said.
    """
    freedom = len(errors) / (1.0 + 3.0 * expected**2)
    statistic = freedom * np.mean(errors**2, axis=0) / expected**2
    level = 0.5e-6 / expected.size
    outside = (statistic < stats.chi2.ppf(level, freedom)) | (
        statistic > stats.chi2.isf(level, freedom)
    )
    return outside[expected < 0.5]


def areas(table, x, by):
    """Under each curve of densities."""
    curves = table.pivot(index=x, columns=by, values="density")
    return curves.to_numpy().sum(axis=0) * np.diff(curves.index.to_numpy())[0]


def test_kernels_side_by_side_are_the_kernels(key, programs):
    target = ex.targets.gaussian(np.zeros(2), 1.0)
    kernels = [ex.sgld(ex.FullGradient(target), h) for h in (0.1, 0.3, 0.5)]
    together = sweep.side_by_side(kernels)
    state = together.init(key, jax.numpy.ones((3, 2)))
    new, info = together.step(key, state)
    for place, kernel in enumerate(kernels):
        own = jax.tree.map(lambda x, p=place: x[p], state)
        alone, _ = kernel.step(jax.random.split(key, 3)[place], own)
        np.testing.assert_allclose(new.position[place], alone.position, rtol=1e-6)
    np.testing.assert_allclose(info.step_size, [0.1, 0.3, 0.5])
    assert not np.allclose(new.position[0], new.position[1])
    for count in (3, 3, 2):
        before = len(programs)
        several = sweep.side_by_side(kernels[:count])
        ex.sample(several, jax.numpy.ones((count, 2)), 3, key=key, progress=False)
        assert (len(programs) > before) == (before == 0 or count == 2), "it sees a new program"
    with pytest.raises(ValueError, match="one at least"):
        sweep.side_by_side([])
    with pytest.raises(ValueError, match="differ in numbers alone"):
        sweep.side_by_side([kernels[0], ex.sghmc(ex.FullGradient(target), 0.1)])


def test_friction_has_the_exact_errors_and_one_program_a_sampler(programs, monkeypatch):
    monkeypatch.setattr(friction, "CHAINS", 64)  # more than the page has, to tell small errors
    found = friction.run(0.1, 10.0, 1.0, seed=1)
    first = len(programs)
    other = friction.run(0.05, 20.0, 3.0, seed=2)
    assert len(programs) == first, "other numbers were compiled anew"
    for result in (found, other):
        for name, draws in result.draws.items():
            errors = np.mean(draws.astype(float) ** 2, axis=1) - 1.0
            expected = result.law(name, friction.FRICTIONS).error_of_variance(friction.STEPS)
            assert not unlikely(errors, expected).any()
    # A control: the errors of the one are not those of the other.
    errors = np.mean(found.draws[friction.NAIVE].astype(float) ** 2, axis=1) - 1.0
    wrong = found.law(friction.COMPENSATED, friction.FRICTIONS).error_of_variance(friction.STEPS)
    assert unlikely(errors, wrong).any()
    assert found.least_friction == 0.5
    assert found.variance(friction.NAIVE) > 1.2 > found.variance(friction.COMPENSATED)


def test_friction_has_tables_of_what_it_found():
    result = friction.run(0.1, 10.0, 1.0, seed=1)
    again = friction.run(0.1, 10.0, 1.0, seed=1)
    np.testing.assert_array_equal(result.draws[friction.NAIVE], again.draws[friction.NAIVE])
    assert list(result.exact_errors()) == ["friction", "error", "sampler"]
    assert len(result.measured_errors()) == 2 * len(friction.FRICTIONS)
    ratio = result.measured_times().iloc[:, 1] / np.concatenate(
        [
            result.law(friction.COMPENSATED, friction.FRICTIONS).autocorrelation_times()[name]
            for name in ("mean", "variance")
        ]
    )
    assert 0.7 < np.median(ratio) < 1.4
    assert len(result.traces()) == 2 * friction.TRACED
    best, least = result.best()
    assert 0.5 < best < 3.0 and least < 0.3
    masses = areas(result.densities(), "x", "sampler")
    np.testing.assert_allclose(masses, 1.0, atol=0.02)


@pytest.mark.parametrize("batch_size", [4, bias.NUM_DATA])
def test_bias_has_the_exact_errors_and_one_program_a_batch_size(programs, batch_size, monkeypatch):
    monkeypatch.setattr(bias, "CHAINS", 64)  # more than the page has, to tell small errors
    found = bias.run(batch_size, 0.2, seed=1)
    first = len(programs)
    other = bias.run(batch_size, 0.05, seed=2)
    assert len(programs) == first, "another step size was compiled anew"
    for result in (found, other):
        value, error = result.measured_bias()
        assert abs(value - result.exact_bias()) < (MOST + 0.5) * error
        for quantity in bias.QUANTITIES:
            expected = result.exact(bias.STEPS, bias.LONGEST, quantity).total
            errors = bias.averages(result.draws, bias.LONGEST, quantity)
            assert not unlikely(errors, expected).any()
    value, error = found.measured_bias()
    assert abs(value - other.exact_bias()) > MOST * error, "the control is not seen"


def test_bias_has_tables_of_what_it_found():
    result = bias.run(4, 0.2, seed=1)
    parts = result.by_step(1000, "variance").pivot(
        index="step size", columns="part", values="error"
    )
    np.testing.assert_allclose(parts["total"] ** 2, parts["bias"] ** 2 + parts["spread"] ** 2)
    assert set(result.by_step(1000, "mean")["part"]) == {"total", "spread"}
    assert (np.diff(parts["bias"]) > 0).all()
    by = result.by_length("variance").pivot(index="steps", columns="with", values="error")
    assert (by["best for each length"] <= by["this step size"] * 1.001).to_numpy().all()
    assert by["this step size"].iloc[-1] == pytest.approx(abs(result.exact_bias()), rel=0.1)
    assert len(result.measured_by_step(1000, "mean")) == len(bias.STEPS)
    assert len(result.measured_by_length("mean")) == len(bias.LENGTHS)
    assert result.best_step(2000, "variance") < result.best_step(100, "variance")
    assert result.best_step(2000, "mean") > 0.3, "a mean has no bias to fear"


def test_the_noise_of_a_batch_is_that_of_all_batches():
    posterior, mean, sd = bias.problem()
    scores = np.asarray(posterior.data) - mean
    assert bias.gradient_noise(1) == pytest.approx(64**2 * scores.var() * sd**2, rel=1e-4)
    assert bias.gradient_noise(8) == pytest.approx(bias.gradient_noise(1) / 8)
    assert bias.gradient_noise(64) == 0.0


def test_variance_reduction_has_the_exact_laws_and_one_program_each(programs):
    found = variance_reduction.run(30, 0.1, 20, 10.0, seed=1)
    first = len(programs)
    other = variance_reduction.run(30, 0.05, 50, 5.0, seed=2)
    assert len(programs) == first, "other numbers were compiled anew"
    names = variance_reduction.ESTIMATORS
    for result in (found, other):
        table = result.table().set_index("estimator")
        for name in names[:2]:
            # Effective draws: of each coefficient h / 2 a step in its slowest direction, and fewer
            # for squares; twelve per cent is six standard errors of an sd.
            assert table.loc[name, "sd"] == pytest.approx(result.exact_sd(name), rel=0.12)
        assert table.loc[names[0], "variance of the gradient"] == pytest.approx(1.0, rel=0.15)
        assert (table.loc[list(names[1:]), "variance of the gradient"] < 0.05).all()
        assert (table.loc[list(names[1:]), "sd"] < 1.12).all()
    assert found.exact_sd(names[0]) > 1.3, "the control: plain batches are too hot"
    assert np.isnan(found.exact_sd("SAGA"))
    costs = found.table().set_index("estimator")["gradients a step"]
    assert costs.to_dict() == {names[0]: 30, names[1]: 60, "SVRG": 60 + 1000 / 20, "SAGA": 30}


def test_variance_reduction_shows_the_start_and_the_saw():
    result = variance_reduction.run(30, 0.1, 100, 40.0, seed=1)
    value = "variance of the gradient"
    noise = result.noise().pivot(index="step", columns="estimator", values=value)
    plain, centred = variance_reduction.PLAIN, variance_reduction.CENTRED
    assert noise[centred].iloc[0] > noise[plain].iloc[-40:].mean(), "far from the mode"
    assert noise[centred].iloc[-40:].max() < 0.05
    after, before = (noise["SVRG"].iloc[k::20].iloc[5:].mean() for k in (0, 19))
    assert before > 2.0 * after, "the noise of SVRG grows from one snapshot to the next"
    masses = areas(result.laws(), "coefficient", "estimator")
    np.testing.assert_allclose(masses, 1.0, atol=0.02)
    assert variance_reduction.Reduction(10, 2.5, {}).exact_sd(plain) == np.inf
