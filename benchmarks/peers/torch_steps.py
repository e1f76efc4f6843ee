"""PyTorch's part of `network_steps`, run by a Python that has torch and posteriors, not JAX.

Reads "NAME STEPS SEED" from the standard input, takes these steps, and answers with a line. It
imports nothing of this project.
"""

import sys
from collections.abc import Callable
from typing import Any

import torch
from posteriors import sgmcmc
from torch import Tensor, nn


class Problem:
    """The perceptron of `network_steps` on random rows, with its normal prior."""

    def __init__(self, widths: list[int], rows: int, batch: int) -> None:
        torch.manual_seed(0)
        self.x = torch.rand(rows, widths[0]) * (torch.rand(rows, widths[0]) < 0.2)
        self.y = torch.randint(widths[-1], (rows,))
        self.rows, self.batch = rows, batch
        layers: list[nn.Module] = []
        for a, b in zip(widths, widths[1:], strict=False):
            layers += [nn.Linear(a, b), nn.ReLU()]
        self.module = nn.Sequential(*layers[:-1])
        self.start = {name: w.detach() for name, w in self.module.named_parameters()}

    def drawn(self) -> tuple[Tensor, Tensor]:
        """A batch, drawn with replacement."""
        which = torch.randint(self.rows, (self.batch,))
        return self.x[which], self.y[which]

    def log_posterior(self, weights: dict[str, Tensor], batch: Any) -> tuple[Tensor, Tensor]:
        """Estimated by a batch, over the number of rows, as posteriors has it; nothing beside."""
        x, y = batch
        logits = torch.func.functional_call(self.module, weights, (x,))
        prior = -0.5 * sum((w**2).sum() for w in weights.values())
        return -nn.functional.cross_entropy(logits, y) + prior / self.rows, torch.tensor([])


def optimised(problem: Problem) -> Callable[[int], None]:
    """Steps of torch's SGD."""
    optimiser = torch.optim.SGD(
        problem.module.parameters(), lr=1e-7, weight_decay=1.0 / problem.rows
    )

    def run(steps: int) -> None:
        for _ in range(steps):
            x, y = problem.drawn()
            optimiser.zero_grad()
            nn.functional.cross_entropy(problem.module(x), y).backward()
            optimiser.step()

    return run


def sampled(problem: Problem, chain: Any) -> Callable[[int], None]:
    """Steps of a sampler of posteriors, in place."""
    state = chain.init({name: w.clone() for name, w in problem.start.items()})

    def run(steps: int) -> None:
        nonlocal state
        for _ in range(steps):
            state, _ = chain.update(state, problem.drawn(), inplace=True)

    return run


def main() -> None:
    """Answer until the input ends."""
    *widths, rows, batch, threads = map(int, sys.argv[1:])
    torch.set_num_threads(threads)
    problem = Problem(widths, rows, batch)
    options = {"lr": 1e-7, "temperature": 1.0 / rows}
    runs = {
        "sgd": optimised(problem),
        "sgld": sampled(problem, sgmcmc.sgld.build(problem.log_posterior, **options)),
        "sghmc": sampled(problem, sgmcmc.sghmc.build(problem.log_posterior, **options)),
    }
    print("ready", flush=True)
    for line in sys.stdin:
        name, steps, seed = line.split()
        torch.manual_seed(int(seed))
        runs[name](int(steps))
        print("done", flush=True)


if __name__ == "__main__":
    main()
