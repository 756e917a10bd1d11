"""The layout of the code as the design draws it: who may import what, read what, and how long it may get."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("lanewarden", "lane_runner_svc", "supervisor_svc")
GENERATED = ROOT / "lanewarden" / "v1"
EVERYTHING = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
MODULES = [path.relative_to(ROOT) for path in EVERYTHING if GENERATED not in path.parents]
SHARED_CORE = [
    Path("lanewarden") / name
    for name in (
        *("errors.py", "records.py", "rulings.py", "telemetry/metric_names.py", "walltime.py"),
        *("ledger/book.py", "ledger/findings.py", "ledger/survey.py", "ledger/totals.py", "ledger/windows.py"),
    )
]
"""What the cores share; as pure as they are."""
CORES = [path for path in MODULES if path.parts[1] == "core"]

LINES_MAX = 400
FUNCTION_LINES_MAX = 80
PURE = {
    *("__future__", "abc", "bisect", "collections", "dataclasses", "enum", "functools", "heapq", "itertools"),
    *("datetime", "json", "math", "operator", "re", "string", "types", "typing"),
}
"""What a core may take from the standard library: nothing that knows the time, chance, or the world outside."""
DATABASE = {"sqlite3", "pysqlite3", "sqlite_utils"}
STORES = (
    *("lanewarden/store/", "lane_runner_svc/store/", "supervisor_svc/store/"),
    "lanewarden/demo/",  # a worker's own database is its own affair
    "lanewarden/cli/doctor.py",  # which tells people what library the stores use
)
SETTINGS = {
    *("lanewarden/config.py", "lane_runner_svc/config.py", "supervisor_svc/config.py", "lanewarden/cli/settings.py"),
    *("lane_runner_svc/__main__.py", "supervisor_svc/__main__.py"),
    "lanewarden/worker.py",  # a worker finds its socket and token there; that is its entry point
}
SPEAKERS = ("lanewarden/cli/", "lanewarden/demo/")


def tree(path: Path) -> ast.Module:
    """A module, parsed."""
    return ast.parse((ROOT / path).read_text(encoding="utf-8"), str(path))


def imports(path: Path) -> Iterator[str]:
    """Every module that a module imports, wherever in it; relative ones resolved."""
    package = [*path.with_suffix("").parts]
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: -node.level] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            yield module
            yield from (f"{module}.{alias.name}" for alias in node.names)


def names(path: Path) -> Iterator[tuple[int, str]]:
    """Every name and dotted attribute that a module uses, with its line."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Name | ast.Attribute):
            yield node.lineno, ast.unparse(node)


def each(paths: list[Path]) -> pytest.MarkDecorator:
    """One test for each module."""
    return pytest.mark.parametrize("path", paths, ids=str)


def test_there_is_something_to_look_at() -> None:
    """The tests below would pass in an empty tree."""
    assert len(MODULES) > 50
    assert {"states.py", "task.py", "holds.py", "completion.py"} <= {path.name for path in CORES}


@each([*SHARED_CORE, *CORES])
def test_cores_are_pure(path: Path) -> None:
    """No clock, no chance, no IO, no gRPC, no protos: the pure part of the standard library, and each other."""
    allowed = (f"{path.parts[0]}.core.", *(f"{'.'.join(shared.with_suffix('').parts)}." for shared in SHARED_CORE))
    impure = {name for name in imports(path) if name.split(".")[0] not in PURE and not f"{name}.".startswith(allowed)}
    # "from package import module" names the package too, which is nothing by itself.
    assert not impure - {"lanewarden", path.parts[0]}, f"{path} imports {sorted(impure)}"


@each([*SHARED_CORE, *CORES])
def test_cores_ask_no_clock(path: Path) -> None:
    """``datetime`` converts; what time it is, a core is told."""
    dated = [name for _, name in names(path) if name.startswith(("datetime.", "date."))]
    assert not [name for name in dated if name.rpartition(".")[2] in ("now", "utcnow", "today")]


@each([*SHARED_CORE, *CORES])
def test_cores_do_nothing_but_decide(path: Path) -> None:
    """No file, no print, no awaiting, and no module global that could change."""
    for node in ast.walk(tree(path)):
        assert not isinstance(node, ast.AsyncFunctionDef | ast.Await | ast.Global), f"{path}:{node.lineno}"
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id not in {"open", "print", "input", "exec", "eval", "__import__"}, f"{path}:{node.lineno}"


@each(MODULES)
def test_the_database_is_known_to_the_stores_only(path: Path) -> None:
    """sqlite3 and sqlite-utils are imported under the three store packages and nowhere else."""
    if not path.as_posix().startswith(STORES):
        assert not {name for name in imports(path) if name.split(".")[0] in DATABASE}


@each(MODULES)
def test_the_environment_is_read_where_settings_are(path: Path) -> None:
    """os.environ and os.getenv only in the config modules and at the entry points that hand them the environment."""
    if path.as_posix() not in SETTINGS:
        found = [f"{path}:{line}" for line, name in names(path) if re.fullmatch(r"(os\.)?(environb?|getenvb?)", name)]
        assert not found


@each(MODULES)
def test_nothing_prints_but_the_command_line(path: Path) -> None:
    """Services log; only the command line and the entry points speak to a terminal."""
    if path.name == "__main__.py" or path.as_posix().startswith(SPEAKERS):
        return
    assert not [f"{path}:{line}" for line, name in names(path) if name in ("print", "pprint", "pprint.pprint")]


@each(MODULES)
def test_services_do_not_know_each_other_and_what_they_share_knows_neither(path: Path) -> None:
    """The runner and the supervisor talk over RPC. The command line may start either, by name of its module."""
    service = path.parts[0]
    foreign = set(PACKAGES) - {"lanewarden", service}
    assert not {name for name in imports(path) if name.split(".")[0] in foreign}


@each(MODULES)
def test_no_except_is_naked(path: Path) -> None:
    """Whatever is caught has a name."""
    naked = [node.lineno for node in ast.walk(tree(path)) if isinstance(node, ast.ExceptHandler) and node.type is None]
    assert not naked


@each(MODULES)
def test_modules_fit_a_sitting_and_functions_fit_a_screen(path: Path) -> None:
    """At most 400 lines and 80 lines."""
    assert len((ROOT / path).read_text(encoding="utf-8").splitlines()) <= LINES_MAX
    long = [
        f"{path}:{node.lineno} {node.name}"
        for node in ast.walk(tree(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (node.end_lineno or 0) - node.lineno >= FUNCTION_LINES_MAX
    ]
    assert not long
