"""What the settings of a saved model say, read without torch: enough to tell whether a table fits the model."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from innergrad.cli.names import RUN_CONFIG, RUN_LOG
from innergrad.cli.places import near_path
from innergrad.errors import InputError
from innergrad.files import read_text
from innergrad.model.folder import CONFIG, WEIGHTS, not_a_model


@dataclass(frozen=True)
class Known:
    """A saved model: columns of inputs and of targets, the longest prompt, bounds that were declared; of gradient
    descent the loss and what the output passes through; whether it learns row by row, and has weights.
    """

    folder: Path
    d_x: int
    d_y: int
    n_examples: int
    x_bound: float | None = None
    y_bound: float | None = None
    loss: str = ""
    output: str = "linear"
    target: str = ""
    causal: bool = False
    weights: bool = False

    @property
    def classes(self) -> bool:
        """Targets are classes, not amounts."""
        return self.loss in ("logistic", "softmax")

    @property
    def free(self) -> bool:
        """Targets may be any numbers, so they can be scaled."""
        return not self.classes and self.output != "activation"


def known(folder: Path | None) -> Known:
    """The model in a folder. Who loads it checks everything else; a damaged one is loaded here, for that message."""
    if folder is None:
        raise InputError("the model folder is missing", hint="write one with `innergrad compile --out out/model`")
    if not (folder / CONFIG).is_file() or not (folder / WEIGHTS).is_file():
        run = (folder / RUN_CONFIG).is_file() or (folder / RUN_LOG).is_file()
        hint = "it is a run of the lab: innergrad evaluate measures it" if run else near_path(folder)
        raise not_a_model(folder, hint)
    try:
        return _read(folder, json.loads(read_text(folder / CONFIG)))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        from innergrad.transformer import load

        load(folder)
        raise InputError(f"{folder / CONFIG} cannot be read", got=str(error), hint="compile the model again") from error


def _read(folder: Path, config: dict[str, Any]) -> Known:
    sizes = {lane["name"]: math.prod(lane["shape"]) for lane in config["layout"]}
    options, algorithm = config["options"], config["algorithm"]
    loss = algorithm.get("loss", "")
    return Known(
        folder,
        _count(sizes["x"]),
        _count(sizes["y"]),
        _count(options["n_examples"]),
        _number(options["x_bound"]),
        _number(options["y_bound"]),
        loss if isinstance(loss, str) else "",
        str(algorithm.get("output", "linear")),
        str(options["target"]),
        bool(config["prompt"]["causal"]),
        any(lane["role"] == "weight" for lane in config["layout"]),
    )


def _count(value: Any) -> int:
    if type(value) is not int or value < 1:
        raise ValueError(value)
    return value


def _number(value: Any) -> float | None:
    if value is None:
        return None
    if type(value) not in (int, float) or not value > 0:
        raise ValueError(value)
    return float(value)
