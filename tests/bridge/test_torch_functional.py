"""The functional form: the optimizer's steps to the bit, and vmap over chains."""

# pyright: reportMissingImports=false
import doctest
import math
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is in the extra `torch`")
from torch.func import functional_call, grad, stack_module_state, vmap  # noqa: E402

from ergodax.bridge import torch as bridge  # noqa: E402

torch.set_num_threads(1)  # xdist has the other cores

SAMPLERS: dict[str, tuple[Any, dict[str, Any]]] = {
    "sgld": (bridge.SGLD, dict(lr=1e-3)),
    "sghmc": (bridge.SGHMC, dict(lr=1e-2, friction=1.0, mass=2.0)),
    "sgnht": (bridge.SGNHT, dict(lr=1e-2, friction=1.0)),
    "sgnht, per coordinate": (bridge.SGNHT, dict(lr=1e-2, friction=1.0, per_coordinate=True)),
    "psgld": (bridge.PSGLD, dict(lr=1e-3, adaptation_steps=3)),
    "rsgld": (bridge.RSGLD, dict(lr=1e-3, metric=lambda x: 0.5 + x**2)),
}
INPUTS = torch.linspace(-1.0, 1.0, 24).reshape(8, 3)
LABELS = torch.arange(8) % 2
CHAINS, STEPS = 3, 5


def network(seed=0):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.Tanh(), torch.nn.Linear(5, 2))


MODEL = network()


def loss(params):
    outputs = functional_call(MODEL, params, (INPUTS,))
    return torch.nn.functional.cross_entropy(outputs, LABELS)


def kernel_of(name, **more):
    sampler, settings = SAMPLERS[name]
    return bridge.Functional(sampler, num_data=40, **settings, **more)


def of_chain(tree, chain):
    return torch.utils._pytree.tree_map(lambda x: x[chain], tree)


@pytest.mark.parametrize("prior", [2.0, None, "laplace"])
@pytest.mark.parametrize("name", SAMPLERS)
def test_the_optimizers_steps_to_the_bit(name, prior):
    """The same generator, loss and prior; a log prior takes a list there and a dict here."""
    sampler, settings = SAMPLERS[name]
    here = there = prior
    if prior == "laplace":
        here = lambda params: -sum(p.abs().sum() for p in params.values())  # noqa: E731
        there = lambda params: -sum(p.abs().sum() for p in params)  # noqa: E731
    model, noise = network(), torch.Generator().manual_seed(1)
    optimizer = sampler(model, num_data=40, prior=there, generator=noise, **settings)
    kernel, again = kernel_of(name, prior=here), torch.Generator().manual_seed(1)
    state = kernel.init(network(), generator=again)
    for _ in range(STEPS):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(INPUTS), LABELS).backward()
        optimizer.step()
        before = of_chain(state, ...)
        state = kernel.update(state, grad(loss)(state.params), generator=again)
        for key, parameter in model.named_parameters():
            assert torch.equal(state.params[key], parameter)
            assert not torch.equal(state.params[key], before.params[key])
    assert state.step == STEPS


@pytest.mark.parametrize("name", SAMPLERS)
def test_vmap_over_chains_is_a_loop(name):
    """Each chain with its own noise, given; to rounding, since vmap multiplies in another order."""
    kernel = kernel_of(name)
    params, _ = stack_module_state([network(seed) for seed in range(CHAINS)])
    states = vmap(kernel.init, randomness="different")(params)
    singles = [of_chain(states, chain) for chain in range(CHAINS)]

    def step(state, normals):
        return kernel.update(state, grad(loss)(state.params), normals=normals)

    for _ in range(STEPS):
        normals = {key: torch.randn_like(x) for key, x in states.params.items()}
        states = vmap(step, randomness="different")(states, normals)
        singles = [step(single, of_chain(normals, c)) for c, single in enumerate(singles)]
    for chain, single in enumerate(singles):
        torch.testing.assert_close(of_chain(states, chain).params, single.params)
        torch.testing.assert_close(of_chain(states, chain).auxiliary, single.auxiliary)
        other = of_chain(states, (chain + 1) % CHAINS).params
        assert (other["0.weight"] - single.params["0.weight"]).abs().max() > 0.1


def test_chains_have_noise_of_their_own_or_the_same():
    """Correlations between chains of 20,000 numbers, to 6 standard errors."""
    kernel = bridge.Functional(bridge.SGLD, lr=0.5, num_data=1, prior=None)
    start = {"x": torch.zeros(2, 20_000)}
    noise = {}
    for randomness in ("different", "same"):
        state = vmap(kernel.init, randomness=randomness)(start)
        update = vmap(lambda s: kernel.update(s, start_of(s)), randomness=randomness)
        noise[randomness] = update(state).params["x"]
    a, b = noise["different"]
    assert abs((a * b).mean()) < 6 / math.sqrt(20_000) < abs((a * a).mean())
    assert torch.equal(*noise["same"])


