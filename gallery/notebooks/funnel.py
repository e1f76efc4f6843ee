"""Neal's funnel, a marimo notebook."""

import marimo

__generated_with = "0.25.2"
app = marimo.App(width="medium", app_title="Into the neck of the funnel")


@app.cell
def _imports():
    import marimo as mo

    from gallery import charts, controls, pages, results
    from gallery.figures import funnel

    return charts, controls, funnel, mo, pages, results


@app.cell
def _text(mo, pages):
    mo.md(
        pages.heading("funnel")
        + r"""

$v \sim N(0, \sigma^2)$ and $x \sim N(0, e^v)$: the scale of one variable is another variable, as
in every hierarchical model. A step of SGLD multiplies $x$ by $1 - h e^{-v}$. That is stable for
$h < 2 e^v$ only, above the grey line, so no single step size serves mouth and neck: below the
line $x$ is thrown outward, and takes $v$ up with it.

With the metric $G^{-1} = \mathrm{diag}(1, e^v)$ the step is measured in units of the local scale.
SGRLD has its $D$ from it, at the price of one exponential; RMHMC has it as a mass, with a
Metropolis test that leaves no bias.

Try smaller steps: SGLD goes deeper, ever more slowly. Then a narrower funnel, $\sigma = 1$, which
has hardly any neck: there all three agree. The curve in the three pictures holds 95% of $x$ at
each $v$.
"""
    )
    return


@app.cell
def _controls(controls):
    step = controls.slider("step size $h$", 0.05, [0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.15])
    width = controls.scale(r"$\sigma$", 3.0, 0.5, 3.0, 0.25)
    again = controls.again()
    controls.row(step, width, again)
    return again, step, width


@app.cell
def _compute(again, funnel, results, step, width):
    result = results.once(funnel.run, step.value, width.value, again.value)
    return (result,)


@app.cell
def _picture(charts, funnel, mo, pages, result):
    colours = {
        "exact": charts.EXACT, funnel.SGLD: charts.ORANGE, funnel.SGRLD: charts.BLUE,
        funnel.RMHMC: charts.GREEN,
    }  # fmt: skip
    edge = funnel.REACH * result.scale
    widest = float(result.outline()["x"].max())

    def cloud(name):
        outline = charts.lines(
            result.outline(), "x", "v", detail="side", colours=charts.EXACT, width=1.2
        )
        dots = charts.points(
            result.cloud(name), "x", "v", colours=colours[name], size=8.0, opacity=0.5,
            y_range=(-edge, edge), title=name,
        )  # fmt: skip
        both = charts.symmetric_log(dots, "x", (-widest, widest), 0.1) + outline
        if name == funnel.SGLD and result.unstable > -edge:
            both = both + charts.lines(
                result.unstable_line(), "x", "v", colours=charts.GREY, width=1.5
            )
        return both

    densities = result.densities()
    top = 1.08 * float(densities["density"].max())
    laws = charts.lines(
        densities, "v", "density", "sampler", colours=colours, y_range=(0.0, top), title="Law of v"
    ) + charts.upright("v", funnel.NECK)
    rows = (
        (
            row["sampler"], f"{row['P(v < -2)']:.4f} ± {row['standard error']:.4f}",
            f"{100 * row['chains that diverged']:.0f}%", f"{row['gradients a chain']:,.0f}",
        )
        for row in result.table().to_dict("records")
    )  # fmt: skip
    headings = ("", "P(v < -2)", "chains that diverged", "gradients a chain")
    exact = ("exact", f"{result.exact_share:.4f}", "", "")
    mo.vstack(
        [
            charts.beside(cloud(funnel.SGLD), cloud(funnel.SGRLD)),
            charts.beside(cloud(funnel.RMHMC), laws),
            mo.md(pages.table(headings, [exact, *rows])),
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

gradient = ex.FullGradient(ex.targets.funnel(2, scale=3.0))   # the position is (v, x)
inverse = lambda z: jnp.array([1.0, jnp.exp(z[0])])           # G^-1, a diagonal
metric = ex.Metric(inverse, divergence=jnp.zeros_like)        # its divergence, Gamma, is 0
for kernel in (
    ex.sgld(gradient, 0.02), ex.sgrld(gradient, 0.02, metric),
    ex.rmhmc(gradient, 0.2, inverse, num_leapfrog_steps=5),
):
    samples = ex.sample(kernel, jnp.zeros(2), 5_000, num_chains=16, key=jax.random.key(0))
    print((samples.position[..., 0] < -2).mean())             # exact: 0.2525
```
""")
    return


if __name__ == "__main__":
    app.run()
