"""The Kubernetes provider reads answers that were recorded from real API servers.

Two are kept in tests/data/kubernetes: a list of pods, and a pod that was created. Those of the
k8s-openapi bindings (github.com/Arnavion/k8s-openapi, Apache-2.0, directory
k8s-openapi-tests/test-replays) have a directory for each release of Kubernetes, and are not kept
here: KUBERNETES_RECORDINGS names theirs. They have an end that failed and refusals too. The rest is
answered by the fake, whose answers must have the recorded form.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from dlq_master.providers.exec import ExecProvider
from dlq_master.providers.port import ProviderFailed
from support.fake_kubernetes import FakeKubernetes
from support.provider_programs import WISH

_ROOT = os.environ.get("KUBERNETES_RECORDINGS", "")
_RELEASES = sorted(Path(_ROOT).glob("v*")) if _ROOT else []
_KEPT = Path(__file__).parents[1] / "data" / "kubernetes"

by_release = pytest.mark.parametrize("release", _RELEASES, ids=lambda path: path.name)


def recorded(release: Path, name: str, method: str, status: int) -> list[Any]:
    """The bodies of the recorded answers to this method with this status."""
    return [
        json.loads(one["response_body"])
        for one in json.loads((release / f"{name}.json").read_text())
        if (one["request_method"], one["response_status_code"]) == (method, status)
        and not one["request_url"].endswith("watch=true")
    ]


def a_list(release: Path, name: str) -> Any:
    """A recorded list of pods, as if dlq had made them: nothing but their labels is changed."""
    lists = [one for one in recorded(release, name, "GET", 200) if one["kind"] == "PodList"]
    return as_ours(lists[-1])


def as_ours(told: Any) -> Any:
    """A list of pods with the labels that dlq would have given them."""
    for pod in told["items"]:
        about = pod["metadata"]
        about["labels"] = about.get("labels", {}) | {
            "dlq.dev/pool": WISH.pool, "dlq.dev/request": about["name"],
        }  # fmt: skip
    return told


def test_a_pod_of_the_kept_list_is_a_machine(cluster: FakeKubernetes, pods: ExecProvider) -> None:
    told = as_ours(json.loads((_KEPT / "pods.json").read_text()))
    cluster.plays["GET pods"] = 200, told
    (about,) = (pod["metadata"] for pod in told["items"])
    assert [(one.request_id, one.instance_id) for one in pods.list()] == [
        (about["name"], about["uid"])
    ]


def test_the_kept_answer_to_a_start_tells_its_uid(
    cluster: FakeKubernetes, pods: ExecProvider
) -> None:
    pod = json.loads((_KEPT / "pod_created.json").read_text())
    cluster.plays["POST pods"] = 201, pod
    assert pods.start(WISH) == pod["metadata"]["uid"]


@by_release
def test_pods_of_a_recorded_list_are_machines(
    release: Path, cluster: FakeKubernetes, pods: ExecProvider
) -> None:
    told = a_list(release, "pod-list")
    cluster.plays["GET pods"] = 200, told
    found = {one.request_id: one.instance_id for one in pods.list()}
    about = [pod["metadata"] for pod in told["items"]]
    assert found == {one["name"]: one["uid"] for one in about}
    assert len(found) > 3


@by_release
def test_a_recorded_pod_that_has_failed_is_no_machine_and_is_removed(
    release: Path, cluster: FakeKubernetes, pods: ExecProvider
) -> None:
    told = a_list(release, "job-create")
    (name,) = (pod["metadata"]["name"] for pod in told["items"])
    cluster.plays["GET pods"] = 200, told
    assert pods.list() == ()
    assert cluster.calls[-1] == f"DELETE /api/v1/namespaces/batch/pods/{name}"


@by_release
def test_a_recorded_pod_answers_a_start_with_its_uid(
    release: Path, cluster: FakeKubernetes, pods: ExecProvider
) -> None:
    (pod, *_) = a_list(release, "pod-list")["items"]
    cluster.plays["POST pods"] = 201, {"kind": "Pod", "apiVersion": "v1"} | pod
    assert pods.start(WISH) == pod["metadata"]["uid"]


@by_release
def test_a_recorded_refusal_is_told_in_its_words(
    release: Path, cluster: FakeKubernetes, pods: ExecProvider
) -> None:
    for status in recorded(release, "custom_resource_definition-test", "POST", 422):
        cluster.plays["POST pods"] = 422, status
        with pytest.raises(ProviderFailed) as failed:
            pods.start(WISH)
        assert f"422 {status['message']}" in str(failed.value)


@by_release
def test_the_fake_answers_in_the_recorded_form(
    release: Path, cluster: FakeKubernetes, pods: ExecProvider
) -> None:
    pods.start(WISH)
    _, listed = cluster.listed({"labelSelector": f"dlq.dev/pool={WISH.pool}", "limit": "9"})
    told = a_list(release, "pod-list")
    assert (set(listed), listed["kind"]) == (set(told), told["kind"])
    assert set(listed["items"][0]) <= set(told["items"][0])
    assert set(listed["items"][0]["metadata"]) <= set(told["items"][0]["metadata"])
    _, status = cluster.delete("nobody", None)
    (real, *_) = recorded(release, "custom_resource_definition-test", "POST", 422)
    assert set(status) == set(real)
