"""The confusion of right and wrong equations: a bank that is half wrong, and the table of it."""

import pytest

from benchmarks.confusion import command, equations, kernels, recipes


def test_the_bank_is_half_wrong_and_has_names_of_its_own():
    cases = [*equations.cases(), *recipes.cases(), *kernels.cases()]
    names = [case.name for case in cases]
    assert len(cases) >= 60 and len(set(names)) == len(names)
    assert sum(case.right for case in cases) * 2 == len(cases)
    kinds = {name.rpartition(": ")[2] for name in names}
    assert len(kinds) >= 20, "as many mistakes, and right"


@pytest.mark.slow
def test_a_right_and_a_wrong_one_are_told_apart(tmp_path, capsys):
    place = tmp_path / "table.md"
    command.main(["--only", "overdamped, gaussian 1,", "--markdown", str(place)])
    assert "WRONGLY" not in capsys.readouterr().out
    text = place.read_text()
    assert "| right | 1 | 0 |" in text and "| wrong | 0 | 1 |" in text
    assert "Gamma is missing" in text


@pytest.mark.slow
@pytest.mark.parametrize(
    "mistake, fault",
    [
        ("div L for div L^T", "div Q[z[2:], z[:2]], of Gamma, is over the wrong index"),
        ("T = 2: L for L^T", "Q[z[2:], z[:2]] is transposed in the drift"),
    ],
)
def test_a_transposed_block_of_one_vector_is_named(mistake, fault, capsys):
    """Positions and momenta stand in a row: the block is one of the vector's halves."""
    command.main(["--only", mistake])
    assert fault in capsys.readouterr().out
