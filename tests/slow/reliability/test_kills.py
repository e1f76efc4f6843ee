"""Fifty kills at random instants: no draw is lost, doubled or changed."""

import sys

import pytest

from benchmarks.kills import kill_and_resume

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs fork")


@pytest.mark.parametrize(("kind", "times"), [("in memory", 50), ("streamed", 15)])
def test_killed_runs_finish_with_the_same_draws(tmp_path, kind, times):
    seed = hash(tmp_path) % 2**31
    outcome = kill_and_resume.kill_and_resume(kind, times, tmp_path / "killed", seed=seed)
    print(outcome.sentence)
    assert outcome.ok, outcome
    assert outcome.kills == times
