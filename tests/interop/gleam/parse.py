"""Parses every file of a folder with the tree-sitter grammar of Gleam; prints a JSON map of file to complaint."""

import json
import sys
from pathlib import Path

from tree_sitter_language_pack import get_parser

ALLOWED = {"comment", "module_comment", "statement_comment", "import", "function"}

parser = get_parser("gleam")
failures = {}
for path in sorted(Path(sys.argv[1]).iterdir()):
    root = parser.parse(path.read_bytes()).root_node
    kinds = {child.type for child in root.children}
    if root.has_error:
        failures[path.name] = "it does not parse"
    elif not kinds <= ALLOWED:
        failures[path.name] = f"it holds {sorted(kinds - ALLOWED)}"
print(json.dumps(failures))
