"""What is collected, what it predicts, and layers that have no posterior."""

# pyright: reportMissingImports=false
import pickle
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is in the extra `torch`")
import ergodax as ex  # noqa: E402
from ergodax.bridge import torch as bridge  # noqa: E402
from ergodax.network import likelihoods  # noqa: E402

torch.set_num_threads(1)  # xdist has the other cores

INPUTS, LABELS = torch.linspace(-1.0, 1.0, 24).reshape(8, 3), torch.arange(8) % 3


def network(outputs=3):
    return torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, outputs))


def collected(model, count, seed=0, **options):
    """Draws that are normal numbers, and the outputs of each."""
    torch.manual_seed(seed)
    draws, outputs = bridge.Draws(**options), []
    for _ in range(count):
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.normal_()
            outputs.append(model(INPUTS).clone())
        draws.collect(model)
    return draws, torch.stack(outputs)


def test_burn_in_and_thinning():
    draws = bridge.Draws(burn_in=3, thin=2)
    kept = [step for step in range(1, 10) if draws.collect({"x": torch.tensor([float(step)])})]
    assert kept == [5, 7, 9] and draws.steps == 9 and len(draws) == 3
    np.testing.assert_array_equal(draws.samples().position["x"], [[[5.0], [7.0], [9.0]]])


def test_a_draw_is_a_copy():
    x = torch.zeros(2)
    draws = bridge.Draws()
    draws.collect({"x": x})
    x += 1.0
    assert not draws.samples().position["x"].any()


@pytest.mark.parametrize("chunk_size", [1, 3, 16])
@pytest.mark.parametrize("batch_size", [None, 3])
def test_classes(chunk_size, batch_size):
    model = network()
    draws, outputs = collected(model, 7)
    own = [p.clone() for p in model.parameters()]
    found: Any = draws.predictive(
        model,
        INPUTS,
        likelihoods.Categorical(),
        LABELS,
        chunk_size=chunk_size,
        batch_size=batch_size,
    )
    each = outputs.softmax(-1).double()
    mean = each.mean(0)
    assert found.count == 7
    np.testing.assert_allclose(found.mean, mean, atol=1e-6)
    np.testing.assert_allclose(found.spread, each.var(0), atol=1e-6)
    np.testing.assert_allclose(found.log_density, mean[range(8), LABELS].log(), rtol=1e-5)
    entropy = -(each * each.log()).sum(-1).mean(0)
    np.testing.assert_allclose(found.draw_entropy, entropy, rtol=1e-4, atol=1e-6)
    assert (outputs.mean(0).softmax(-1) - mean).abs().max() > 0.01, "not the mean of the logits"
    assert all(map(torch.equal, own, model.parameters())), "the model keeps its own"


def test_regression_with_noise():
    model = network(outputs=1)
    draws, outputs = collected(model, 5)
    targets = torch.linspace(0.0, 1.0, 8)
    found: Any = draws.predictive(model, INPUTS, likelihoods.Gaussian(0.5), targets)
    np.testing.assert_allclose(found.mean, outputs[..., 0].mean(0), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found.variance, outputs[..., 0].var(0) + 0.25, rtol=1e-5)
    normal = torch.distributions.Normal(outputs[..., 0], 0.5)
    density = normal.log_prob(targets).exp().mean(0).log()
    np.testing.assert_allclose(found.log_density, density, rtol=1e-4)


def test_chains_at_once_and_one_after_another():
    model = network()
    runs = [collected(model, count, seed) for seed, count in enumerate((5, 4, 6))]
    joined = bridge.Draws.joined(*(draws for draws, _ in runs))
    together = bridge.Draws(chains=True)
    for step in range(4):
        parts = [draws.samples().position for draws, _ in runs]
        together.collect(
            {n: torch.tensor(np.stack([part[n][0, step] for part in parts])) for n in parts[0]}
        )
    outputs = torch.cat([outputs[:4] for _, outputs in runs])
    for draws in (joined, together):
        samples = draws.samples()
        assert isinstance(samples, ex.Samples)
        assert (samples.num_chains, samples.num_draws, len(draws)) == (3, 4, 4)
        np.testing.assert_array_equal(
            samples.position["0.weight"][1], runs[1][0].samples().position["0.weight"][0, :4]
        )
        found = draws.predictive(model, INPUTS, likelihoods.Categorical(), chunk_size=5)
        assert found.count == 12 and found.log_density is None
        np.testing.assert_allclose(found.mean, outputs.softmax(-1).mean(0), atol=1e-6)


