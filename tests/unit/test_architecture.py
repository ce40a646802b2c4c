"""The house rules: what imports what."""

import ast
import sys
from pathlib import Path

import pytest

from harness.process import output_of
from tests.unit.manifests import ROOT

ARROWS = {
    "app.text": "",
    "app.kinds": "",
    "app.deadline": "",
    "app.threads": "",
    "app.verdict": "app.kinds app.text",
    "app.monitor": "app.verdict app.deadline",
    "app.settings": "app.verdict app.kinds app.text dotenv",
    "app.database": """
        app.verdict app.deadline app.text app.threads aiomysql pymysql cryptography
        app.settings.database app.settings.tls app.settings.error
    """,
    "app.http": """
        app.database app.monitor app.settings app.verdict app.kinds
        app.text fastapi prometheus_client pydantic uvicorn
    """,
    "app.commands": """
        app.database app.settings app.verdict app.kinds app.text
        app.threads pydantic pydantic_core
    """,
    "app.service.giving_way": "",
    "app.service.log": "",
    "app.service.systemd": "app.verdict",
    "app.service.serve": "app uvloop",
    "app.service.reload": """
        app.database app.deadline app.http app.service app.verdict app.settings.error
    """,
    "app.service.successor": "app.http app.verdict pydantic pydantic_core",
    "app.__main__": "app",
}
"""What each room, or a module of one, may import beside itself and the standard library."""


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
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def is_in(name: str, room: str) -> bool:
    return f"{name}.".startswith(f"{room}.")


def test_arrows_run_from_the_edges_to_the_core() -> None:
    for module, path in MODULES.items():
        if path.name != "__init__.py":
            ((room, others),) = (
                (room, others) for room, others in ARROWS.items() if is_in(module, room)
            )
            for name in imports_of(module) - {"app.__version__"}:
                assert name.partition(".")[0] in sys.stdlib_module_names or any(
                    is_in(name, allowed) for allowed in (room, *others.split())
                ), f"{module} imports {name}"


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
    modules = output_of(sys.executable, "-c", printing, cwd=ROOT).split()
    assert program in modules
    stack = STACK - {"uvicorn", "uvloop"} if "serve" in program else STACK
    assert not (stack | others) & set(modules)
