"""What can be rented, and for how much."""

from __future__ import annotations

import pytest

from dlq_master.policy.priced.catalogue import Catalogue, NodeType
from unit.master.policy.priced.drawing import TABLE_2


def test_table_2_has_the_smallest_type_for_each_number_of_gpus() -> None:
    k80, m60 = TABLE_2.kinds.index("K80"), TABLE_2.kinds.index("M60")
    names = [TABLE_2.types[n].name for n in TABLE_2.smallest[k80, 1:]]
    assert names == ["NC6", "NC12", "NC24", "NC24", "NC48", "NC48", "NC48", "NC48"]
    assert TABLE_2.price[m60].tolist() == [0, 0.62, 1.24, 2.48, 2.48, 4.96, 4.96, 4.96, 4.96]
    assert TABLE_2.most.tolist() == [8, 8]


def test_the_synthetic_types_of_table_2_cost_what_the_table_says_not_what_the_text_says() -> None:
    price = {found.name: found.price_per_hour for found in TABLE_2.types}
    assert price["NV48"] == 2 * price["NV24"]
    assert price["NC48"] == pytest.approx(8 * price["NC6"])  # 4.48, not 2 x 2.25 = 4.50


def test_a_larger_type_is_taken_where_it_is_cheaper() -> None:
    small, large = NodeType("small", "A", 2, 9.0), NodeType("large", "A", 4, 7.0)
    made = Catalogue((small, large))
    assert made.smallest[0].tolist() == [-1, 1, 1, 1, 1]
    assert made.room[0].tolist() == [0, 4, 4, 4, 4]


def test_what_the_provider_takes_back_is_not_there_any_more_and_places_stay() -> None:
    made = Catalogue(
        (
            NodeType("a4", "A", 4, 1.0, until_s=10),
            NodeType("b", "B", 1, 1.0),
            NodeType("a2", "A", 2, 9.0, until_s=20),
        )
    )
    assert made.at(9) is made
    later = made.at(10)
    assert (later.kinds, later.offered, later.most.tolist()) == (("A", "B"), (1, 2), [2, 1])
    assert later.smallest.tolist() == [[-1, 2, 2, -1, -1], [-1, 1, -1, -1, -1]]
    assert later.at(11) is later
    assert later.at(20).most.tolist() == [0, 1]
    with pytest.raises(ValueError, match="at least one node type"):
        Catalogue((NodeType("a", "A", 1, 1.0, until_s=10),)).at(10)


def test_a_type_without_gpus_is_refused() -> None:
    with pytest.raises(ValueError, match="node type a has no GPUs"):
        Catalogue((NodeType("a", "A", 0, 1.0),))
