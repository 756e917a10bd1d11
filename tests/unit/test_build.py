"""The hash of the sources: it tells different code apart, and nothing else."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from lanewarden.build import PACKAGES, installed


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for package in PACKAGES:
        (tmp_path / package / "core").mkdir(parents=True)
        (tmp_path / package / "core" / "a.py").write_text("ONE = 1\n")
        (tmp_path / package / "__init__.py").touch()
    return tmp_path


def test_the_same_sources_have_the_same_hash_wherever_they_are(
    root: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Two hosts with one release agree; what Python keeps beside the sources does not count."""
    other = tmp_path_factory.mktemp("other") / "deep"
    shutil.copytree(root, other)
    (other / "lanewarden" / "__pycache__").mkdir()
    (other / "lanewarden" / "__pycache__" / "a.cpython-311.pyc").write_bytes(b"x")
    (other / "elsewhere.py").write_text("ONE = 2\n")
    assert installed(root) == installed(other)


@pytest.mark.parametrize("package", PACKAGES)
def test_any_change_of_a_source_changes_the_hash(root: Path, package: str) -> None:
    """A changed, a new, a moved and a removed file of either package are each another build."""
    seen = {installed(root).hash}
    source = root / package / "core" / "a.py"
    source.write_text("ONE = 2\n")
    seen.add(installed(root).hash)
    (root / package / "b.py").touch()
    seen.add(installed(root).hash)
    source.rename(root / package / "a.py")
    seen.add(installed(root).hash)
    (root / package / "b.py").unlink()
    seen.add(installed(root).hash)
    assert len(seen) == 5


def test_what_runs_here_has_a_hash_and_a_version() -> None:
    """The installation itself."""
    build = installed()
    assert len(build.hash) == 12
    assert build.version
