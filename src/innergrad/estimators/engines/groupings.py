"""More classes than a learner takes: it is asked for groups of them, several times, and the answers are put together.

A *grouping* puts every class into one of a few groups. The learner then answers with the chances of the groups. Of
several groupings at random, almost any two classes are in different groups somewhere.
"""

from __future__ import annotations

import numpy as np

GROUPINGS = 8
ROUNDS = 100


def groupings(classes: int, groups: int, seed: int, count: int = GROUPINGS) -> np.ndarray:
    """(count, classes): the group of each class. Groups are equally large, or differ by one."""
    rng = np.random.default_rng(seed)
    return np.stack([rng.permutation(classes) % groups for _ in range(count)])


def combined(answers: np.ndarray, of: np.ndarray, shares: np.ndarray) -> np.ndarray:
    """Chances of the classes, (m, C), of those of their groups.

    They are the most likely ones if every answer is a count of draws, found by expectation maximisation: each round
    gives a group's chance to its classes in the proportions of the round before. Classes that no answer tells apart
    keep the proportions of ``shares``.

    Args:
        answers: (groupings, m, groups).
        of: (groupings, C), the group of each class.
        shares: (C,), how frequent the classes are.
    """
    count, m, groups = answers.shape
    member = np.concatenate([np.eye(groups)[row] for row in of], 1)  # (C, groupings * groups)
    told = answers.transpose(1, 0, 2).reshape(m, count * groups)
    chances = np.repeat(shares[None], m, 0)
    for _ in range(ROUNDS):
        expected = chances @ member
        ratio = np.divide(told, expected, out=np.zeros_like(told), where=expected > 0)
        chances = chances * (ratio @ member.T) / count
    found: np.ndarray = chances
    return found
