"""The house rules: what imports what."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

ARROWS = {
    "app.text": set(),
    "app.table": set(),
    "app.deadline": set(),
    "app.verdict": {"app.verdict", "app.table", "app.text"},
    "app.monitor": {"app.monitor", "app.verdict", "app.deadline"},
    "app.settings": {"app.settings", "app.verdict", "app.table", "app.text"},
    "app.database": {
        *("app.database", "app.verdict", "app.deadline", "app.text"),
        *("app.settings.database", "app.settings.tls", "app.settings.error"),
    },
    "app.http": {
        "app.http",
        "app.database",
        "app.monitor",
        "app.settings",
        "app.verdict",
        "app.table",
        "app.text",
    },
    "app.commands": {
        "app.commands",
        "app.database",
        "app.settings",
        "app.verdict",
        "app.table",
        "app.text",
    },
    "app.service.log": set(),
    "app.service.preload": set(),
    "app.service.systemd": {"app.verdict"},
    "app.service.serve": {"app"},
    "app.__main__": {"app"},
}
"""What each room, or a module of one, may import of the project."""


def name_of(path: Path) -> str:
    """Give a module's dotted name; a package's is its folder's."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(
        ".__init__"
    )


MODULES = {name_of(path): path for path in (ROOT / "app").rglob("*.py")}


def imports_of(module: str) -> set[str]:
    """Give the dotted names a module imports."""
    found = set()
    for node in ast.walk(ast.parse(MODULES[module].read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= (
                {node.module or ""}
                if node.module != "app"
                else {f"app.{alias.name}" for alias in node.names}
            )
    return found


def is_in(name: str, room: str) -> bool:
    return f"{name}.".startswith(f"{room}.")


def test_the_verdict_imports_only_the_standard_library_itself_and_the_ground_floor() -> (
    None
):
    for module in MODULES:
        if is_in(module, "app.verdict"):
            others = {
                name
                for name in imports_of(module)
                if name.partition(".")[0] not in sys.stdlib_module_names
            }
            assert all(
                is_in(name, "app.verdict") or name in ("app.text", "app.table")
                for name in others
            ), module


@pytest.mark.parametrize(
    ("folder", "packages"),
    [
        ("app.database.", {"aiomysql", "pymysql"}),
        ("app.http.", {"uvicorn", "fastapi", "starlette", "httptools"}),
    ],
)
def test_only_its_own_folder_imports_the_driver_or_the_web_stack(
    folder: str, packages: set[str]
) -> None:
    importers = {
        name
        for name in MODULES
        if packages & {other.partition(".")[0] for other in imports_of(name)}
    }
    assert importers
    assert all(f"{name}.".startswith(folder) for name in importers)


def test_arrows_run_from_the_edges_to_the_core() -> None:
    for module, path in MODULES.items():
        if path.name != "__init__.py":
            (allowed,) = (
                allowed for room, allowed in ARROWS.items() if is_in(module, room)
            )
            for name in imports_of(module):
                if is_in(name, "app") and name != "app.__version__":
                    assert any(is_in(name, room) for room in allowed), (
                        f"{module} imports {name}"
                    )


def test_only_the_command_line_imports_what_runs_the_service() -> None:
    assert [name for name in MODULES if "app.service.serve" in imports_of(name)] == [
        "app.__main__"
    ]


STACK = {"fastapi", "starlette", "uvicorn", "uvloop", "prometheus_client"}


@pytest.mark.parametrize(
    ("program", "others"),
    [
        # The first verdict waits for it.
        ("app.service.serve", {"cryptography", "pydantic"}),
        ("app.__main__", {"aiomysql", "pydantic"}),
        ("app.commands.status", {"aiomysql"}),
        ("app.commands.check", set()),
    ],
)
def test_the_commands_start_without_the_web_stack(
    program: str, others: set[str]
) -> None:
    # It would double their start.
    printing = f"import sys, {program}; print(*sys.modules)"
    modules = subprocess.check_output(
        [sys.executable, "-c", printing], cwd=ROOT, text=True, timeout=60
    ).split()
    assert program in modules
    stack = STACK - {"uvicorn", "uvloop"} if "serve" in program else STACK
    assert not (stack | others) & set(modules)
