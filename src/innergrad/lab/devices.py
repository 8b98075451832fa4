"""The device that something runs on."""

from __future__ import annotations

import torch

from innergrad.errors import InputError


def pick_device(name: torch.device | str | None = None) -> torch.device:
    """The device of this name, if it is here; None: the GPU if there is one, else the CPU."""
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    here = ", ".join(["cpu", *(["cuda"] if gpus else []), *(f"cuda:{i}" for i in range(gpus))])
    try:
        device = torch.device(name or ("cuda" if gpus else "cpu"))
    except RuntimeError as error:
        raise InputError("unknown device", got=repr(name), allowed=here) from error
    if device.type not in ("cpu", "cuda"):
        raise InputError("unknown device", got=repr(str(name)), allowed=here)
    if device.type == "cuda" and (device.index or 0) >= gpus:
        raise InputError("there is no such GPU", got=repr(str(name)), allowed=here)
    return device
