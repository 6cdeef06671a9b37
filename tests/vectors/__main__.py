"""Writes the files that are generated: python -m tests.vectors."""

from tests.vectors.files import FILES
from tests.wire.vectors import FOLDER

for file in FILES:
    (FOLDER / f"{file.name}.json").write_text(file.text())
    print(f"{file.name}.json: {len(file.cases)} cases")
