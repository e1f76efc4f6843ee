"""The friction of SGHMC, a marimo notebook."""

import marimo

__generated_with = "0.25.2"
app = marimo.App(width="medium", app_title="How much friction")


@app.cell
def _imports():
    import marimo as mo

    from gallery import charts, controls, pages, results
    from gallery.figures import friction

    return charts, controls, friction, mo, pages, results


@app.cell
def _text(mo, pages):
    mo.md(
        pages.heading("friction")
        + r"""

SGHMC on $N(0, 1)$ with a gradient whose noise has variance $V$. A step brings noise of variance
$h^2 V$ into the momentum and friction $\gamma$ takes out heat: if nothing is done, the chain is
too hot by $h V / 2\gamma$. *Compensated*, the sampler injects $2 h \gamma - h^2 V$ in place of $2
h \gamma$ and the heat is gone, provided that $\gamma \geq h V / 2$ (the grey line).

Too much friction is wrong in another way. The momentum is forgotten before it has led anywhere,
the chain diffuses, and an effective draw takes ever more steps. The error of a chain's variance
after 1000 steps is therefore a U. Points are chains; curves are exact, since the chain is linear
and Gaussian.

Try more noise: the hot side moves to the right, and the best friction with it. Then take the
noise away: what is left is the price of friction itself. For the *mean* less friction is always
better, since an orbit averages to zero; for the variance an orbit of constant energy tells
nothing.
"""
    )
    return


@app.cell
def _controls(controls, friction):
    noise = controls.scale("gradient noise $V$", 10, 0, 40, 2)
    step = controls.scale("step size $h$", 0.1, 0.02, 0.15, 0.01)
    rate = controls.slider(
        r"friction $\gamma$ below",
        1.0,
        [0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 5.0, 8.0, 12.0],
    )
    again = controls.again()
    controls.row(noise, step, rate, again)
    return again, noise, rate, step


@app.cell
def _compute(again, friction, noise, rate, results, step):
    result = results.once(friction.run, step.value, noise.value, rate.value, again.value)
    return (result,)


@app.cell
def _picture(charts, friction, mo, result):
    ends = (0.9 * friction.LEAST, 1.1 * friction.MOST)
    colours = {
        friction.COMPENSATED: charts.BLUE,
        friction.NAIVE: charts.ORANGE,
        "exact": charts.EXACT,
    }
    kinds = {"mean": charts.GREEN, "variance": charts.PURPLE}
    log = {"log_x": True, "log_y": True, "x_range": ends}
    exact, measured = result.exact_errors(), result.measured_errors()
    log["y_range"] = charts.room(exact["error"], measured["error"])
    errors = charts.lines(
        exact, "friction", "error", "sampler", colours=colours, **log,
        title=f"Error of the variance after {friction.STEPS} steps",
    ) + charts.points(measured, "friction", "error", "sampler", colours=colours, **log)  # fmt: skip
    if ends[0] < result.least_friction < ends[1]:
        errors = errors + charts.upright("friction", result.least_friction)
    wait = "steps to an effective draw"
    exact, measured = result.exact_times(), result.measured_times()
    log["y_range"] = charts.room(exact[wait], measured[wait])
    times = charts.lines(
        exact, "friction", wait, "of", colours=kinds, **log,
        title="Autocorrelation time, compensated",
    ) + charts.points(measured, "friction", wait, "of", colours=kinds, **log)  # fmt: skip
    traces = charts.lines(
        result.traces(), "step", "x", "sampler", colours=colours, width=1.3,
        title=f"One chain of each at friction {result.friction:g}",
    )  # fmt: skip
    laws = charts.lines(
        result.densities(), "x", "density", "sampler", colours=colours, y_range=(0.0, 0.45),
        title=f"Law of x at friction {result.friction:g}",
    )  # fmt: skip
    best, least = result.best()
    hot = "; ".join(
        f"{name} {result.variance(name):.3f} (stationary {result.exact_variance(name):.3f})"
        for name in friction.SAMPLERS
    )
    mo.vstack(
        [
            charts.beside(errors, times),
            charts.beside(traces, laws),
            mo.md(
                f"Variance at friction {result.friction:g}: {hot}; the target's is 1. Compensation "
                f"is feasible from friction {result.least_friction:.3g} on. The error is least, "
                f"{least:.3f}, at friction {best:.2g}."
            ),
        ]
    )
    return


@app.cell
def _code(mo):
    mo.md(r"""
## The same in code

```python
import jax
import jax.numpy as jnp
import ergodax as ex

target = ex.targets.gaussian(jnp.zeros(1), 1.0)
gradient = ex.NoisyGradient(target, 10.0)                     # grad U + N(0, V)
for compensate in (False, True):
    kernel = ex.sghmc(gradient, step_size=0.1, friction=1.0, compensate=compensate)
    samples = ex.sample(kernel, jnp.zeros(1), 10_000, num_chains=16, key=jax.random.key(0))
    print(compensate, samples.position.var())                 # 1.5 and 1.0
```
""")
    return


if __name__ == "__main__":
    app.run()
