"""Writes the golden fixtures: for every conformance case the saved folder, its layers, its cost and what it learns.

They were made once, and are what later versions are compared with: folders that were saved then load now, and shipped
programs keep their layers. Run it for cases that are not there yet: ``python tests/golden/make.py``; it replaces none.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent.parent / "examples")]

FACTS = HERE / "facts.json"
STAMP = (1980, 1, 1, 0, 0, 0)  # equal folders make equal archives


def slug(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")


def archive(name: str) -> Path:
    return HERE / f"{slug(name)}.zip"


def layers(program: Any) -> list[Any]:
    """Of every loop its count and layers, then the read-out: [[count, [[name, kind], ...]], ..., [0, [...]]]."""
    parts = [(loop.count, loop.layers) for loop in program.body] + [(0, program.readout)]
    return [[count, [[layer.name, layer.kind] for layer in part]] for count, part in parts]


def learned(tf: Any, prompt: dict[str, Any]) -> dict[str, Any]:
    """The last weights and the predictions of a run on a prompt."""
    run = tf.run(**prompt, executor="plain")
    return {"weights": run.weights[..., -1, :].tolist(), "predictions": run.predictions.tolist()}


def facts(tf: Any, prompt: dict[str, Any]) -> dict[str, Any]:
    cost = tf.cost()
    ramps = {name: [high - low for low, high in f.ramps] for name, f in tf.approximants.items() if f.ramps}
    return {
        **({"ramps": ramps} if ramps else {}),
        "lanes": [lane.name for lane in tf.program.stream.lanes],
        "layers": layers(tf.program),
        "cost": cost.totals(),
        "heads": [row.heads for row in cost.rows],
        "learned": learned(tf, prompt),
    }


def main() -> None:
    from cases import CASES

    known = json.loads(FACTS.read_text()) if FACTS.is_file() else {}
    for name, case in CASES.items():
        if name in known:
            continue
        with tempfile.TemporaryDirectory() as folder:
            case.tf.save(folder)
            with zipfile.ZipFile(archive(name), "w") as archived:
                for part in sorted(Path(folder).iterdir()):
                    entry = zipfile.ZipInfo(part.name, STAMP)
                    archived.writestr(entry, part.read_bytes(), zipfile.ZIP_LZMA)
        known[name] = facts(case.tf, {key: value[0] for key, value in case.prompts(1).items()})
        print(name)
    rows = (f"{json.dumps(name)}: {json.dumps(known[name])}" for name in known)
    FACTS.write_text("{\n" + ",\n".join(rows) + "\n}\n")


if __name__ == "__main__":
    main()