def test_arviz_summaries_and_disk(tmp_path):
    pytest.importorskip("arviz_base")
    model = network()
    draws = bridge.Draws.joined(*(collected(model, 20, seed)[0] for seed in range(2)))
    tree = draws.to_arviz(dims={"2.bias": ["class"]})
    assert tree["posterior"]["2.bias"].dims == ("chain", "draw", "class")
    assert tree["posterior"]["0.weight"].shape == (2, 20, 4, 3)
    assert len(draws.summary()) == sum(p.numel() for p in model.parameters())
    again = ex.Samples.load(draws.samples().save(tmp_path / "draws"))
    np.testing.assert_array_equal(again.position["0.weight"], draws.samples().position["0.weight"])
    assert len(pickle.loads(pickle.dumps(draws))) == 20


def test_fixed_parameters_are_the_models():
    model = network()
    model[0].requires_grad_(False)
    draws, outputs = bridge.Draws(), []
    for _ in range(3):
        torch.nn.init.normal_(model[2].weight)
        outputs.append(model(INPUTS).detach())
        draws.collect(model)
    assert set(draws.samples().position) == {"2.weight", "2.bias"}
    found = draws.predictive(model, INPUTS, likelihoods.Categorical())
    np.testing.assert_allclose(found.mean, torch.stack(outputs).softmax(-1).mean(0), atol=1e-6)


def test_draws_of_another_model_are_refused():
    """Of a part of the model, or of two networks: else the model's own parameters predict alone."""
    model = network()
    draws = bridge.Draws()
    draws.collect(model[2])
    with pytest.raises(ValueError, match=r"draws have \['weight', 'bias'\].*'0.weight'"):
        draws.predictive(model, INPUTS, likelihoods.Categorical())
    both = after({**dict(model.named_parameters()), "4.bias": torch.zeros(3)})
    with pytest.raises(ValueError, match=r"draws have \['4.bias'\]"):
        both.predictive(model, INPUTS, likelihoods.Categorical())


def test_a_compiled_module_has_the_names_of_the_raw_one():
    model = network()
    whole = torch.compile(model, backend="eager")
    parts = torch.nn.Sequential(torch.compile(model[0], backend="eager"), *model[1:])
    raw, outputs = collected(model, 3)
    for other in (whole, parts):
        draws, _ = collected(other, 3)
        assert set(draws.samples().position) == set(raw.samples().position)
        found = draws.predictive(model, INPUTS, likelihoods.Categorical())
        np.testing.assert_allclose(found.mean, outputs.softmax(-1).mean(0), atol=1e-6)
        for chunk_size in (1, 2):
            found = raw.predictive(other, INPUTS, likelihoods.Categorical(), chunk_size=chunk_size)
            np.testing.assert_allclose(found.mean, outputs.softmax(-1).mean(0), atol=1e-6)


@pytest.mark.parametrize("chunk_size", [1, 2])
def test_a_model_that_returns_no_tensor_is_refused(chunk_size):
    class Pair(torch.nn.Linear):
        def forward(self, input):
            return super().forward(input), input

    draws = after({"weight": torch.zeros(2, 3)})
    with pytest.raises(TypeError, match="must return a tensor, not tuple.*outputs alone"):
        draws.predictive(Pair(3, 2), INPUTS, likelihoods.Categorical(), chunk_size=chunk_size)


def test_targets_of_half_precision():
    draws, _ = collected(network(outputs=1), 2)
    for dtype in (torch.bfloat16, torch.float16):
        targets = torch.linspace(0.0, 1.0, 8).to(dtype)
        found, exact = (
            draws.predictive(network(outputs=1), INPUTS, likelihoods.Gaussian(0.5), y)
            for y in (targets, targets.float())
        )
        np.testing.assert_array_equal(found.log_density, exact.log_density)


def batch_norm(**options):
    return torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.BatchNorm1d(3, **options))


