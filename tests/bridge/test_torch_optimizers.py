"""The samplers as optimizers: groups, closures, schedulers, resuming, and bad input."""

# pyright: reportMissingImports=false
import copy
import functools
import io
import math
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is in the extra `torch`")
from ergodax.bridge import torch as bridge  # noqa: E402

torch.set_num_threads(1)  # xdist has the other cores

DATA: dict[str, Any] = dict(num_data=40)


def metric(x):
    return 0.5 + x**2


SAMPLERS = {
    "sgld": lambda p, **o: bridge.SGLD(p, 1e-3, **DATA, **o),
    "sghmc": lambda p, **o: bridge.SGHMC(p, 1e-2, 1.0, **DATA, **o),
    "sgnht": lambda p, **o: bridge.SGNHT(p, 1e-2, 1.0, **DATA, **o),
    "sgnht, per coordinate": lambda p, **o: bridge.SGNHT(
        p, 1e-2, 1.0, per_coordinate=True, **DATA, **o
    ),
    "psgld": lambda p, **o: bridge.PSGLD(p, 1e-3, adaptation_steps=7, **DATA, **o),
    "rsgld": lambda p, **o: bridge.RSGLD(p, 1e-3, metric, **DATA, **o),
}


def network(seed=0):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.Tanh(), torch.nn.Linear(5, 2))


INPUTS = torch.linspace(-1.0, 1.0, 24).reshape(8, 3)
LABELS = torch.arange(8) % 2


def train(model, optimizer, num_steps):
    for _ in range(num_steps):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(INPUTS), LABELS).backward()
        optimizer.step()


def numbers(model):
    return torch.nn.utils.parameters_to_vector(model.parameters()).detach()


@pytest.mark.parametrize("name", SAMPLERS)
def test_a_resumed_run_goes_on_bit_for_bit(name):
    model = network()
    optimizer = SAMPLERS[name](model.parameters(), prior=lambda ps: -sum((p**2).sum() for p in ps))
    train(model, optimizer, 5)
    file = io.BytesIO()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
    copied, copied_model = copy.deepcopy((optimizer, model))
    train(model, optimizer, 5)

    file.seek(0)
    saved = torch.load(file, weights_only=True)
    resumed = network(seed=1)
    resumed.load_state_dict(saved["model"])
    again = SAMPLERS[name](resumed.parameters(), prior=lambda ps: -sum((p**2).sum() for p in ps))
    again.load_state_dict(saved["optimizer"])
    train(resumed, again, 5)
    assert torch.equal(numbers(model), numbers(resumed))

    train(copied_model, copied, 5)
    assert torch.equal(numbers(model), numbers(copied_model))

    other = SAMPLERS[name](network().parameters(), prior=lambda ps: -sum(p.sum() for p in ps))
    without = {key: value for key, value in saved["optimizer"].items() if key != "generators"}
    other.load_state_dict(without)  # goes on with noise of its own


@pytest.mark.parametrize("name", SAMPLERS)
def test_a_seed_decides_the_run(name):
    runs = []
    for seed in (1, 1, 2):
        model = network()
        generator = torch.Generator().manual_seed(seed)
        train(model, SAMPLERS[name](model.parameters(), generator=generator), 4)
        runs.append(numbers(model))
    assert torch.equal(runs[0], runs[1]) and not torch.equal(runs[0], runs[2])


def test_torchs_own_seed_decides_without_a_generator():
    runs = []
    for seed in (1, 1, 2):
        model = network()
        torch.manual_seed(seed)
        train(model, SAMPLERS["sgld"](model.parameters()), 4)
        runs.append(numbers(model))
    assert torch.equal(runs[0], runs[1]) and not torch.equal(runs[0], runs[2])


def test_groups_have_settings_of_their_own():
    model = network()
    first, last = model[0], model[2]
    before = last.weight.detach().clone()
    optimizer = bridge.SGLD(
        [
            {"params": first.parameters(), "lr": 1e-3},
            {"params": last.parameters(), "lr": 1e-30, "prior": None},
        ],
        1.0,
        **DATA,
    )
    train(model, optimizer, 1)
    assert torch.allclose(last.weight, before, atol=1e-12)
    assert [group["prior"] for group in optimizer.param_groups] == [1.0, None]


def test_a_scheduler_changes_the_step():
    model = network()
    optimizer = bridge.SGLD(model.parameters(), 0.1, **DATA)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    train(model, optimizer, 1)
    scheduler.step()
    assert optimizer.param_groups[0]["lr"] == 0.05


def test_a_closure_gives_the_loss():
    model = network()
    optimizer = SAMPLERS["sghmc"](model.parameters())

    def closure():
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(INPUTS), LABELS)
        loss.backward()
        return loss

    loss = optimizer.step(closure)
    assert loss.item() > 0 and optimizer.step(closure).item() != loss.item()


