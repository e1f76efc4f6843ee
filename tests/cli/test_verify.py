"""`ergodax verify` as a user meets it: verdicts, files, and errors that say where."""

import json

import jax
import pytest

import ergodax as ex
from ergodax.cli import subjects

FILE = """
import jax.numpy as jnp

import ergodax as ex

well = ex.targets.double_well()
round = ex.Target(lambda x: 0.5 * jnp.sum(x**2))


def diffusion(z):
    return {"position": ex.Diagonal(1.0 + z["position"] ** 2)}


right = ex.Recipe(diffusion, gamma=lambda z: {"position": 2.0 * z["position"]})
half = ex.Recipe(diffusion, gamma=lambda z: {"position": z["position"]})


def of_target(target):
    return right


def misspelt(z):
    return {"position": ex.Scalar(z["positron"])}


misspelt = ex.Recipe(misspelt)


def sgld(step_size):
    return ex.sgld(ex.FullGradient(well), step_size)


def hot(target, step_size):
    return ex.sgld(ex.FullGradient(target), step_size, temperature=3.0)


def stiff(step_size):
    return ex.sgld(ex.FullGradient(well), step_size, temprature=2.0)


def greedy(target, step_size, friction):
    return sgld(step_size)


number = 3
"""
BANANA = ex.targets.banana()
QUICK = ["--num-draws", "4096", "--tolerance", "0.5"]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("user") / "model.py"
    path.write_text(FILE)
    return path


@pytest.fixture
def verify(ergodax):
    return lambda *arguments: ergodax("verify", *arguments)


@pytest.mark.slow
def test_a_recipe_by_name_is_proved(verify):
    code, out, err = verify("recipe", "sghmc", "--json")
    facts = json.loads(out)
    assert code == 0 and err == ""
    assert facts["verdict"] == "proved" and facts["failing_points"] == 0 and facts["files"] == {}
    assert facts["relative_residual"] < 1e-12 and facts["worst_point"].keys() >= {"position[0]"}


@pytest.mark.slow
def test_a_wrong_correction_is_refuted_and_named(verify, model, tmp_path):
    where = ["--target", f"{model}:round", "--position", "-0.5", "0.5", "--output", tmp_path]
    code, out, err = verify("recipe", f"{model}:half", *where)
    assert code == 1, err
    assert (
        "REFUTED" in out
        and "fault: Gamma = div D is half of what it should be" in " ".join(out.split())
        and "at 64 of them" in " ".join(out.split())
    )
    names = {"picture.png", "facts.json", "report.html"}
    assert {path.name for path in tmp_path.iterdir()} == names
    facts = json.loads((tmp_path / "facts.json").read_text())
    assert facts["verdict"] == "refuted" and facts["corrected_by"]["left"] < 1e-12
    page = (tmp_path / "report.html").read_text()
    assert "data:image/png" in page and "REFUTED" in page and "position[1]" in page
    # The same with 2 x in place of x is proved, also as a function of the target.
    for name in ("right", "of_target"):
        where = ["--target", f"{model}:round", "--position", "0", "0"]
        code, out, _ = verify("recipe", f"{model}:{name}", *where)
        assert code == 0 and "PROVED" in out


def test_gradient_noise_needs_friction(verify):
    noise = ["--noise-covariance", "1", "--step-size", "0.1", "--json"]
    code, out, _ = verify("recipe", "sghmc", *noise)
    assert code == 1 and "no friction" in json.loads(out)["corrected_by"]["fault"]


@pytest.mark.slow
def test_a_kernel_is_consistent_or_refuted(verify, model, tmp_path):
    """A false alarm has probability 1e-6 a report; that at T = 3 is 5 standard errors beyond it."""
    target = ["--target", f"{model}:well"]
    code, out, err = verify("kernel", f"{model}:sgld", *target, *QUICK)
    assert code == 0, err
    assert "Right limit" in out and "cos(2 z0)" in out
    many = ["--num-draws", "32768", "--json", "--out", tmp_path]
    code, out, err = verify("kernel", f"{model}:hot", *many)
    facts = json.loads(out)
    assert code == 1 and facts["verdict"] == "refuted" and "Wrong limit" in facts["sentence"]
    assert len(facts["biases"]) == len(facts["limits"]) * len(facts["step_sizes"])
    stored = json.loads((tmp_path / "facts.json").read_text())
    assert facts == stored | {"files": facts["files"]}
    assert "data:image/png" in (tmp_path / "report.html").read_text()


