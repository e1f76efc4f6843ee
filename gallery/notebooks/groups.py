"""A hierarchy with its effects integrated out, a marimo notebook."""

import marimo

__generated_with = "0.25.2"
app = marimo.App(width="medium", app_title="What groups take from each other")


@app.cell
def _imports():
    import marimo as mo

    from gallery import charts, controls, pages, results
    from gallery.figures import groups

    return charts, controls, groups, mo, pages, results


@app.cell
def _text(mo, pages):
    mo.md(
        pages.heading("groups")
        + r"""

Forty groups have two, five, fifteen or forty rows each. An effect $b_j \sim N(\mu, \tau^2)$ belongs
to each group, and its rows are $y \sim N(b_j, 1)$.

Two rows say little of their group. So the posterior mean of its effect is drawn towards the mean of
all groups, the more so the less the groups differ. Forty rows speak for themselves. How much the
groups differ, $\tau$, is learned from the same rows.

Sampling the effects together with $\tau$ is hard where $\tau$ is small, since the density is a
funnel there. `GroupedPosterior` measures that this density is quadratic in an effect, and
integrates all forty out exactly. HMC then moves two numbers, and the effects are drawn afterwards.
"""
    )
    return


@app.cell
def _controls(controls):
    tau = controls.slider(r"sd $\tau$ of the effects", 0.5, [0.1, 0.2, 0.35, 0.5, 0.7, 1.0, 2.0])
    again = controls.again()
    controls.row(tau, again)
    return again, tau


@app.cell
def _compute(again, groups, results, tau):
    found = results.once(groups.run, tau.value, again.value)
    return (found,)


@app.cell
def _picture(charts, found, groups, mo, pages, tau):
    from pandas import DataFrame

    low, high = float(found.own.min()) - 0.2, float(found.own.max()) + 0.2
    ends = (low, high)
    same = DataFrame({groups.OWN: ends, groups.POOLED: ends})
    pulled = (
        charts.lines(
            same, groups.OWN, groups.POOLED, colours=charts.GREY, x_range=ends, y_range=ends,
            width=1.0, title="Each group: what its rows say, and what is believed",
        )
        + charts.level(found.everybody, colour=charts.GREY)
        + charts.points(
            found.shrinkage(), groups.OWN, groups.POOLED, "rows", size=55.0,
            x_range=ends, y_range=ends,
        )
    )  # fmt: skip
    colours = {groups.FOUND: charts.BLUE, "exact": charts.EXACT}
    law = charts.lines(
        found.densities(), "tau", "density", "law", colours=colours, title="How much groups differ"
    ) + charts.upright("tau", tau.value)  # fmt: skip
    errors = [[name, f"{value:.3f}"] for name, value in found.errors().items()]
    mo.vstack(
        [
            charts.beside(pulled, law),
            mo.md(
                "Grey: effects that are the means of their own rows, and the mean of all "
                "rows; the dashed upright is the sd that the rows were made with."
            ),
            mo.md(pages.table(["estimate of an effect", "root mean square error"], errors)),
        ]
    )
    return


@app.cell
def _code(mo):
    mo.md(r"""
## The same in code

```python
import jax
import numpy as np
import ergodax as ex

normal = jax.scipy.stats.norm.logpdf
rng = np.random.default_rng(0)
rows = np.repeat([2, 5, 15, 40], 10)
group = np.repeat(np.arange(40), rows)
effects = 1.0 + 0.5 * rng.normal(size=40)
y = (effects[group] + rng.normal(size=len(group))).astype("float32")

posterior = ex.groups.GroupedPosterior(
    lambda s: normal(s["mean"], 0.0, 5.0) + normal(s["tau"], 0.0, 2.0),
    lambda b, s: normal(b, s["mean"], s["tau"]),
    lambda s, b, y: normal(y, b, 1.0),
    y,
    group,
    constraints={"tau": ex.transform.positive},
)
result = ex.infer(posterior, {"mean": 0.0, "tau": 1.0}, key=jax.random.key(0))
print(result)
drawn = posterior.latents(result.samples, key=jax.random.key(1))
own = np.bincount(group, y) / rows
for estimate in (own, y.mean(), drawn.mean(axis=(0, 1))):
    print(np.sqrt(np.mean((estimate - effects) ** 2)))
```
""")
    return


if __name__ == "__main__":
    app.run()
