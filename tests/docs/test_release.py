"""Versions agree wherever one is written, and a release without a date is told."""

import pytest

from tools import release_check

FILES = "pyproject.toml", "src/ergodax/__init__.py", "CITATION.cff", "CHANGELOG.md"


@pytest.fixture
def copy(tmp_path):
    for name in FILES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text((release_check.ROOT / name).read_text())
    return tmp_path


def test_versions_agree():
    assert release_check.check_versions(release_check.ROOT)


@pytest.mark.parametrize("name", FILES)
def test_another_version_in_one_file_is_told(name, copy):
    version, path = release_check.check_versions(copy), copy / name
    path.write_text(path.read_text().replace(version, "9.9.9", 1))
    with pytest.raises(release_check.Unfit, match=rf"{name} says 9\.9\.9"):
        release_check.check_versions(copy)


def test_a_release_needs_a_date(copy):
    path = copy / "CHANGELOG.md"
    before, _, after = path.read_text().partition("\n## [")
    heading, _, rest = after.partition("\n")
    version = heading.partition("]")[0]
    for date, fits in (("2026-11-28", True), ("unreleased", False)):
        path.write_text(f"{before}\n## [{version}] - {date}\n{rest}")
        if fits:
            release_check.check_date(copy)
        else:
            with pytest.raises(release_check.Unfit, match="no date"):
                release_check.check_date(copy)