def start_of(state):
    return {name: torch.zeros_like(x) for name, x in state.params.items()}


def test_nothing_is_changed_in_place():
    kernel = kernel_of("sghmc")
    state = kernel.init(network())
    copies = [{n: x.clone() for n, x in named.items()} for named in _dicts(state)]
    new = kernel.update(state, grad(loss)(state.params))
    assert (state.step, new.step) == (0, 1)
    for named, copy, after in zip(_dicts(state), copies, _dicts(new), strict=True):
        assert all(torch.equal(named[n], copy[n]) for n in named)
        assert not any(torch.equal(named[n], after[n]) for n in named)
        assert not any(x.requires_grad for x in after.values())


def _dicts(state):
    return state.params, state.auxiliary["momentum"]


def test_a_schedule_gives_the_step_size():
    kernel = bridge.Functional(bridge.SGLD, lr=0.5, num_data=1, prior=None)
    state = kernel.init({"x": torch.ones(2)})
    zero = {"x": torch.zeros(2)}
    short = kernel.update(state, {"x": torch.ones(2)}, lr=0.1, normals=zero)
    torch.testing.assert_close(short.params["x"], torch.full((2,), 0.9))
    with pytest.raises(ValueError, match="lr must be positive"):
        kernel.update(state, zero, lr=0.0)


def test_the_order_of_the_gradients_does_not_matter():
    kernel = bridge.Functional(bridge.SGLD, lr=0.5, num_data=1, prior=None, temperature=0.0)
    state = kernel.init({"a": torch.zeros(2), "b": torch.zeros(1)})
    state = kernel.update(state, {"b": torch.ones(1), "a": 2.0 * torch.ones(2)})
    assert state.params["a"].tolist() == [-1.0, -1.0] and state.params["b"].tolist() == [-0.5]


@pytest.mark.parametrize(
    "make, error, message",
    [
        (lambda: bridge.Functional(torch.optim.SGD, lr=0.1), TypeError, "a class such as SGHMC"),
        (lambda: kernel_of("sgld", generator=torch.Generator()), TypeError, "init and update"),
        (lambda: kernel_of("sgld", weight_decay=0.1), TypeError, "from_weight_decay"),
        (lambda: kernel_of("sgld", temperature=-1.0), ValueError, "temperature must be at least"),
        (lambda: kernel_of("sgld").init([torch.zeros(2)]), TypeError, "params must be a dict"),
        (lambda: kernel_of("sgld").init({}), TypeError, "params must be a dict"),
        (lambda: kernel_of("sgld").init({"x": 1.0}), TypeError, r"params\['x'\] must be a tensor"),
        (lambda: kernel_of("sgld").init({"x": torch.zeros(2).half()}), TypeError, "model.float"),
        (lambda: kernel_of("sgld").init(torch.nn.BatchNorm1d(2)), ValueError, "statistics"),
    ],
)
def test_refusals(make, error, message):
    with pytest.raises(error, match=message):
        make()


@pytest.mark.parametrize("what", ["gradients", "normals"])
def test_other_names_are_refused(what):
    kernel = kernel_of("sgld")
    state = kernel.init({"x": torch.zeros(2)})
    given = {"gradients": {"x": torch.zeros(2)}, "normals": None, what: {"y": torch.zeros(2)}}
    with pytest.raises(ValueError, match=rf"{what} and the parameters .* \['x', 'y'\]"):
        kernel.update(state, **given)


@pytest.mark.parametrize("what", ["gradients", "normals"])
@pytest.mark.parametrize("shape", [(), (1,), (3, 1)])
def test_other_shapes_are_refused(what, shape):
    kernel = kernel_of("sgld")
    state = kernel.init({"x": torch.zeros(3)})
    given = {"gradients": {"x": torch.zeros(3)}, "normals": None, what: {"x": torch.zeros(shape)}}
    with pytest.raises(ValueError, match=rf"{what}\['x'\] has shape \({str(shape)[1:-1]}\), but"):
        kernel.update(state, **given)


@pytest.mark.parametrize("name", ["draws", "functional", "module"])
def test_the_examples_run(name):
    module = __import__(f"ergodax.bridge.torch.{name}", fromlist=["_"])
    result = doctest.testmod(module)
    assert result.attempted > 0 and result.failed == 0
