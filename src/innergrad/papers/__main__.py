"""The part of an experiment that needs a GPU: trains and measures a study, and leaves its records in a folder.

    PYTHONPATH=src python3 -m innergrad.papers networks-softmax --out FOLDER --seconds 560

``innergrad figures`` draws and judges what is in the folder. Needs torch, numpy and safetensors only.
"""

from __future__ import annotations

import time

BEGAN = time.monotonic()  # before torch is imported, which takes seconds

import argparse  # noqa: E402
import math  # noqa: E402
import sys  # noqa: E402
from pathlib import Path  # noqa: E402

import torch  # noqa: E402

from innergrad.errors import InputError, JobError  # noqa: E402
from innergrad.papers.catalogue import STUDIES  # noqa: E402
from innergrad.papers.frame import Clock, Run  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", choices=list(STUDIES))
    parser.add_argument("--out", type=Path, required=True, help="a folder for records and weights")
    parser.add_argument("--seconds", type=float, default=math.inf, help="everything ends within these")
    parser.add_argument("--steps", type=int, help="training ends there at the latest; all that are planned by default")
    parser.add_argument("--stages", nargs="+", default=[], help="some of them; all by default")
    parser.add_argument("--size", choices=("full", "small", "quick", "tiny"), default="full")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    given = parser.parse_args()
    if given.steps is not None and given.steps < 1:
        parser.error(f"--steps is at least 1; got {given.steps}")
    clock = Clock(given.seconds, BEGAN)
    study = STUDIES[given.study]
    if given.size not in study.sizes:
        parser.error(f"{given.study} has no {given.size} sizes; it has {', '.join(study.sizes)}")
    run = Run(
        study, given.size, given.out, given.device, clock, lambda line: print(line, flush=True), steps=given.steps
    )
    try:
        done = study.run(run, given.stages)
    except (InputError, JobError) as error:
        print(f"innergrad.papers: {error}", file=sys.stderr)
        sys.exit(2 if isinstance(error, InputError) else 1)
    words = "all stages came to their ends" if done else "there was no time for the rest; the same command goes on"
    print(f"{clock.spent:.0f} s: {words}")


if __name__ == "__main__":
    main()
