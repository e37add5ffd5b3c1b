"""The size of the house: how many files, how long, how far apart. Layers are the import linter's (test_layers.py)."""

import ast
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).parent.parent
PIPELINE = sorted((ROOT / "pipeline").rglob("*.py"))


@pytest.fixture(scope="module")
def imports():
    """The modules of ours that each of our modules imports when it is used."""
    graph = grimp.build_graph("pipeline", "flows", exclude_type_checking_imports=True, cache_dir=None)
    return {module: graph.find_modules_directly_imported_by(module) for module in sorted(graph.modules)}


def chain_from(module, imports, known, above=()):
    """The longest chain of imports that begins with a module."""
    assert module not in above, f"modules import each other: {' -> '.join((*above, module))}"
    if module not in known:
        below = (chain_from(each, imports, known, (*above, module)) for each in sorted(imports[module]))
        known[module] = (module, *max(below, key=len, default=()))
    return known[module]


def test_no_chain_of_imports_is_longer_than_20_modules(imports):
    known = {}
    longest = max((chain_from(module, imports, known) for module in imports), key=len)
    assert len(longest) <= 20, " -> ".join(longest)


def test_no_module_imports_more_than_22_of_ours(imports):
    assert {module: len(found) for module, found in imports.items() if len(found) > 22} == {}


def test_modules_of_pipeline_stand_in_folders():
    loose = {path.stem for path in (ROOT / "pipeline").glob("*.py")} - {"__init__"}
    assert loose == {"errors", "methods", "plugins", "types"}


def test_no_file_is_longer_than_400_lines():
    paths = [*PIPELINE, *(ROOT / "flows").rglob("*.py")]
    lengths = {str(path.relative_to(ROOT)): path.read_text().count("\n") for path in paths}
    assert {name: n for name, n in lengths.items() if n > 400} == {}


def test_functions_are_short():
    """Without docstrings: half of them at most 5 lines long, nine in ten at most 14, none above 49."""
    lengths = sorted(length for path in PIPELINE for length in function_lengths(path))
    assert lengths[len(lengths) // 2] <= 5
    assert lengths[9 * len(lengths) // 10] <= 14
    assert lengths[-1] <= 49


def function_lengths(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0]
            documented = ast.get_docstring(node) is not None
            yield node.end_lineno - node.lineno + 1 - documented * (first.end_lineno - first.lineno + 1)