class TestLayersWithoutPosterior:
    LAYERS = {
        "batch norm": (batch_norm, "1 keeps statistics .* no posterior.*model.eval"),
        "dropout": (lambda: torch.nn.Sequential(torch.nn.Dropout(0.1)), "0 drops .*model.eval"),
        "attention": (lambda: torch.nn.MultiheadAttention(4, 2, dropout=0.1), "drops units"),
        "lstm": (lambda: torch.nn.LSTM(3, 3, 2, dropout=0.1), "drops units"),
    }

    @pytest.mark.parametrize("name", LAYERS)
    def test_they_are_refused_in_training(self, name):
        make, message = self.LAYERS[name]
        module = make()
        module.register_parameter("more", torch.nn.Parameter(torch.zeros(2)))
        for refuse in (
            bridge.parameters_of,
            lambda m: bridge.SGLD(m, 0.1, num_data=3),
            bridge.Functional(bridge.SGLD, lr=0.1, num_data=3).init,
            bridge.Draws(burn_in=100).collect,  # at the first step, not after a long burn-in
            lambda m: bridge.Draws().predictive(m, INPUTS, likelihoods.Categorical()),
        ):
            with pytest.raises(ValueError, match=message):
                refuse(module)
        module.eval()
        assert "more" in bridge.parameters_of(module)

    def test_statistics_of_the_batch_are_refused_in_any_mode(self):
        model = batch_norm(track_running_stats=False).eval()
        with pytest.raises(ValueError, match="1 keeps statistics") as error:
            bridge.parameters_of(model)
        assert "model.eval" not in str(error.value)

    def test_layers_that_take_rows_by_themselves(self):
        layers = torch.nn.LayerNorm(3), torch.nn.GroupNorm(1, 3), torch.nn.InstanceNorm1d(3)
        assert bridge.parameters_of(torch.nn.Sequential(*layers, torch.nn.Dropout(0.0)))

    def test_a_frozen_batch_norm_predicts_by_its_statistics(self):
        model = batch_norm().eval()
        draws, outputs = collected(model, 3)
        found = draws.predictive(model, INPUTS, likelihoods.Categorical())
        np.testing.assert_allclose(found.mean, outputs.softmax(-1).mean(0), atol=1e-6)

    def test_nothing_to_sample(self):
        with pytest.raises(ValueError, match="nothing to sample"):
            bridge.parameters_of(torch.nn.ReLU())


X = {"x": torch.zeros(2, 3)}


def after(*collected, **options):
    draws = bridge.Draws(**options)
    for params in collected:
        draws.collect(params)
    return draws


@pytest.mark.parametrize(
    "make, error, message",
    [
        (lambda: bridge.Draws(thin=0), ValueError, "thin must be at least 1"),
        (lambda: bridge.Draws(burn_in=1.5), TypeError, "burn_in must be an integer"),
        (lambda: bridge.Draws(chains=4), TypeError, "chains must be True or False"),
        (lambda: after([1.0]), TypeError, "params must be a dict of tensors"),
        (lambda: after({"x": 1.0}), TypeError, r"params\['x'\] must be a tensor"),
        (lambda: after(X, {"x": torch.zeros(3)}), ValueError, "differ from those"),
        (lambda: after(X, {"y": torch.zeros(2, 3)}), ValueError, "differ from those"),
        (lambda: after(X, {"x": torch.full((2, 3), torch.nan)}), FloatingPointError, "x is NaN"),
        (lambda: after(X | {"y": torch.zeros(3)}, chains=True), ValueError, "no common leading"),
        (lambda: after({"x": torch.tensor(0.0)}, chains=True), ValueError, "no common leading"),
        (lambda: after(X, burn_in=1).samples(), ValueError, "no draw in 1 steps"),
        (lambda: bridge.Draws.joined(), ValueError, "a run has no draws"),
        (lambda: bridge.Draws.joined(after(X), after()), ValueError, "a run has no draws"),
        (lambda: bridge.Draws.joined(after(X), after({"y": X["x"]})), ValueError, "different"),
    ],
)
def test_refusals(make, error, message):
    with pytest.raises(error, match=message):
        make()


@pytest.mark.parametrize(
    "arguments, error, message",
    [
        (("model", INPUTS, likelihoods.Categorical()), TypeError, "model must be an nn.Module"),
        ((network(), INPUTS.numpy(), likelihoods.Categorical()), TypeError, "must be a tensor"),
        ((network(), INPUTS, "softmax"), TypeError, "likelihood must be"),
        ((network(), INPUTS, likelihoods.Gaussian()), ValueError, "learns .*Gaussian"),
        ((network(), INPUTS, likelihoods.Bernoulli()), ValueError, "one output for a row"),
        ((network(), INPUTS, likelihoods.Categorical(), LABELS[:3]), ValueError, "8 rows, but 3"),
        ((network(), INPUTS, likelihoods.Categorical(), LABELS + 1), ValueError, "from 0 to 2"),
    ],
)
def test_predictions_refused(arguments, error, message):
    draws, _ = collected(network(), 2)
    with pytest.raises(error, match=message):
        draws.predictive(*arguments)


def test_no_draws_predict_nothing():
    with pytest.raises(ValueError, match="there are no outputs"):
        bridge.Draws().predictive(network(), INPUTS, likelihoods.Categorical())
