"""The house rules: what imports what."""

import ast
import sys
from pathlib import Path

APP = Path(__file__).parents[2] / "app"
PURE = ("node_state", "verdict")


def imports_of(module: str) -> set[str]:
    """Give the dotted names a module imports."""
    found = set()
    for node in ast.walk(ast.parse((APP / f"{module}.py").read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module or "")
    return found


def test_the_pure_core_imports_only_the_standard_library_and_itself() -> None:
    allowed = {f"app.{module}" for module in PURE}
    for module in PURE:
        others = {name for name in imports_of(module) if name.partition(".")[0] not in sys.stdlib_module_names}
        assert others <= allowed, module


def test_only_the_observer_imports_the_driver() -> None:
    importers = {
        path.stem
        for path in APP.glob("*.py")
        if any("mysql" in name.partition(".")[0] for name in imports_of(path.stem))
    }
    assert importers == {"observer"}


def test_nothing_imports_the_composition_root() -> None:
    assert not [path.stem for path in APP.glob("*.py") if "app.__main__" in imports_of(path.stem)]
