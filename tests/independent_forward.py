"""A second forward pass of a saved model, in numpy. It reads nothing but the folder and imports nothing of ours."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file


def forward(folder: Path, lanes: dict[str, np.ndarray]) -> np.ndarray:
    """lanes: name -> (T, ...) or (...) if equal in all tokens; missing lanes are zero. Returns the stream (T, D)."""
    config, tensors = json.loads((folder / "config.json").read_text()), load_file(folder / "weights.safetensors")
    tokens = len(lanes["x"])
    D = sum(int(np.prod(lane["shape"])) for lane in config["layout"])
    h = np.zeros((tokens, D))
    for lane in config["layout"]:
        size = int(np.prod(lane["shape"]))
        h[:, lane["offset"] : lane["offset"] + size] = np.reshape(lanes.get(lane["name"], np.zeros(size)), (-1, size))

    def matrices(prefix: str, layer: dict) -> dict[str, np.ndarray]:
        dense = {name: np.zeros(shape) for name, shape in layer["shapes"].items()}
        for name, full in dense.items():
            full[tuple(tensors[f"{prefix}.{name}.index"])] = tensors[f"{prefix}.{name}.value"]
        return dense

    def apply(h: np.ndarray, layer: dict, W: dict[str, np.ndarray]) -> np.ndarray:
        if layer["kind"] == "mlp":
            return h + np.maximum(h @ W["W_1"][0].T, 0) @ W["W_2"][0].T
        out = h.copy()
        for W_Q, W_K, W_V, W_O in zip(W["W_Q"], W["W_K"], W["W_V"], W["W_O"], strict=True):
            q, k, v = h @ W_Q.T, h @ W_K.T, h @ W_V.T @ W_O.T
            out += (
                np.maximum(q @ k.T, 0) @ v / tokens
                if layer["kind"] == "attention"
                else (q * k).sum(1, keepdims=True) * v
            )
        return out

    for i, loop in enumerate(config["body"]):
        block = [(layer, matrices(f"body.{i}.{j}", layer)) for j, layer in enumerate(loop["layers"])]
        for _ in range(loop["count"]):
            for layer, W in block:
                h = apply(h, layer, W)
    for j, layer in enumerate(config["readout"]):
        h = apply(h, layer, matrices(f"readout.{j}", layer))
    return h
