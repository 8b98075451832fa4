"""The weights of learners in files, in 32 bits or in fewer; and where a run takes its first ones from.

    32 bits   theta (S, P)
    16 bits   theta (S, P), float16
     8 bits   theta (S, M), float16: the first M columns, biases, gains, embeddings and positions
              theta_8 (S, P - M), int8, and scale_8 (S, (P - M) / 32), float16: the matrices of the blocks

In 8 bits, 32 neighbours share a scale s, their largest size over 127, and an entry is s times an integer from -127 to
127. So an entry is off by at most s / 2, and by what rounding s to 16 bits does. A matrix costs 8.5 bits an entry.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from innergrad.config import to_table
from innergrad.errors import InputError, JobError
from innergrad.lab import checkpoints
from innergrad.lab.experiments import Experiment
from innergrad.lab.layout import Layout
from innergrad.lab.learners.base import Learner

GROUP, LARGEST = 32, 127
BITS = (32, 16, 8)


def packed(theta: Tensor, plain: int, bits: int) -> dict[str, Tensor]:
    """theta (S, P) float32 as the tensors of a file. ``plain``: so many columns, the first, have 16 bits at least.

    P and ``plain`` are multiples of 32.
    """
    if bits not in BITS:
        raise InputError("weights are kept in 32, 16 or 8 bits", got=bits)
    if bits == 32:
        return {"theta": theta}
    if bits == 16:
        return {"theta": _half(theta)}
    groups = theta[:, plain:].unflatten(1, (-1, GROUP))
    scale = _half(groups.abs().amax(-1) / LARGEST)
    steps = torch.where(scale > 0, scale.float(), 1.0)[..., None]
    entries = (groups / steps).round().clamp(-LARGEST, LARGEST).to(torch.int8)
    return {"theta": _half(theta[:, :plain]), "theta_8": entries.flatten(1), "scale_8": scale}


def unpacked(tensors: Mapping[str, Tensor]) -> Tensor | None:
    """theta (S, P) float32 from the tensors of a file; None if they have no such form."""
    theta, entries, scale = (tensors.get(name) for name in ("theta", "theta_8", "scale_8"))
    if theta is None or theta.ndim != 2 or not theta.is_floating_point():
        return None
    if entries is None and scale is None:
        return theta.float()
    if entries is None or scale is None or entries.dtype != torch.int8 or not scale.is_floating_point():
        return None
    if entries.shape != (len(theta), GROUP * scale.shape[-1]) or scale.shape[:-1] != (len(theta),):
        return None
    matrices = entries.unflatten(1, (-1, GROUP)).float() * scale.float()[..., None]
    return torch.cat((theta.float(), matrices.flatten(1)), 1)


def _half(values: Tensor) -> Tensor:
    found = values.half()
    if not found.isfinite().all():
        raise JobError("weights that 16 bits do not hold")
    return found


# --------------------------------------------------------------------------------------------------------------- files


def theta_of(found: checkpoints.Checkpoint) -> Tensor:
    """The parameters of a checkpoint, (models, columns), whatever their precision is in the file."""
    theta = unpacked(found.tensors)
    if theta is None:
        raise checkpoints.Damaged(f"the checkpoint {found.path} is damaged", got="no theta, or one of no known form")
    return theta


def write_learner(
    folder: str | Path, learner: Learner, experiment: Experiment, step: int, *, bits: int = 16, model: int = 0
) -> Path:
    """One model of a stack as a checkpoint that ``load_learner`` takes, rounded to so many bits. No run resumes from
    it.
    """
    layout, named = Layout(learner), dict(learner.named_parameters())
    theta = layout.pack([named[name].detach()[model : model + 1].cpu() for name in layout.shapes])
    meta = {"experiments": [to_table(experiment)], "layout": layout.table}
    return checkpoints.save(folder, step, packed(theta, layout.others.stop, bits), meta, keep=1)


def weights_of(source: Learner | str | Path) -> tuple[Mapping[str, Any], Tensor, dict[str, Any]]:
    """Of a learner, a run or a checkpoint: names and shapes of the parameters (``Layout.table``), the parameters as one
    matrix (models, columns), and where they come from.
    """
    if isinstance(source, Learner):
        layout, named = Layout(source), dict(source.named_parameters())
        theta = layout.pack([named[name].detach() for name in layout.shapes])
        return layout.table, theta, {"from": f"a learner, {type(source).__name__}"}
    found = checkpoints.load(source)
    return found.meta.get("layout", {}), theta_of(found), {"from": Path(source).name, "step": found.step}
