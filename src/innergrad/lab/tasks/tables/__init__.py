"""The prior of tables, part by part. Parts are dataclasses with a weight; a task is a tuple of them for each sort.

    sort        base class   makes
    rows        Rows         correlated numbers, one for each row and node
    columns     Column       the column that a node is shown as, and what it means
    derived     Derived      a column from other columns
    functions   Function     the signal behind the labels
    noises      Noise        the noise of the labels
    labels      Label        the sort of number that a label is
    rules       ClassRule    classes from scores

Examples:
    >>> from innergrad import lab
    >>> sorted(lab.tables.Rows.kinds)
    ['clusters', 'equations', 'factors', 'independent', 'panel', 'walk']
    >>> straight = lab.TableRegression(d=5, functions=(lab.tables.LinearFunction(),))
"""

from innergrad.lab.tasks.tables.base import (
    Draws,
    Weighted,
    columns_of,
    gumbel,
    normal_cdf,
    reweighted,
    rows_of,
    select,
    standard,
)
from innergrad.lab.tasks.tables.columns import (
    AmountColumn,
    CategoryColumn,
    Column,
    CopyColumn,
    CountColumn,
    Derived,
    DummyColumn,
    FlagColumn,
    HeavyColumn,
    IntegerColumn,
    LogarithmColumn,
    NumberColumn,
    OrdinalColumn,
    ProductColumn,
    SkewedColumn,
    SquareColumn,
    SumColumn,
    UniformColumn,
)
from innergrad.lab.tasks.tables.functions import (
    AccountFunction,
    AdditiveFunction,
    Function,
    LinearFunction,
    NetworkFunction,
    NodeFunction,
    ProcessFunction,
    ProductFunction,
    Sheet,
    TreeFunction,
)
from innergrad.lab.tasks.tables.labels import (
    BoundedLabel,
    CensoredLabel,
    ClassRule,
    CountLabel,
    FlagLabel,
    Label,
    LargestClasses,
    PlainLabel,
    RoundedLabel,
    SkewedLabel,
    ThresholdClasses,
)
from innergrad.lab.tasks.tables.noise import (
    HeavyNoise,
    Noise,
    NormalNoise,
    SkewedNoise,
    Strength,
    UnequalNoise,
    student,
)
from innergrad.lab.tasks.tables.prior import Missing, TableClassification, TableRegression, Tables
from innergrad.lab.tasks.tables.rows import (
    ClusterRows,
    EquationRows,
    FactorRows,
    IndependentRows,
    PanelRows,
    Rows,
    WalkRows,
)

__all__ = [
    "AccountFunction",
    "AdditiveFunction",
    "AmountColumn",
    "BoundedLabel",
    "CategoryColumn",
    "CensoredLabel",
    "ClassRule",
    "ClusterRows",
    "Column",
    "CopyColumn",
    "CountColumn",
    "CountLabel",
    "Derived",
    "Draws",
    "DummyColumn",
    "EquationRows",
    "FactorRows",
    "FlagColumn",
    "FlagLabel",
    "Function",
    "HeavyColumn",
    "HeavyNoise",
    "IndependentRows",
    "IntegerColumn",
    "Label",
    "LargestClasses",
    "LinearFunction",
    "LogarithmColumn",
    "Missing",
    "NetworkFunction",
    "NodeFunction",
    "Noise",
    "NormalNoise",
    "NumberColumn",
    "OrdinalColumn",
    "PanelRows",
    "PlainLabel",
    "ProcessFunction",
    "ProductColumn",
    "ProductFunction",
    "RoundedLabel",
    "Rows",
    "Sheet",
    "SkewedColumn",
    "SkewedLabel",
    "SkewedNoise",
    "SquareColumn",
    "Strength",
    "SumColumn",
    "TableClassification",
    "TableRegression",
    "Tables",
    "ThresholdClasses",
    "TreeFunction",
    "UnequalNoise",
    "UniformColumn",
    "WalkRows",
    "Weighted",
    "columns_of",
    "gumbel",
    "normal_cdf",
    "reweighted",
    "rows_of",
    "select",
    "standard",
    "student",
]
