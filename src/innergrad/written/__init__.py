"""What a column of text holds: numbers with units, dates, yes or no, categories; and its cells as values."""

from innergrad.written.dates import are_compact_days, day_of, day_words, hour_of
from innergrad.written.numbers import (
    decimal_mark,
    is_missing,
    mixture,
    number_alone,
    number_of,
    parsed,
    scales,
    unit_of_others,
)
from innergrad.written.plans import (
    Plan,
    Task,
    Value,
    absent,
    answer,
    answers,
    dates_of,
    numbers_of,
    plan,
    span,
    task_of,
)

__all__ = [
    "Plan",
    "Task",
    "Value",
    "absent",
    "answer",
    "answers",
    "are_compact_days",
    "dates_of",
    "day_of",
    "day_words",
    "decimal_mark",
    "hour_of",
    "is_missing",
    "mixture",
    "number_alone",
    "number_of",
    "numbers_of",
    "parsed",
    "plan",
    "scales",
    "span",
    "task_of",
    "unit_of_others",
]
