"""Fifty kills at random instants: no draw is lost, doubled or changed."""

import sys

import pytest

from ergodax.apps.reliability import kills

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs fork")


@pytest.mark.parametrize(("kind", "times"), [("in memory", 50), ("streamed", 10)])
def test_killed_runs_finish_with_the_same_draws(tmp_path, kind, times):
    drill = kills.drill(kind, times, tmp_path / "drill", seed=hash(tmp_path) % 2**31)
    print(drill)
    assert drill.ok, drill
    assert drill.kills == times and drill.most > drill.least
