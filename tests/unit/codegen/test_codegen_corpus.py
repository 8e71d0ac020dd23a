"""Codegen page, section 3: whatever a server lists, a module is signatures and fixed calls, or a refusal."""

import ast
import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from support import effort
from treadle.codegen import TARGETS, Target, generate, lint
from treadle.codegen.functions import SURFACE_LIMIT
from treadle.errors import GenerationRefused, NameCollision, SanitizerBreach, SurfaceTooLarge, TooManyTools
from treadle.text import FORBIDDEN
from unit.codegen import residue
from unit.codegen.corpus import NAMES, named, random_listing, tool, typed
from unit.codegen.loading import listed

CORPUS = named()
CHECKS = {"gleam": residue.check_gleam, "python": residue.check_python, "typescript": residue.check_typescript}
RANDOM = int(os.environ.get("RANDOM_LISTINGS", "150"))
RANDOM_MODULES = RANDOM // 3

REFUSED = {
    "700 required parameters": SurfaceTooLarge,
    "700 optional parameters": SurfaceTooLarge,
    "257 tools": TooManyTools,
    "a collision": NameCollision,
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", sorted(CORPUS.keys() - REFUSED.keys()))
def test_a_hostile_listing_gives_the_allowed_shapes_in_bounded_work_and_size(name: str, target: Target) -> None:
    tools = listed(CORPUS[name])
    made = effort.within(500_000, lambda: generate("s", tools, target))
    assert len(made.surface.encode()) <= SURFACE_LIMIT
    CHECKS[target](made.source)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", sorted(REFUSED))
def test_a_listing_past_a_ceiling_is_refused_with_a_sentence(name: str, target: Target) -> None:
    with pytest.raises(REFUSED[name], match="server s: no module is generated"):
        generate("s", listed(CORPUS[name]), target)


@pytest.mark.parametrize("target", TARGETS)
def test_random_hostile_listings_never_give_more_than_the_allowed_shapes(target: Target) -> None:
    for seed in range(RANDOM):
        try:
            made = generate('s" @x\n', listed(random_listing(seed)), target, asynchronous=seed % 2 == 0)
        except SanitizerBreach:
            raise  # the escapes hold: the backstop is for the day on which they do not
        except GenerationRefused:
            continue
        CHECKS[target](made.source)


@pytest.mark.parametrize("target", TARGETS)
def test_generated_text_holds_no_forbidden_code_point_but_line_ends(target: Target) -> None:
    made = generate("s", listed(CORPUS["code in descriptions"]), target)
    assert not re.search(f"[{FORBIDDEN}\ud800-\udfff]", (made.source + made.surface).replace("\n", ""))


def _literals(target: Target, line: str) -> list[str]:
    """The string literals of ``line``, read as the target reads them."""
    if target == "python":
        return [str(node.value) for node in ast.walk(ast.parse(line)) if isinstance(node, ast.Constant)]
    return [
        re.sub(r"\\u\{([0-9a-f]+)\}|\\(.)", lambda hit: hit[2] or chr(int(hit[1], 16)), literal[1:-1])
        for literal in re.findall(r'"(?:[^"\\]|\\.)*"', line)
    ]


@pytest.mark.parametrize(
    ("target", "call"),
    [("gleam", r"internal\.invoke\(.*"), ("python", r"invoke\((?s:.*)\n    \)"), ("typescript", r"invoke<.*")],
)
def test_wire_names_are_the_originals_whatever_they_hold(target: Target, call: str) -> None:
    # A lone surrogate is no text of Gleam; the wire does not carry one either.
    names = [name for name in NAMES if "\ud800" not in name]
    tools = listed([tool("t\n", typed(*names, **{name: {"type": "string"} for name in names}))])
    source = generate('s"\\', tools, target).source
    found = re.findall(call, source)
    assert len(found) == 1
    assert _literals(target, found[0]) == ['s"\\', "t\n", *names]


@pytest.mark.parametrize("target", TARGETS)
def test_parameters_that_no_surface_could_name_are_refused_before_any_is_written(target: Target) -> None:
    count = 20_000
    tools = listed([tool("t", typed(**{f"p{index}": {} for index in range(count)}))])
    with pytest.raises(SurfaceTooLarge, match=f"at least {16 * count} bytes"):
        effort.within(30 * count, lambda: generate("s", tools, target))


@pytest.mark.parametrize("target", TARGETS)
def test_the_same_listing_in_another_order_gives_the_same_bytes(target: Target) -> None:
    tools = listed(CORPUS["keywords"])
    assert generate("s", tools, target) == generate("s", tools[::-1], target)


@pytest.mark.parametrize("name", sorted(CORPUS))
def test_lint_has_findings_with_clean_messages_for_any_listing_in_bounded_work(name: str) -> None:
    tools = listed(CORPUS[name])
    for finding in effort.within(2_000_000, lambda: list(lint("s", tools))):
        assert "\n" not in finding.message


@pytest.fixture(scope="module")
def python_modules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of Python modules: every hostile listing that gives one, and some random ones."""
    folder = tmp_path_factory.mktemp("modules")
    listings = [*CORPUS.values(), *(random_listing(seed) for seed in range(RANDOM_MODULES))]
    for index, tools in enumerate(listings):
        try:
            made = generate("s", listed(tools), "python", asynchronous=index % 2 == 0)
        except GenerationRefused:
            continue
        (folder / f"m{index}.py").write_text(made.source)
    return folder


def _run(*arguments: str) -> None:
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, (done.stdout + done.stderr)[-4_000:]


def _ruff(*arguments: str) -> None:
    _run(str(Path(sysconfig.get_path("scripts")) / "ruff"), *arguments, "--isolated", "--target-version", "py311")


def test_python_modules_are_formatted_by_construction(python_modules: Path) -> None:
    _ruff("format", "--diff", str(python_modules))


def test_python_modules_pass_the_linter(python_modules: Path) -> None:
    _ruff("check", "--select", "F,E4,E7,E9,I", str(python_modules))


def test_python_modules_import_without_side_effects_and_their_annotations_resolve(python_modules: Path) -> None:
    program = """
import importlib, pathlib, sys, typing, warnings
warnings.simplefilter("error")
folder = pathlib.Path(sys.argv[1])
sys.path.insert(0, str(folder))
import treadle_client.facade
def refuse(event, arguments):
    if armed and event in {"open", "socket.connect", "subprocess.Popen", "os.system"}:
        if event != "open" or not str(arguments[0]).startswith(str(folder)):
            raise RuntimeError(event)
armed = True
sys.addaudithook(refuse)
sys.dont_write_bytecode = True
for path in sorted(folder.glob("*.py")):
    module = importlib.import_module(path.stem)
    for value in list(vars(module).values()):
        if getattr(value, "__module__", "") == path.stem and callable(value):
            typing.get_type_hints(value)
"""
    _run(sys.executable, "-c", program, str(python_modules))
