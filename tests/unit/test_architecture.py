"""The house rules: what imports what."""

import ast
import sys
from pathlib import Path

APP = Path(__file__).parents[2] / "app"
MODULES = [str(path.relative_to(APP).with_suffix("")) for path in APP.rglob("*.py")]
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
    importers = {module for module in MODULES if any("mysql" in name.partition(".")[0] for name in imports_of(module))}
    assert importers == {"database/observer"}


def test_nothing_imports_the_composition_root() -> None:
    assert not [module for module in MODULES if "app.__main__" in imports_of(module)]
