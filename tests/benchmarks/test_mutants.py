"""The list of mutants: each is one changed line of a file that has tests, and still fits."""

from pathlib import Path

import pytest

from benchmarks.mutants import mutant, places

ROOT = Path(__file__).parents[2]
FILES = places.files()


def test_every_file_and_every_test_that_is_named_exists():
    for file, (_, tests) in FILES.items():
        assert (ROOT / "src/ergodax" / file).is_file()
        named = [each for call in places.arguments(tests) for each in call if each.endswith(".py")]
        assert named and all((ROOT / each).is_file() for each in named), file


def test_most_mutants_fit_the_files():
    """A line that was edited since makes its mutant stale; `--generate` drops these."""
    mutants, stale = mutant.read(), 0
    assert len({one.name for one in mutants}) == len(mutants)
    for one in mutants:
        stale += not one.fits()
        assert one.old != one.new
    assert stale <= len(mutants) / 10
    assert {FILES[one.file][0] for one in mutants} == set(places.MODULES)


def test_a_mutant_changes_the_line_it_means():
    text = "a = 1\nb = 2\na = 1\n"
    one = mutant.Mutant("x.py", "NumberReplacer", "a = 1", "a = 2", which=1)
    assert one.applied(text) == "a = 1\nb = 2\na = 2\n"
    with pytest.raises(LookupError, match="make the mutant anew"):
        mutant.Mutant("x.py", "NumberReplacer", "a = 1", "a = 2", which=2).applied(text)


def test_equivalent_ones_are_kept_with_their_reason(tmp_path):
    path = tmp_path / "mutants.jsonl"
    both = [
        mutant.Mutant("b.py", "DropTerm", "x", "y", 1, "why"),
        mutant.Mutant("a.py", "", "x", "y"),
    ]
    mutant.write(both, path)
    assert mutant.read(path) == both[::-1]
