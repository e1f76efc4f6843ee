"""Compiled programs in the user's cache folder, unless JAX or the user keeps them elsewhere."""

import jax
import jax.numpy as jnp
import pytest

from ergodax.cache import kept_programs


@pytest.fixture
def home(monkeypatch, tmp_path):
    """A cache folder of its own, and no cache of JAX's."""
    monkeypatch.setenv("ERGODAX_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("ergodax.cache.SECONDS", 0.0)
    before = jax.config.jax_compilation_cache_dir
    jax.config.update("jax_compilation_cache_dir", None)
    yield tmp_path / "cache"
    jax.config.update("jax_compilation_cache_dir", before)


def programs(home):
    return [path for path in home.rglob("*-cache")]


def compile_one(number):
    jax.jit(lambda x: x * number + 1)(jnp.ones(3)).block_until_ready()


def test_a_program_is_kept_and_the_setting_is_given_back(home):
    with kept_programs():
        compile_one(17.0)
    kept = programs(home)
    assert kept and jax.config.jax_compilation_cache_dir is None
    compile_one(18.0)  # outside, nothing is
    assert programs(home) == kept


def test_the_user_may_want_none(home, monkeypatch):
    monkeypatch.setenv("ERGODAX_PROGRAMS", "0")
    with kept_programs():
        compile_one(19.0)
    assert not programs(home)


def test_a_cache_that_jax_has_stays(home, tmp_path):
    jax.config.update("jax_compilation_cache_dir", str(tmp_path / "own"))
    with kept_programs():
        assert jax.config.jax_compilation_cache_dir == str(tmp_path / "own")


def test_a_folder_that_cannot_be_made_is_no_error(home, monkeypatch):
    home.write_text("a file")
    with kept_programs():
        compile_one(20.0)
    assert home.read_text() == "a file"
