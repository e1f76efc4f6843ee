"""Three recipes H, D, Q on one density, a marimo notebook."""

import marimo

__generated_with = "0.25.2"
app = marimo.App(width="medium", app_title="Two matrices make a sampler")


@app.cell
def _imports():
    import marimo as mo

    from gallery import charts, controls, pages, results
    from gallery.figures import recipe

    return charts, controls, mo, pages, recipe, results


@app.cell
def _text(mo, pages):
    mo.md(
        pages.heading("recipe")
        + r"""

Choose an energy $H(z)$, a positive semidefinite $D(z)$ and a skew-symmetric $Q(z)$. Then

$$dz = \bigl[-(D + Q)\,\nabla H + \Gamma\bigr]\,dt + \sqrt{2 D}\,dW,
\qquad \Gamma = \operatorname{div}(D + Q),$$

leaves $e^{-H}$ as it is, and under mild conditions every diffusion that does is of this form (Ma,
Chen and Fox, 2015). $D$ is friction and noise, in balance; $Q$ turns without noise. Three choices,
on a density curved like a banana, each taking 1,500 steps with 32 chains:

| | $H$ | $D$ | $Q$ |
|:--|:--|:--|:--|
| overdamped | $U$ | $d\,I$ | $c$ times a rotation of the plane |
| with momentum $r$ | $U + \lvert r\rvert^2/2$ | $d\,I$ for $r$, else 0 | $c$ between the two |
| Riemannian | $U$ | $d\,G^{-1}(x)$, long along the valley | $c$ times a rotation of the plane |

Try more curl for the overdamped one: the same law, reached sooner. Try larger steps: they all have
the law in the limit of small ones only, and each breaks at a step size of its own. Leave $\Gamma$
out: only the Riemannian $D$ depends on the position, and its chains go to a wrong law at every step
size. With $c = 0$ the momentum is cut off from the position, which then stays where it is.
"""
    )
    return


@app.cell
def _controls(controls, mo):
    strength = controls.slider("strength $d$", 1.0, [0.1, 0.2, 0.5, 1.0, 2.0, 4.0])
    curl = controls.scale("curl $c$", 0.5, 0.0, 2.0, 0.25)
    step_size = controls.slider("step size $h$", 0.02, [0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.2])
    gamma = mo.ui.checkbox(value=True, label=r"with $\Gamma$")
    again = controls.again()
    controls.row(strength, curl, step_size, gamma, again)
    return again, curl, gamma, step_size, strength


@app.cell
def _picture(again, charts, curl, gamma, mo, recipe, results, step_size, strength):
    numbers = strength.value, curl.value, step_size.value, again.value
    runs = {name: results.once(recipe.run, name, *numbers, gamma.value) for name in recipe.RECIPES}

    def plane(name, chains):
        density = charts.shades(
            recipe.density_table(), "x", "y", "density", colour="#6d6d72",
            x_range=recipe.X, y_range=recipe.Y, title=name,
        )  # fmt: skip
        dots = charts.points(
            recipe.draw_table(chains), "x", "y", colours=charts.BLUE, size=7, opacity=0.6
        )
        return (density + dots).sized(260, 220)

    def marginal(chains, coordinate):
        bars = recipe.bars(chains, coordinate)
        exact = recipe.marginal_table(coordinate)
        chart = charts.density_and_histogram(bars, exact, "xy"[coordinate])
        return chart.sized(260, 110)

    def row(name, chains):
        if chains.diverged is not None:
            return f"| {name} | diverged at step {chains.diverged} | | | |"
        found, time = recipe.moments(chains), recipe.autocorrelation_time(chains)
        return f"| {name} | {found.square:.3f} | {found.mean:.3f} | {found.sd:.3f} | {time:.0f} |"

    exact = recipe.EXACT
    rows = [
        "| | E x² | E y | sd of y | autocorrelation time of x, in steps |",
        "|---|---|---|---|---|",
        *(row(name, chains) for name, chains in runs.items()),
        f"| exact | {exact.square:.3f} | {exact.mean:.3f} | {exact.sd:.3f} | |",
    ]
    mo.vstack(
        [
            charts.above(
                [plane(name, chains) for name, chains in runs.items()],
                [marginal(chains, 0) for chains in runs.values()],
                [marginal(chains, 1) for chains in runs.values()],
            ),
            mo.md("\n".join(rows)),
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

target = ex.targets.banana()

def inverse_metric(z):
    x = z["position"][0]
    return {"position": jnp.array([[1.0, x / 2], [x / 2, 1 / 16 + x**2 / 4]])}

rotation = ex.Dense(jnp.array([[0.0, 0.5], [-0.5, 0.0]]))
recipe = ex.Recipe(diffusion=inverse_metric, curl=lambda z: {("position", "position"): rotation})
print(ex.verify.recipe(recipe, target))                     # PROVED at these points
kernel = ex.euler_maruyama(recipe, ex.FullGradient(target), step_size=0.02)
samples = ex.sample(kernel, jnp.array([0.0, -1.2]), 1500, num_chains=32, key=jax.random.key(0))
print(samples.position.mean(axis=(0, 1)), target.mean)
```
""")
    return


if __name__ == "__main__":
    app.run()
