"""Labels of nodes through the whole loop: set, asked for, gone, and after a restart."""

from collections.abc import Callable

import pytest

from dlq_common.errors import InvalidRequest, NotFound, Unsatisfiable
from dlq_master.control.nodes.labels import MOST_LABELS
from dlq_master.control.stimuli import Caller, SetNodeLabels
from dlq_master.model.ids import NodeId
from dlq_master.model.nodes.node import Node
from dlq_master.model.resources import Request
from dlq_master.model.why import ReasonCode
from support.master_harness import Master
from support.sim_agent import SimAgent

OLGA = Caller("olga", "operator")


@pytest.fixture
def master(masters: Callable[..., Master]) -> Master:
    """A master with two nodes of four GPUs."""
    made = masters()
    for name in ("n1", "n2"):
        SimAgent(made, NodeId(name)).hello()
    return made


def label(
    master: Master, node_id: str, *labels: str, clear: tuple[str, ...] = (), key: str = ""
) -> Node:
    node = master.ask(
        SetNodeLabels(
            caller=OLGA,
            request_id=key or f"l-{node_id}-{labels}-{clear}",
            node_id=NodeId(node_id),
            set_labels=frozenset(labels),
            clear_labels=frozenset(clear),
        )
    )
    assert isinstance(node, Node)
    return node


def test_a_label_is_replaced_by_name_cleared_and_told(master: Master) -> None:
    assert label(master, "n1", "rack=r1", "disk=fast").labels == {"rack=r1", "disk=fast"}
    assert label(master, "n1", "rack=r2", clear=("disk", "unknown")).labels == {"rack=r2"}
    told = [each for each in master.events() if each.node_id == "n1" and "rack" in each.cause]
    assert [each.cause for each in told] == ["+disk=fast +rack=r1", "-disk=fast -rack=r1 +rack=r2"]
    assert all(each.actor == "operator:olga" or "olga" in each.actor for each in told)


def test_a_repeat_changes_nothing(master: Master) -> None:
    label(master, "n1", "rack=r1", key="once")
    label(master, "n1", "rack=r2")
    assert label(master, "n1", "rack=r1", key="once").labels == {"rack=r2"}


def test_what_cannot_be_labelled_is_refused(master: Master) -> None:
    with pytest.raises(NotFound):
        label(master, "nowhere", "rack=r1")
    with pytest.raises(InvalidRequest, match="the most is 32"):
        label(master, "n1", *(f"k{at}=v" for at in range(MOST_LABELS + 1)))


def test_a_job_gets_a_node_with_its_label_and_no_other(master: Master) -> None:
    label(master, "n2", "rack=r1")
    for _ in range(2):
        job = master.submit(request=Request(gpus=1, constraint=("rack=r1",)))
        master.tick()
        assert master.attempt(job.job_id).lease.allocation.node_ids == ("n2",)


def test_a_job_that_asks_for_what_no_node_has_is_refused_with_the_reason(master: Master) -> None:
    with pytest.raises(Unsatisfiable) as refused:
        master.submit(request=Request(gpus=1, constraint=("rack=r9",)))
    assert any(
        "rack=r9; that is true of none of the 2 nodes" in each for each in refused.value.reasons
    )


def test_a_job_waits_with_a_typed_reason_and_starts_when_a_node_is_labelled(master: Master) -> None:
    label(master, "n2", "rack=r1")
    master.submit(request=Request(gpus=4, constraint=("rack=r1",)))
    master.tick()
    waits = master.submit(request=Request(gpus=1, constraint=("rack=r1",)))
    master.tick()
    codes = {reason.code for reason in master.why(waits.job_id).reasons}
    assert ReasonCode.CONSTRAINT in codes
    label(master, "n1", "rack=r1")
    master.tick()
    assert master.attempt(waits.job_id).lease.allocation.node_ids == ("n1",)


def test_labels_and_choices_are_there_after_a_restart(master: Master) -> None:
    label(master, "n2", "rack=r1")
    job = master.submit(
        request=Request(
            gpus=1, constraint=("rack=r1",), among=(NodeId("n2"),), not_among=(NodeId("n1"),)
        )
    )
    master.restart()
    assert master.node("n2").labels == {"rack=r1"}
    assert master.job(job.job_id).request.shape == job.request.shape


def test_a_job_runs_on_nodes_that_it_names_and_not_on_those_it_excludes(master: Master) -> None:
    among = master.submit(request=Request(gpus=1, among=(NodeId("n2"),)))
    not_among = master.submit(request=Request(gpus=1, not_among=(NodeId("n1"),)))
    master.tick()
    for job in (among, not_among):
        assert master.attempt(job.job_id).lease.allocation.node_ids == ("n2",)
