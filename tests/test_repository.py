"""The repository can be built by anybody: nothing in it depends on one machine or one package index."""

from __future__ import annotations

import ast
import os
import re
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
NOT_OURS = {".git", ".venv", ".venv-lock", "node_modules", "__pycache__", "build", "dist", ".hypothesis"}
CACHES = re.compile(r"\.\w+_cache$|.*\.egg-info$")
LOCK = (ROOT / "requirements.lock").read_text()

# With brackets, so that this file does not hold what it looks for.
INDEX_HOSTS = re.compile(
    r"py[p]i\.(?:org|python)|python[h]osted|registry\.[n]pm|[n]pmjs\.|ana[c]onda\.|proxy\.[g]olang|[c]rates\.io"
)
MACHINE_PATHS = re.compile(r"(?<![\w.~])/(?:home|Users|root|work)/[\w.-]+")
INDEX_SETTINGS = re.compile(r"--(?:extra-)?index-url|--find-links|^-[if] ", re.MULTILINE)


def files() -> Iterator[Path]:
    """Every text file of the repository."""
    for directory, names, file_names in os.walk(ROOT):
        names[:] = [name for name in names if name not in NOT_OURS and not CACHES.match(name)]
        for name in file_names:
            yield Path(directory, name)


def texts() -> Iterator[tuple[str, str]]:
    for file in files():
        try:
            yield str(file.relative_to(ROOT)), file.read_text(encoding="utf-8")
        except (UnicodeDecodeError, FileNotFoundError):
            continue


@pytest.mark.parametrize("pattern", [INDEX_HOSTS, MACHINE_PATHS], ids=["package index", "machine path"])
def test_no_file_names_a(pattern: re.Pattern[str]) -> None:
    """But for this one, and those that say which paths of any machine commands must not touch."""
    allowed = ("tests/test_repository.py", "tests/skynet_terminal/policy/", "tests/skynet_terminal/sandbox/")
    found = [
        f"{name}: {match.group()}"
        for name, text in texts()
        if not name.startswith(allowed)
        for match in pattern.finditer(text)
    ]
    assert not found


def test_no_lock_file_with_addresses() -> None:
    """npm, uv and the like write where they fetched from; only the lock without addresses is kept."""
    locks = {"package-lock.json", "yarn.lock", "pnpm-lock.yaml", "uv.lock", "poetry.lock", "Pipfile.lock", "pdm.lock"}
    ignored = set((ROOT / ".gitignore").read_text().split())
    found = [str(path) for path in (file.relative_to(ROOT) for file in files()) if path.name in locks]
    assert set(found) <= ignored


class TestLock:
    def requirements(self) -> list[str]:
        return re.split(r"(?m)^(?=[a-z0-9])", LOCK.strip())[1:]

    def test_everything_is_pinned_with_hashes(self) -> None:
        assert self.requirements()
        for requirement in self.requirements():
            assert re.match(r"[a-z0-9][a-z0-9._-]*==[^\s;]+", requirement), requirement
            assert re.search(r"--hash=sha256:[0-9a-f]{64}", requirement), requirement

    def test_there_is_no_address_in_it(self) -> None:
        assert not re.search(r"://|@ ", LOCK)
        assert not INDEX_SETTINGS.search(LOCK)

    def test_it_has_all_that_is_asked_for_and_the_build_backend(self) -> None:
        project = tomllib.loads((ROOT / "pyproject.toml").read_text())
        asked = [
            *project["project"]["dependencies"],
            *project["dependency-groups"]["dev"],
            *project["build-system"]["requires"],
        ]
        names = {re.match(r"[\w.-]+", requirement)[0].lower() for requirement in asked}  # type: ignore[index]
        locked = {re.match(r"[\w.-]+", requirement)[0] for requirement in self.requirements()}  # type: ignore[index]
        assert names <= locked


def test_what_the_packages_import_is_declared() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = {re.match(r"[\w.-]+", requirement)[0] for requirement in project["dependencies"]}  # type: ignore[index]
    distributions = packages_distributions()
    imported = {
        name for package in ROOT.glob("skynet*/") for file in package.rglob("*.py") for name in imports_of(file)
    }
    third_party = {name for name in imported - sys.stdlib_module_names if not name.startswith("skynet")}
    undeclared = {
        name
        for name in third_party
        if not declared & {one.lower().replace("_", "-") for one in distributions.get(name, [])}
    }
    assert not undeclared


def imports_of(file: Path) -> Iterator[str]:
    """The top-level packages that a module imports, at its head or inside a function."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]


def test_the_image_is_not_run_by_root() -> None:
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    assert "USER skynet" in lines
    assert any(line.startswith("HEALTHCHECK") for line in lines)


@pytest.mark.parametrize("name", [".ci/run", "interop/run"])
def test_scripts_can_be_run(name: str) -> None:
    assert os.access(ROOT / name, os.X_OK)


def test_the_first_commands_of_the_readme_are_the_makefiles() -> None:
    targets = set(re.findall(r"(?m)^([a-z]+):", (ROOT / "Makefile").read_text()))
    for document in (ROOT / "README.md", ROOT / "docs" / "development.md"):
        assert set(re.findall(r"\bmake ([a-z]+)\b", document.read_text())) <= targets | {"the"}


def test_the_license_is_the_one_that_is_declared() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["license"] == "MIT"
    assert "Skynet contributors" in (ROOT / "LICENSE").read_text()
