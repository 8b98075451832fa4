"""The notebooks run, without Jupyter; their outputs are stored, are small, and hold no error."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import pytest

FOLDER = Path(__file__).parent.parent / "docs" / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
NAMES = ["1-the-idea", "2-inside-a-compiled-transformer", "3-train-and-evaluate"]


def cells(path: Path, kind: str) -> list[dict[str, Any]]:
    return [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == kind]


def source(cell: dict[str, Any]) -> str:
    return "".join(cell["source"])


def test_there_are_three() -> None:
    assert [path.stem for path in NOTEBOOKS] == NAMES


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_code_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    plt.switch_backend("agg")  # no windows
    session: dict[str, object] = {}
    for cell in cells(path, "code"):
        exec(compile(source(cell), path.name, "exec"), session)
    plt.close("all")


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_outputs_are_stored(path: Path) -> None:
    """Every cell was run, in order, from the first; what it printed or showed is there, and is no error."""
    code = cells(path, "code")
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    outputs = [output for cell in code for output in cell["outputs"]]
    assert not [output for output in outputs if output["output_type"] == "error" or output.get("name") == "stderr"]
    assert any("image/png" in output.get("data", {}) for output in outputs)
    assert len(path.read_bytes()) < 500_000


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_links_lead_somewhere(path: Path) -> None:
    found = [link for cell in cells(path, "markdown") for link in re.findall(r"\]\(([^)#\s]+)", source(cell))]
    assert len(found) >= 3
    assert [link for link in found if not (FOLDER / link).exists()] == []


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_words_stand_between_the_cells(path: Path) -> None:
    kinds = [cell["cell_type"] for cell in json.loads(path.read_text())["cells"]]
    assert kinds[0] == "markdown"
    assert all("markdown" in pair for pair in pairwise(kinds))
    assert sum(len(source(cell).split()) for cell in cells(path, "markdown")) > 200
