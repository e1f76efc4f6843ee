"""A run is not resumed with another Python function behind a callback, as far as it can be seen."""

import functools
import subprocess
import sys
import threading
import time
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ergodax.persist import callbacks

PROGRAM = """
import sys, jax, jax.numpy as jnp, numpy as np, ergodax as ex
calls, lock = [], __import__("threading").Lock()
SCALE = {"of": 1.0, "more": {1, 2, 3}}
def helper(v): return np.float32(SCALE["of"])
def scale(v):
    with lock: calls.append(sys.argv)
    return helper(v)
def potential(w):
    shape = jax.ShapeDtypeStruct((), jnp.float32)
    back = jax.pure_callback(scale, shape, jax.lax.stop_gradient(w), vmap_method="sequential")
    return 0.5 * jnp.sum(w**2) * back
kernel = ex.langevin(ex.FullGradient(ex.Target(potential)), 0.5, 1.0)
ex.sample(kernel, jnp.zeros(2), int(sys.argv[2]), key=jax.random.key(0), progress=False,
          checkpoint=ex.Checkpoint(sys.argv[1], resume=True))
"""


@pytest.mark.slow
def test_another_process_goes_on_with_the_same_function_alone(tmp_path):
    def run(steps, program=PROGRAM):
        (tmp_path / "program.py").write_text(program)
        command = [sys.executable, tmp_path / "program.py", tmp_path / "run", str(steps)]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    assert run(20).returncode == 0
    same = run(40)
    assert same.returncode == 0, same.stderr
    for old, new in (("np.float32(SC", "np.float32(2 * SC"), ('"of": 1.0', '"of": 2.0')):
        other = run(60, PROGRAM.replace(old, new))
        assert "changed: the Python function 'scale' behind pure_callback." in other.stderr


def digest(function):
    shape = jax.ShapeDtypeStruct((), jnp.float32)
    calling = jax.make_jaxpr(jax.jit(lambda x: jax.pure_callback(function, shape, x)))
    return callbacks.digests(calling(1.0).jaxpr)


class Model:
    """With what a method changes itself, what can't be compared, and a circle."""

    def __init__(self, weight):
        self.weight, self.count, self.lock, self.me = np.full(3, weight), 0, threading.Lock(), self

    def __call__(self, x):
        self.count += 1
        return np.float32(self.weight.sum() * x)


def closure(weight):
    seen, inner = [], lambda x: x * weight

    def function(x, k=1.0):
        seen.append(time.time())
        return np.float32(inner(x) * k)

    return function


FORMS = {
    "a closure": closure,
    "a callable": Model,
    "a method": lambda weight: Model(weight).__call__,
    "a partial": lambda weight: functools.partial(closure(1.0), k=weight),
    "of a library": lambda weight: np.vectorize(closure(weight)),
    "compiled": lambda weight: jax.jit(closure(weight)),
}


@pytest.mark.parametrize("name", FORMS)
def test_what_a_function_has_caught_tells_it_from_others(name):
    one, same, other = (FORMS[name](weight) for weight in (1.0, 1.0, 2.0))
    if name != "compiled":
        one(3.0)  # what it changes itself does not count
    assert digest(one) == digest(same) != digest(other)


def test_functions_of_the_users_modules_are_gone_into(monkeypatch):
    module = types.ModuleType("users")
    module.__file__ = "/home/user/users.py"
    monkeypatch.setitem(sys.modules, "users", module)
    exec("def f(x): return x + np.float32(1)", module.__dict__)
    call = types.FunctionType((lambda x: users.f(x)).__code__, {"users": module})  # noqa: F821  # pyright: ignore
    before = digest(call)
    exec("def f(x): return x + np.float32(2)", module.__dict__)
    assert digest(call) != before


def test_whatever_a_function_has_caught_does_no_harm():
    class Hostile:
        def __getattribute__(self, name):
            raise RuntimeError(name)

        def __repr__(self):
            raise RuntimeError

    deep = []
    for _ in range(10_000):
        deep = [deep]
    caught = (Hostile(), deep, jax.random.key(0), np.array([{}, None], object), sys, open)
    assert digest(lambda x: (caught, x)[1])