@pytest.mark.parametrize("name", SAMPLERS)
def test_a_parameter_without_gradient_stays(name):
    model = network()
    model[2].bias.requires_grad_(False)
    optimizer = SAMPLERS[name](model.parameters())
    before = model[2].bias.detach().clone()
    train(model, optimizer, 2)
    assert torch.equal(model[2].bias, before)
    model[2].bias.requires_grad_(True)  # and it may begin later
    train(model, optimizer, 2)
    assert not torch.equal(model[2].bias, before)


@pytest.mark.parametrize("name", SAMPLERS)
def test_mixed_precisions_move_together(name):
    single = torch.nn.Parameter(torch.zeros(3))
    double = torch.nn.Parameter(torch.zeros(2, dtype=torch.float64))
    optimizer = SAMPLERS[name]([single, double])
    for _ in range(2):
        optimizer.zero_grad()
        ((single**2).sum() + (double - 1).sum()).backward()
        optimizer.step()
    assert single.dtype == torch.float32 and double.dtype == torch.float64
    assert single.abs().min() > 0 and double.abs().min() > 0


def test_the_noise_is_standard_normal():
    """Mean, variance and neighbours' correlation of 200,000 numbers, to 6 standard errors."""
    optimizer = bridge.SGLD([torch.nn.Parameter(torch.zeros(1))], 1.0, **DATA)
    xi = torch.cat([x.ravel() for x in optimizer.normal_like([torch.zeros(100, 1000)] * 2)])
    xi, n = xi.double(), xi.numel()
    assert abs(xi.mean()) < 6 / math.sqrt(n)
    assert abs((xi**2).mean() - 1) < 6 * math.sqrt(2 / n)
    assert abs((xi[: n // 2] * xi[n // 2 :]).mean()) < 6 / math.sqrt(n / 2)
    signs = torch.cat([x.ravel() for x in optimizer.sign_like([torch.zeros(100, 1000)] * 2)])
    assert set(signs.unique().tolist()) == {-1.0, 1.0}
    assert abs(signs.double().mean()) < 6 / math.sqrt(n)


def parameter(dtype=torch.float32):
    return torch.nn.Parameter(torch.zeros(2, dtype=dtype), requires_grad=dtype.is_floating_point)


class TestRefused:
    def test_gradients_that_are_not_finite(self):
        a, b = parameter(), parameter()
        optimizer = bridge.SGLD([{"params": [a]}, {"params": [b]}], 0.1, **DATA)
        a.grad, b.grad = torch.ones(2), torch.tensor([0.0, math.nan])
        with pytest.raises(bridge.NonFiniteGradientError, match="parameter 0 of group 1") as error:
            optimizer.step()
        assert (error.value.group, error.value.index) == (1, 0)
        assert not a.any(), "nothing has moved"
        unchecked = bridge.SGLD([b], 0.1, check_finite=False, **DATA)
        unchecked.step()
        assert not torch.isfinite(b).all()

    def test_gradients_whose_squares_overflow_are_finite(self):
        a = parameter()
        a.grad = torch.full((2,), 1e30)
        bridge.SGLD([a], 1e-30, **DATA).step()
        assert torch.isfinite(a).all()

    def test_sparse_gradients(self):
        table = torch.nn.Embedding(4, 2, sparse=True)
        optimizer = bridge.SGLD(table.parameters(), 0.1, **DATA)
        table(torch.tensor([1])).sum().backward()
        with pytest.raises(TypeError, match="sparse=False"):
            optimizer.step()

    def test_no_gradient(self):
        with pytest.raises(ValueError, match="loss.backward"):
            bridge.SGLD([parameter()], 0.1, **DATA).step()

    @pytest.mark.parametrize(
        "dtype, message",
        [
            (torch.float16, "model.float"),
            (torch.bfloat16, "model.float"),
            (torch.complex64, "view_as_real"),
            (torch.int64, "real numbers"),
        ],
    )
    def test_dtypes(self, dtype, message):
        with pytest.raises(TypeError, match=message):
            bridge.SGLD([parameter(dtype)], 0.1, **DATA)

    @pytest.mark.parametrize(
        "make, message",
        [
            (lambda p: bridge.SGLD(p, 0.0, num_data=3), "lr must be positive"),
            (lambda p: bridge.SGLD(p, 0.1, num_data=0), "num_data must be positive"),
            (lambda p: bridge.SGLD(p, 0.1, num_data=3, prior=-1.0), "prior must be positive"),
            (lambda p: bridge.SGLD(p, 0.1, num_data=3, temperature=-1), "temperature must be at"),
            (lambda p: bridge.SGHMC(p, 0.1, 0.0, num_data=3), "friction must be positive"),
            (lambda p: bridge.SGHMC(p, 0.1, 1.0, mass=0.0, num_data=3), "mass must be positive"),
            (
                lambda p: bridge.SGNHT(p, 0.1, 1.0, thermal_mass=0.0, num_data=3),
                "thermal_mass must be positive",
            ),
            (lambda p: bridge.PSGLD(p, 0.1, decay=1.0, num_data=3), "decay must be less than 1"),
            (lambda p: bridge.PSGLD(p, 0.1, damping=0.0, num_data=3), "damping must be positive"),
        ],
    )
    def test_values(self, make, message):
        with pytest.raises(ValueError, match=message):
            make([parameter()])

    @pytest.mark.parametrize(
        "make, message",
        [
            (lambda p: bridge.SGLD(p, "0.1", num_data=3), "lr must be a number"),
            (lambda p: bridge.SGLD(p, 0.1, num_data=True), "num_data must be a number"),
            (lambda p: bridge.SGLD(p, 0.1, num_data=3, prior="flat"), "prior must be a number"),
            (lambda p: bridge.RSGLD(p, 0.1, 2.0, num_data=3), "metric must be a function"),
        ],
    )
    def test_types(self, make, message):
        with pytest.raises(TypeError, match=message):
            make([parameter()])

    @pytest.mark.parametrize(
        "settings, message",
        [
            (dict(weight_decay=1e-4), r"no weight_decay: .*from_weight_decay.*prior=None"),
            (dict(weight_decay=0.0), "prior=None is no decay"),
            (dict(momentum=0.9), r"SGLD has no momentum: .*from_torch_sgd"),
            (dict(dampening=0.1), "no dampening"),
            (dict(nesterov=True), "no nesterov"),
            (dict(eps=1e-8), "SGLD has no setting 'eps'"),
            (dict(step_size=0.1), "two names for one number"),
        ],
    )
    def test_settings_of_torchs_optimizers(self, settings, message):
        with pytest.raises(TypeError, match=message):
            bridge.SGLD([parameter()], 0.1, **DATA, **settings)

    def test_weight_decay_of_a_group(self):
        groups = [{"params": [parameter()]}, {"params": [parameter()], "weight_decay": 1e-4}]
        with pytest.raises(TypeError, match="SGHMC has no weight_decay"):
            bridge.SGHMC(groups, 0.1, 1.0, **DATA)

    def test_settings_that_are_left_out(self):
        with pytest.raises(TypeError, match="lr must be a number, not None"):
            bridge.SGLD([parameter()], **DATA)
        with pytest.raises(TypeError, match="friction must be a number, not None"):
            bridge.SGHMC([parameter()], 0.1, **DATA)

    def test_a_prior_that_is_not_one_number(self):
        a = parameter()
        a.grad = torch.ones(2)
        for prior in (lambda ps: ps[0], lambda ps: 0.0, lambda ps: torch.tensor(0.0)):
            with pytest.raises(TypeError, match="prior must return one number"):
                bridge.SGLD([a], 0.1, prior=prior, **DATA).step()

    def test_a_group_that_is_refused_is_not_added(self):
        optimizer = bridge.SGLD([parameter()], 0.1, **DATA)
        with pytest.raises(ValueError, match="lr must be positive"):
            optimizer.add_param_group({"params": [parameter()], "lr": -1.0})
        assert len(optimizer.param_groups) == 1

    def test_a_generator_elsewhere(self):
        shadow = torch.nn.Parameter(torch.zeros(2, device="meta"))
        with pytest.raises(ValueError, match="generator is on cpu, but a parameter is on meta"):
            bridge.SGLD([shadow], 0.1, generator=torch.Generator(), **DATA)

    def test_a_state_of_other_devices(self):
        optimizer = bridge.SGLD([parameter()], 0.1, **DATA)
        state = optimizer.state_dict()
        state["generators"] = {"cuda:0": state["generators"]["cpu"]}
        with pytest.raises(ValueError, match="remove the key 'generators'"):
            optimizer.load_state_dict(state)

    def test_a_state_that_lacks_a_setting(self):
        """A function, which is not saved, or what another sampler has not; before, at a step."""
        saved = bridge.SGLD([parameter()], 0.1, prior=lambda ps: ps[0].sum(), **DATA).state_dict()
        for make in (bridge.SGLD, functools.partial(bridge.SGHMC, friction=1.0)):
            with pytest.raises(ValueError, match="no .*prior, .*give the constructor those"):
                make([parameter()], 0.1, **DATA).load_state_dict(saved)
        saved = bridge.SGLD([parameter()], 0.1, **DATA).state_dict()
        with pytest.raises(ValueError, match="no friction and no mass, which SGHMC needs"):
            bridge.SGHMC([parameter()], 0.1, 1.0, **DATA).load_state_dict(saved)
