"""NOGIN against noise, a marimo notebook."""

import marimo

__generated_with = "0.25.2"
app = marimo.App(width="medium", app_title="A step that knows its noise")


@app.cell
def _imports():
    import marimo as mo

    from gallery import charts, controls, pages, results
    from gallery.figures import nogin

    return charts, controls, mo, nogin, pages, results


@app.cell
def _text(mo, pages):
    mo.md(
        pages.heading("nogin")
        + r"""

Three samplers on $N(0, 1)$ whose gradient has noise of variance $V$, as a batch's has. SGLD and
SGHMC take the noise as it comes, and their variances are too large: by $h V / 2$ and by $h V /
2\gamma$ and more, besides what the step does. NOGIN knows $V$. It puts as much friction against the
noise as the noise brings, and its law is $N(0, 1)$ at every step size.

Points are chains, curves are exact. Without noise ($V = 0$) all that is left is the error of the
step: of first order for SGLD, of second for SGHMC, and none for NOGIN on a normal law. Then add
noise, and see which step each would need for an error of a tenth.
"""
    )
    return


@app.cell
def _controls(controls):
    noise = controls.scale("gradient noise $V$", 4, 0, 40, 2)
    step = controls.slider("step size $h$ below", 0.3, [0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0])
    again = controls.again()
    controls.row(noise, step, again)
    return again, noise, step


@app.cell
def _compute(again, nogin, noise, results, step):
    result = results.once(nogin.run, noise.value, step.value, again.value)
    return (result,)


@app.cell
def _picture(charts, mo, nogin, result):
    colours = {
        nogin.SGLD: charts.ORANGE,
        nogin.SGHMC: charts.PURPLE,
        nogin.NOGIN: charts.BLUE,
        "exact": charts.EXACT,
    }
    exact, measured = result.exact_variances(), result.measured_variances()
    frame = {
        "log_x": True,
        "log_y": True,
        "x_range": (0.9 * nogin.LEAST, 1.1 * nogin.MOST),
        "y_range": charts.room(exact["variance"], measured["variance"]),
    }
    variances = charts.lines(
        exact, "step size", "variance", "sampler", colours=colours, **frame,
        title="Variance of x, which is 1",
    ) + charts.points(
        measured, "step size", "variance", "sampler", colours=colours, **frame,
    )  # fmt: skip
    laws = charts.lines(
        result.densities(), "x", "density", "sampler", colours=colours, y_range=(0.0, 0.45),
        title=f"Law of x at a step of {result.step_size:g}",
    )  # fmt: skip
    found = "; ".join(
        "{} {:.3f} (exactly {:.3f})".format(name, *result.variance(name)) for name in result.draws
    )
    mo.vstack(
        [
            charts.beside(variances, laws),
            mo.md(f"Variance at a step of {result.step_size:g}: {found}."),
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
gradient = ex.NoisyGradient(target, 4.0)                      # grad U + N(0, V)
for sampler in (ex.sgld, ex.sghmc, ex.nogin):
    kernel = sampler(gradient, 0.3)
    samples = ex.sample(kernel, jnp.zeros(1), 10_000, num_chains=16, key=jax.random.key(0))
    print(sampler.__name__, samples.position.var())           # 1.9, 1.7 and 1.0
```
""")
    return


if __name__ == "__main__":
    app.run()
