"""A logistic regression by three samplers, a marimo notebook."""

import marimo

__generated_with = "0.25.2"
app = marimo.App(width="medium", app_title="Beside NUTS")


@app.cell
def _imports():
    import marimo as mo

    from gallery import charts, controls, pages, results
    from gallery.figures import nuts

    return charts, controls, mo, nuts, pages, results


@app.cell
def _text(mo, pages):
    mo.md(
        pages.heading("nuts")
        + r"""

A logistic regression with $N$ rows, intercept and slope. *SGLD* has plain batches of 50 and the
step size that you give it. *NOGIN* is set up by the library: it finds the mode, takes coordinates
in which the posterior is round, measures the noise of each estimator there and chooses the one
that makes an effective draw cheapest. *NUTS* is BlackJAX's in the same coordinates, with Stan's
warm-up; each of its gradients is a pass over all data.

Tune SGLD: a long step mixes and is too wide, a short one is too slow to say anything in 4000
steps, and the larger $N$, the less there is in between. NUTS is right at every $N$ and pays $N$
for each gradient. With control variates an effective draw costs about as much at every $N$, so
that more of them go into a pass.

Moments are compared with quadrature. What tuning costs is not counted, for any of the three. The
$N$ rows are 1000 different ones, each $N / 1000$ times, so that one program serves every $N$.
"""
    )
    return


@app.cell
def _controls(controls, nuts):
    size = controls.slider("rows $N$", 1000, nuts.SIZES)
    step = controls.slider(
        "step size of SGLD", 0.05, [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5]
    )
    again = controls.again()
    controls.row(step, size, again)
    return again, size, step


@app.cell
def _compute(again, nuts, results, size, step):
    result = results.once(nuts.run, size.value, step.value, again.value)
    return (result,)


@app.cell
def _picture(charts, mo, nuts, pages, result):
    colours = {
        "exact": charts.EXACT, nuts.SGLD: charts.ORANGE, nuts.NOGIN: charts.BLUE,
        nuts.NUTS: charts.GREEN,
    }  # fmt: skip
    laws = charts.lines(
        result.ellipses(), "intercept", "slope", "law", colours=colours, dashed=["exact"],
        title=f"Two standard deviations of each law, N = {result.num_data:,}",
    )  # fmt: skip
    for name in result.runs:
        laws = laws + charts.points(
            result.cloud(name), "intercept", "slope", colours=colours[name], size=7.0, opacity=0.3
        )
    table = result.table()
    price = charts.named_bars(
        table, "effective draws a pass", "sampler", colours=colours,
        title="Effective draws for a pass over the data",
    )  # fmt: skip
    rows = (
        (
            row["sampler"], f"{row['error of the means']:.3f}", f"{row['sd']:.3f}",
            f"{row['effective draws']:,.0f}", f"{row['passes over the data']:,.0f}",
            row["settings"],
        )
        for row in table.to_dict("records")
    )  # fmt: skip
    headings = (
        "", "error of the means, posterior sds", "sd (posterior: 1)", "effective draws",
        "passes over the data", "",
    )  # fmt: skip
    mo.vstack([charts.beside(laws, price), mo.md(pages.table(headings, rows))])
    return


@app.cell
def _code(mo):
    mo.md(r"""
## The same in code

```python
import jax
import jax.numpy as jnp
import ergodax as ex
from ergodax import tune

x = 1.0 + jax.random.normal(jax.random.key(1), (10_000,))
y = jax.random.bernoulli(jax.random.key(2), jax.nn.sigmoid(x - 1.0)).astype(float)
posterior = ex.Posterior(
    lambda w: -0.02 * jnp.sum(w**2),
    lambda w, row: row[1] * (w[0] + w[1] * row[0]) - jax.nn.softplus(w[0] + w[1] * row[0]),
    (x, y),
)
mode, key = ex.find_mode(posterior, jnp.zeros(2)), jax.random.key(0)
coordinates = tune.round_coordinates(posterior, mode.position, key=key)
gradient = ex.ControlVariate(tune.in_coordinates(posterior, coordinates), 8, jnp.zeros(2))
kernel = ex.nogin(ex.ScoreCovariance(gradient, "dense", average=0.99), step_size=1.0)
samples = ex.sample(kernel, jnp.zeros(2), 4_000, key=key, collect=coordinates.position)
print(samples.summary())                                  # ex.infer does all this and more
```
""")
    return


if __name__ == "__main__":
    app.run()
