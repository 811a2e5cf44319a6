"""What is wrong with GPUs, judged: one table, an operator's own words, and when it is over."""

import pytest

from dlq_master.model.nodes.gpu_health import (
    ACTIONS,
    Action,
    Cleared,
    GpuCondition,
    Symptom,
    actions_of,
    after_boot,
    judge,
)

UUIDS = {0: "GPU-a", 1: "GPU-b"}


def judged(
    told: dict[int, tuple[Symptom, ...]],
    before: tuple[GpuCondition, ...] = (),
    cleared: tuple[Cleared, ...] = (),
    **words: str,
) -> tuple[GpuCondition, ...]:
    return judge(before, told, uuids=UUIDS, cleared=cleared, actions=actions_of(words))


def one(code: str, time_s: float = 10.0) -> dict[int, tuple[Symptom, ...]]:
    return {0: (Symptom(code, time_s),), 1: ()}


@pytest.mark.parametrize(
    ("code", "action"),
    [
        ("xid_13", Action.NONE),
        ("xid_31", Action.NONE),
        ("xid_43", Action.NONE),
        ("xid_60", Action.NONE),
        ("xid_48", Action.RESET),
        ("xid_63", Action.MONITOR),
        ("xid_64", Action.RESET),
        ("xid_79", Action.DRAIN),
        ("xid_94", Action.MONITOR),
        ("xid_95", Action.RESET),
        ("xid_119", Action.RESET),
        ("row_remap_failed", Action.RMA),
        ("thermal_slowdown", Action.MONITOR),
        ("mig_mode", Action.WAIT),
    ],
)
def test_the_table_has_the_buckets_of_the_catalogue(code: str, action: Action) -> None:
    assert ACTIONS[code] is action


def test_a_gpu_in_parts_is_given_out_where_an_operator_says_so() -> None:
    (refused,) = judged(one("mig_mode"))
    (given,) = judged(one("mig_mode"), mig_mode="monitor")
    assert (refused.withholds, given.withholds) == (True, False)


def test_an_applications_own_fault_is_no_condition() -> None:
    assert judged(one("xid_31")) == ()


def test_a_symptom_nobody_knows_is_shown_and_costs_no_gpu() -> None:
    (found,) = judged(one("xid_999"))
    assert (found.action, found.withholds) == (Action.MONITOR, False)


def test_operators_may_say_otherwise_and_mistakes_are_named() -> None:
    (found,) = judged(one("xid_31"), xid_31="reset")
    assert found.withholds
    assert judged(one("xid_79"), xid_79="none") == ()
    with pytest.raises(ValueError, match="xid_x"):
        actions_of({"xid_x": "none"})
    with pytest.raises(ValueError, match="row_remap_pendin"):
        actions_of({"row_remap_pendin": "none"})
    with pytest.raises(ValueError, match="explode"):
        actions_of({"xid_79": "explode"})


def test_what_is_told_again_keeps_its_since() -> None:
    first = judged(one("row_remap_pending", 10.0))
    again = judged(one("row_remap_pending", 99.0), first)
    assert [it.since_s for it in again] == [10.0]


def test_a_fact_that_withholds_nothing_is_over_when_it_is_not_told() -> None:
    assert judged({0: (), 1: ()}, judged(one("thermal_slowdown"))) == ()


def test_a_gpu_that_somebody_else_uses_is_back_when_they_have_left() -> None:
    held = judged(one("held"))
    assert held[0].withholds
    assert judged({0: (), 1: ()}, held) == ()


@pytest.mark.parametrize("code", ["xid_48", "gpu_is_lost", "row_remap_failed"])
def test_what_needs_a_reset_or_a_new_part_does_not_go_away_by_itself(code: str) -> None:
    before = judged(one(code))
    assert judged({0: (), 1: ()}, before) == before


def test_a_boot_heals_a_reset_and_not_a_part_that_is_to_be_replaced() -> None:
    told = {0: (Symptom("xid_48", 1.0), Symptom("row_remap_failed", 1.0)), 1: ()}
    left = after_boot(judged(told), UUIDS)
    assert [it.code for it in left] == ["row_remap_failed"]


def test_another_card_in_its_place_has_no_past() -> None:
    before = judged(one("row_remap_failed"))
    new = {0: "GPU-new", 1: "GPU-b"}
    assert after_boot(before, new) == ()
    assert judge(before, {0: (), 1: ()}, uuids=new, cleared=(), actions=ACTIONS) == ()


def test_a_message_of_the_driver_counts_once_after_an_operator_has_heard_of_it() -> None:
    cleared = (Cleared(0, 50.0),)
    assert judged(one("xid_79", 10.0), cleared=cleared) == ()
    assert [it.code for it in judged(one("xid_79", 60.0), cleared=cleared)] == ["xid_79"]


def test_a_fact_that_is_still_so_comes_back_after_it_was_cleared() -> None:
    assert judged(one("row_remap_pending", 10.0), cleared=(Cleared(0, 50.0),)) != ()


def test_a_gpu_that_the_node_does_not_have_is_no_matter() -> None:
    assert judged({7: (Symptom("xid_79", 1.0),)}) == ()


def test_a_gpu_of_which_nothing_is_said_stays_as_it_was() -> None:
    before = judged(one("thermal_slowdown"))
    assert judged({1: ()}, before) == before
