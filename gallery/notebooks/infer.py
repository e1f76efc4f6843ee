"""What infer decides, a marimo notebook."""

import marimo

__generated_with = "0.25.2"
app = marimo.App(width="medium", app_title="What infer decides")


@app.cell
def _imports():
    import marimo as mo

    from gallery import charts, controls, pages
    from gallery.figures import infer

    return charts, controls, infer, mo, pages


@app.cell
def _text(mo, pages):
    mo.md(
        pages.heading("infer")
        + r"""

`ex.infer` has nothing to be tuned. It looks for the mode, whitens there, tries what may sample the
posterior, measures its bias, and stops when every error is below 0.05 posterior sd. Or it says why
there is no answer.

Six posteriors were given to it, each with one key and a limit of a minute. Choose one: you see its
draws with the exact law, where its seconds went, and every decision with the figures behind it. The
inferences are kept, since they take longer than a slider's move; compilation is in their seconds.
"""
    )
    return


@app.cell
def _controls(controls, infer, mo):
    problem = mo.ui.dropdown(list(infer.PROBLEMS), list(infer.PROBLEMS)[1], label="posterior")
    draws = controls.slider("draws of a chain", 500, [5, 10, 20, 50, 100, 200, 500])
    controls.row(problem, draws)
    return draws, problem


@app.cell
def _picture(charts, draws, infer, mo, pages, problem):
    found = infer.kept()[problem.value]
    shown = found.histogram(draws.value)
    law = charts.bars(shown, found.shown, x_range=found.ends, title="Draws, and the exact law")
    if found.grid:
        exact = found.exact().rename(columns={"x": found.shown})
        law = law + charts.lines(
            exact, found.shown, "density", colours=charts.EXACT, x_range=found.ends
        )
    stages = found.stages()
    where = charts.named_bars(
        stages, "seconds", "stage", colours=dict.fromkeys(stages["stage"], charts.BLUE),
        title=f"Where {found.took:.0f} seconds went",
    )  # fmt: skip
    decisions = [[d["what"], d["chosen"], d["why"]] for d in found.decisions]
    mo.vstack(
        [
            charts.beside(law, where),
            mo.md(f"**{found.verdict}**"),
            mo.md(pages.table(["question", "answer", "why"], decisions)),
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
import numpy as np
import ergodax as ex

rng = np.random.default_rng(0)
x = rng.normal(size=200_000).astype("float32")
y = (rng.random(200_000) < 1 / (1 + np.exp(0.5 - x))).astype("float32")

def log_likelihood(w, row):
    score = w[0] + w[1] * row[0]
    return row[1] * score - jax.nn.softplus(score)

posterior = ex.Posterior(lambda w: -jnp.sum(w**2) / 50, log_likelihood, (x, y))
print(ex.infer(posterior, jnp.zeros(2), key=jax.random.key(0), max_seconds=60))
```
""")
    return


if __name__ == "__main__":
    app.run()
