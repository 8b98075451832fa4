"""Things by name: what is found, what is said of what is not, and who may take a name."""

from __future__ import annotations

import pytest

import innergrad as ig
from innergrad.algorithms import ALGORITHMS
from innergrad.errors import InputError, Registry
from innergrad.targets import TARGETS

FRUITS = Registry("fruit", {"apple": 1, "pear": 2}, hint="or one of your own")


def test_a_registry_is_a_dictionary() -> None:
    assert FRUITS == {"apple": 1, "pear": 2}
    assert ("apple" in FRUITS, list(FRUITS), FRUITS["pear"]) == (True, ["apple", "pear"], 2)
    assert FRUITS.find("pear") == 2


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("aple", "unknown fruit; got 'aple'; allowed: apple, pear; did you mean apple?; or one of your own"),
        ("fig", "unknown fruit; got 'fig'; allowed: apple, pear; or one of your own"),
        (3, "unknown fruit; got 3; allowed: apple, pear; or one of your own"),
        (["apple"], "unknown fruit; got ['apple']; allowed: apple, pear; did you mean apple?; or one of your own"),
        (None, "unknown fruit; got None; allowed: apple, pear; or one of your own"),
    ],
)
def test_an_unknown_name_is_an_error_that_teaches(name: object, words: str) -> None:
    with pytest.raises(InputError) as caught:
        FRUITS.find(name)
    assert str(caught.value) == words


def test_own_things_come_first_and_leave_the_registry_as_it_is() -> None:
    own = FRUITS.with_own({"pear": 5, "fig": 6})
    assert (own.find("apple"), own.find("pear"), own.find("fig")) == (1, 5, 6)
    assert dict(FRUITS) == {"apple": 1, "pear": 2}
    with pytest.raises(InputError, match=r"unknown fruit; got 'kiwi'; allowed: apple, pear, fig; or one of your own"):
        own.find("kiwi")


def test_a_class_that_is_defined_again_replaces_itself_and_no_other() -> None:
    def cell() -> type:
        class Plum:
            pass

        return Plum

    class Cherry:
        pass

    trees: Registry[type] = Registry("kind", {})
    first, second = cell(), cell()
    trees.add("stone", first)
    trees.add("stone", second)
    assert trees["stone"] is second is not first
    with pytest.raises(InputError, match=r"two classes of kind 'stone'; got .*cell.<locals>.Plum and .*Cherry; give"):
        trees.add("stone", Cherry)
    with pytest.raises(InputError, match=r"only a class is added; got 3; registry\[name\] = it"):
        FRUITS.add("fig", 3)
    assert trees["stone"] is second
    assert "fig" not in FRUITS


@pytest.mark.parametrize(
    ("registry", "known"), [(ig.ACTIVATIONS, "tanh"), (ig.LOSSES, "squared"), (TARGETS, "relu"), (ALGORITHMS, "adam")]
)
def test_public_registries(registry: Registry[object], known: str) -> None:
    """Mappings, as they always were."""
    assert registry.find(known) is registry[known] is dict(registry.items())[known]
    assert known in registry
    with pytest.raises(InputError, match=f"got '{known}_'.*did you mean {known}"):
        registry.find(f"{known}_")
