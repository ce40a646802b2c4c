"""The house rules: what imports what."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PURE = ("app.reason", "app.node_state", "app.verdict")
BESIDE_THE_SPINE = ("app.settings", "app.settings_error", "app.variables", "app.log", "app.switches", "app.sentences")
ROOTS = ("app.__main__", "app.service")
EDGES = ("app.database", "app.http", "app.commands", "app.systemd")


def name_of(path: Path) -> str:
    """Give a module's dotted name; a package's is its folder's."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


MODULES = {name_of(path): path for path in (ROOT / "app").rglob("*.py")}


def imports_of(module: str) -> set[str]:
    """Give the dotted names a module imports."""
    found = set()
    for node in ast.walk(ast.parse(MODULES[module].read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {node.module or ""} if node.module != "app" else {f"app.{alias.name}" for alias in node.names}
    return found


def parts_imported_by(module: str) -> set[str]:
    """Name the parts of app, a module at the top or a folder, that a module imports; its own left out."""
    parts = {".".join(name.split(".")[:2]) for name in imports_of(module) if name.startswith("app.")}
    return parts - {".".join(module.split(".")[:2]), "app.__version__"}


def test_the_pure_core_imports_only_the_standard_library_and_itself() -> None:
    for module in PURE:
        others = {name for name in imports_of(module) if name.partition(".")[0] not in sys.stdlib_module_names}
        assert others <= set(PURE), module


@pytest.mark.parametrize(
    ("folder", "packages"),
    [("app.database.", {"aiomysql", "pymysql"}), ("app.http.", {"uvicorn", "fastapi", "starlette", "httptools"})],
)
def test_only_its_own_folder_imports_the_driver_or_the_web_stack(folder: str, packages: set[str]) -> None:
    importers = {name for name in MODULES if packages & {other.partition(".")[0] for other in imports_of(name)}}
    assert importers
    assert all(name.startswith(folder) for name in importers)


@pytest.mark.parametrize(
    ("part", "may_import"),
    [
        ("app.reason", set()),
        ("app.node_state", {"app.reason"}),
        ("app.verdict", {"app.reason", "app.node_state"}),
        ("app.deadline", set()),
        ("app.monitor", {*PURE, "app.deadline"}),
        ("app.switches", {"app.verdict"}),
        ("app.sentences", {"app.reason", "app.verdict"}),
        ("app.log", set()),
        ("app.systemd", {"app.verdict", "app.node_state"}),
        ("app.database", {"app.reason", "app.node_state", "app.deadline", "app.settings_error"}),
        ("app.settings_error", set()),
        ("app.variables", {"app.settings_error"}),
        ("app.settings", {"app.settings_error", "app.variables", "app.database", "app.monitor", "app.switches", *PURE}),
        ("app.http", {"app.database", "app.monitor", *PURE, *BESIDE_THE_SPINE}),
        ("app.commands", {"app.database", *PURE, *BESIDE_THE_SPINE}),
    ],
)
def test_arrows_run_from_the_edges_to_the_spine(part: str, may_import: set[str]) -> None:
    modules = [name for name in MODULES if f"{name}.".startswith(f"{part}.")]
    assert modules
    for module in modules:
        assert parts_imported_by(module) <= may_import, module


def test_every_part_has_its_arrows() -> None:
    # A new module at the top of app/ wants a row in the table above.
    parts = {".".join(name.split(".")[:2]) for name in MODULES} - {"app", *ROOTS}
    assert parts == {*PURE, *BESIDE_THE_SPINE, *EDGES, "app.monitor", "app.deadline"}


def test_nothing_imports_the_composition_roots_but_the_command_line_the_service() -> None:
    importers = {root: [name for name in MODULES if root in imports_of(name)] for root in ROOTS}
    assert importers == {"app.__main__": [], "app.service": ["app.__main__"]}


@pytest.mark.parametrize(
    ("program", "others"), [("app.__main__", set()), ("app.commands.clustercheck", {"pydantic", "pydantic_settings"})]
)
def test_the_commands_start_without_the_web_stack(program: str, others: set[str]) -> None:
    # It would double their start.
    printing = f"import sys, {program}; print(*sys.modules)"
    modules = subprocess.check_output([sys.executable, "-c", printing], cwd=ROOT, text=True, timeout=60).split()
    assert "aiomysql" in modules
    assert not {"fastapi", "starlette", "uvicorn", "uvloop", "prometheus_client", *others} & set(modules)
