"""Write anew what is made from the definitions: ``python -m treadle.config FILE...``.

A file that ends in ``.json`` becomes the JSON schema; of any other the generated part is replaced.
"""

import sys
from pathlib import Path

from treadle.config.reference import insert
from treadle.config.schema import render

for file in map(Path, sys.argv[1:]):
    file.write_text(render() if file.suffix == ".json" else insert(file.read_text()))