@pytest.mark.slow
def test_too_few_draws_are_inconclusive(verify):
    draws = ["--num-draws", "1024", "--tolerance", "1e-3"]
    code, out, _ = verify("kernel", "langevin", *draws)
    assert code == 1 and "Undecided" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["recipe", "none.py:a"], "no such file: none.py"),
        (["recipe", "FILE:nothing"], "has no name 'nothing'; it has well, round, diffusion"),
        (["recipe", "FILE"], "says no name. Try"),
        (["recipe", "FILE:number"], "number is 3 of type int. It must be an ex.Recipe"),
        (["recipe", "shmc"], "no recipe is called 'shmc'. Try langevin"),
        (["recipe", "sgld", "--target", "wall"], "no target is called 'wall'. Try double_well"),
        (["recipe", "sgld", "--target", "FILE:right"], "It must be an ex.Target"),
        (["recipe", "sgld", "--target", "FILE:round"], "--position is needed"),
        (["recipe", "sgld", "--position", "here"], "--position here must be numbers"),
        (["recipe", "sgld", "--step-size", "0.1"], "noise_covariance and step_size go together"),
        (["recipe", "FILE:hot"], "hot takes (target, step_size). It must take target, or nothing"),
        (["kernel", "FILE:right"], "For a recipe, try ergodax verify recipe"),
        (["kernel", "FILE:greedy"], "greedy takes (target, step_size, friction)"),
        (["kernel", "FILE:sgld"], "--target is needed"),
        (["kernel", "FILE:hot", "--noise", "1"], "--noise is for samplers by name"),
        (["kernel", "psgd"], "no sampler is called 'psgd'. Try sgld"),
        (["kernel", "sgld", "--target", "FILE:round"], "target must be one of ergodax.targets"),
        (["kernel", "sgld", "--num-draws", "5"], "num_draws must be at least 100"),
    ],
)
def test_errors_of_use(verify, model, arguments, message):
    given = [word.replace("FILE", str(model)) for word in arguments]
    code, out, err = verify(*given)
    assert code == 2 and out == "" and message in err, err
    assert err.startswith("error:") and "Traceback" not in err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import numpy\nx = numpy.nothing\n", "line 2: x = numpy.nothing\n  AttributeError"),
        ("def f(:\n", "line 1: def f(:\n  SyntaxError"),
        ("import sys\nsys.exit(3)\n", "line 2: sys.exit(3)\n  SystemExit: 3"),
        ("import nowhere_at_all\n", "line 1: import nowhere_at_all\n  ModuleNotFoundError"),
    ],
)
def test_a_file_that_fails_says_its_line(verify, tmp_path, text, message):
    path = tmp_path / "broken.py"
    path.write_text(text)
    code, _, err = verify("recipe", f"{path}:x")
    assert code == 2 and f"{path}, {message}" in err


def test_a_function_that_fails_says_its_line(verify, model):
    code, _, err = verify("recipe", f"{model}:misspelt")
    line = FILE.splitlines().index('    return {"position": ex.Scalar(z["positron"])}') + 1
    assert code == 2 and f"line {line}, in misspelt: return" in err and "KeyError" in err
    code, _, err = verify("kernel", f"{model}:stiff", "--target", "banana")
    assert code == 2 and "in stiff: return ex.sgld" in err and "temprature" in err


def test_a_file_sees_its_neighbours_and_is_run_once(verify, tmp_path):
    (tmp_path / "neighbour.py").write_text("import ergodax as ex\nwell = ex.targets.double_well\n")
    path = tmp_path / "asks.py"
    path.write_text("from neighbour import well\nprint('run')\nrecipe = 3\n")
    arguments = ["recipe", f"{path}:recipe", "--target", f"{path}:well"]
    code, out, err = verify(*arguments)
    assert code == 2 and out == "run\n" and "It must be an ex.Recipe" in err


@pytest.mark.slow
@pytest.mark.parametrize("name", subjects.SAMPLERS)
def test_samplers_by_name_are_made(name, key):
    subject = subjects.kernel_of(name, "banana", 1.0, 0.0, None)
    state = subject.make(0.1).init(key, BANANA.sample(key, 1)[0])
    if subject.prepare is not None:
        ready = subject.prepare(key, state)
        assert ready.auxiliary["thermostat"] != state.auxiliary["thermostat"]


@pytest.mark.slow
def test_the_thermostat_is_drawn_from_its_law(key):
    make, _, prepare = subjects.kernel_of("sgnht", "banana", 2.0, 3.0, None)
    assert prepare is not None
    state = make(0.1).init(key, BANANA.sample(key, 1)[0])
    keys = jax.random.split(key, 4096)
    zeta = jax.vmap(lambda k: prepare(k, state).auxiliary["thermostat"])(keys)
    # N(A + v / 2T, T / d) = N(1.75, 1): each figure within five standard errors, 1e-6.
    assert abs(float(zeta.mean()) - 1.75) < 5 / 64
    assert abs(float(zeta.var()) - 1.0) < 5 * (2 / 4096) ** 0.5


def test_recipes_have_the_names_of_samplers():
    assert set(subjects.OF_SAMPLERS.values()) <= set(subjects.RECIPES)
    assert not set(subjects.OF_SAMPLERS) & set(subjects.RECIPES)
