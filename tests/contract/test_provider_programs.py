"""The provider programs of deploy/providers, called as a master calls them, against fakes of an API
server and of vendors' commands. What all providers promise is in test_providers.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from dlq_master.providers.exec import ExecProvider
from dlq_master.providers.port import ProviderFailed
from support.fake_cloud import FakeCloud
from support.fake_kubernetes import FakeKubernetes
from support.provider_programs import (
    WISH,
    a_program,
    cloud_program,
    kubernetes_settings,
)


@pytest.fixture
def cloud(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeCloud:
    fake = FakeCloud(tmp_path / "cloud")
    monkeypatch.setenv("PATH", f"{fake.bin}:{os.environ['PATH']}")
    return fake


# --- Kubernetes -----------------------------------------------------------------------------------


def test_a_pod_has_the_gpus_its_token_as_a_secret_and_time_to_save(
    cluster: FakeKubernetes, pods: ExecProvider
) -> None:
    uid = pods.start(WISH)
    pod, secret = cluster.pods["spot-3-1"], cluster.secrets["spot-3-1"]
    spec = pod["spec"]
    (agent,) = spec["containers"]
    assert pod["metadata"]["uid"] == uid
    assert agent["resources"]["limits"] == {"nvidia.com/gpu": "8"}
    assert agent["lifecycle"]["preStop"]["exec"]["command"][:4] == [
        "dlq-nodeagent", "leave", "--for", "25s",
    ]  # fmt: skip
    assert spec["terminationGracePeriodSeconds"] > 25
    assert spec["nodeSelector"] == {"gpu": "h100"}
    assert secret["stringData"] == {"token": "dlq1.a.secret\n"}
    assert secret["metadata"]["ownerReferences"][0]["uid"] == uid
    assert "secret" not in json.dumps(agent)
    assert cluster.bearers == {"Bearer sesame"}


def test_the_script_of_a_pod_is_one_for_its_shell(
    cluster: FakeKubernetes, pods: ExecProvider
) -> None:
    pods.start(replace(WISH, node_id="it's-3"))
    (_, _, script) = cluster.pods["spot-3-1"]["spec"]["containers"][0]["command"]
    subprocess.run(["/bin/sh", "-n"], input=script, text=True, check=True)
    assert "--name 'it'\"'\"'s-3'" in script
    assert '--instance "$DLQ_INSTANCE"' in script


@pytest.mark.parametrize("call", ["POST", "GET"])
def test_an_answer_that_is_lost_leads_to_the_same_pod(
    cluster: FakeKubernetes, pods: ExecProvider, call: str
) -> None:
    if call == "GET":
        pods.start(WISH)
    cluster.lose_next = call
    with pytest.raises(ProviderFailed, match="does not answer"):
        pods.start(WISH)
    uid = pods.start(WISH)
    assert [(name, pod["metadata"]["uid"]) for name, pod in cluster.pods.items()] == [
        ("spot-3-1", uid)
    ]
    assert set(cluster.secrets) == {"spot-3-1"}


def test_a_pod_that_saves_is_not_gone_yet_and_its_secret_goes_with_it(
    cluster: FakeKubernetes, pods: ExecProvider
) -> None:
    uid = pods.start(WISH)
    cluster.slow_to_end = True
    assert not pods.stop("spot-3-1", uid)
    assert [one.request_id for one in pods.list()] == ["spot-3-1"], "it is paid still"
    cluster.end("spot-3-1")
    assert pods.stop("spot-3-1", uid)
    assert (cluster.pods, cluster.secrets) == ({}, {})


def test_a_pod_of_others_is_never_ours(cluster: FakeKubernetes, pods: ExecProvider) -> None:
    theirs = {"metadata": {"name": "spot-3-1", "uid": "u", "labels": {}}, "status": {}}
    cluster.pods["spot-3-1"] = theirs
    with pytest.raises(ProviderFailed, match="that dlq has not made"):
        pods.start(WISH)
    assert pods.stop("spot-3-1", "u")
    assert cluster.pods["spot-3-1"] is theirs
    assert pods.list() == ()


def test_a_pod_that_has_ended_is_no_machine_and_is_removed(
    cluster: FakeKubernetes, pods: ExecProvider
) -> None:
    pods.start(WISH)
    cluster.end("spot-3-1", "Failed")
    assert pods.list() == ()
    assert (cluster.pods, cluster.secrets) == ({}, {})


def test_a_list_of_many_pages_is_whole_or_a_fault(
    cluster: FakeKubernetes, pods: ExecProvider
) -> None:
    for number in range(5):
        pods.start(replace(WISH, request_id=f"spot-3-{number}"))
    cluster.page_size = 2
    assert len(pods.list()) == 5
    cluster.expired = True
    with pytest.raises(ProviderFailed, match="ask again"):
        pods.list()


@pytest.mark.parametrize(
    ("call", "words"),
    [
        ("POST", r"POST /api/v1/namespaces/batch/pods: 403 pods is forbidden"),
        ("GET", r"GET /api/v1/namespaces/batch/pods: 403"),
    ],
)
def test_a_refusal_names_the_call_and_the_reason(
    cluster: FakeKubernetes, pods: ExecProvider, call: str, words: str
) -> None:
    cluster.forbids = call
    act: Callable[[], object] = pods.list if call == "GET" else lambda: pods.start(WISH)
    with pytest.raises(ProviderFailed, match=words):
        act()


def test_a_check_makes_nothing(cluster: FakeKubernetes, tmp_path: Path) -> None:
    settings = kubernetes_settings(tmp_path, cluster)
    said = a_program(tmp_path, "kubernetes_pods.py", settings, "check")
    assert (said.returncode, said.stderr) == (0, "")
    assert "would take a pod in namespace batch" in said.stdout
    assert (cluster.pods, cluster.secrets) == ({}, {})


def test_a_server_with_a_certificate_of_another_authority_gets_no_token(
    cluster: FakeKubernetes, tmp_path: Path
) -> None:
    settings = kubernetes_settings(tmp_path, cluster).replace("http://", "https://")
    said = a_program(tmp_path, "kubernetes_pods.py", settings, "check")
    assert said.returncode == 1
    assert "does not answer" in said.stderr
    assert cluster.bearers == set()


# --- command lines of clouds ----------------------------------------------------------------------


@pytest.mark.parametrize("vendor", ["aws", "google"])
def test_the_token_is_in_no_argument_and_the_script_joins(
    cloud: FakeCloud, tmp_path: Path, vendor: str
) -> None:
    cloud_program(tmp_path, vendor).start(WISH)
    assert "secret" not in (cloud.root / "calls").read_text()
    (instance,) = cloud.instances.values()
    script = instance["script"]
    assert script.startswith("#!/bin/sh\numask 077\n")
    assert "dlq1.a.secret" in script
    assert "join - --master head:7321 --wait 10m --name spot-3-1" in script
    subprocess.run(["/bin/sh", "-n"], input=script, text=True, check=True)


@pytest.mark.parametrize("vendor", ["aws", "google"])
def test_an_instance_whose_start_failed_half_way_is_found_again(
    cloud: FakeCloud, tmp_path: Path, vendor: str
) -> None:
    provider = cloud_program(tmp_path, vendor)
    cloud.fail_half_way()
    with pytest.raises(ProviderFailed, match="ended with 254: ERROR: the line was lost"):
        provider.start(WISH)
    (there,) = provider.list()
    assert provider.start(WISH) == there.instance_id
    assert len(cloud.instances) == 1


@pytest.mark.parametrize(("vendor", "state"), [("aws", "stopped"), ("google", "TERMINATED")])
def test_a_stopped_instance_is_no_machine_and_is_removed_all_the_same(
    cloud: FakeCloud, tmp_path: Path, vendor: str, state: str
) -> None:
    provider = cloud_program(tmp_path, vendor)
    name = provider.start(WISH)
    cloud.become(name, state)
    assert provider.list() == ()
    if vendor == "google":  # the API of the other one lists states that are named
        assert provider.stop("spot-3-1", name)
        assert cloud.instances == {}


@pytest.mark.parametrize("vendor", ["aws", "google"])
def test_a_dry_run_prints_the_command_and_makes_nothing(
    cloud: FakeCloud, tmp_path: Path, vendor: str
) -> None:
    provider = cloud_program(tmp_path, vendor, "dry_run = true\n")
    with pytest.raises(ProviderFailed, match=r"dry_run: (aws ec2|gcloud compute instances)"):
        provider.start(WISH)
    assert cloud.instances == {}


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ("", "the settings lack vendor"),
        ('vendor = "ibm"\n', "vendor in the settings is none of aws, google"),
        ('vendor = "aws"\n', "the settings lack launch_template"),
        ('vendor = "aws"\nlaunch_template = 7\n', "launch_template in the settings must be str"),
        ("vendor = \n", "Invalid value"),
    ],
)
def test_wrong_settings_are_named(tmp_path: Path, settings: str, words: str) -> None:
    said = a_program(tmp_path, "cloud_commands.py", settings, "check")
    assert said.returncode == 1
    assert words in said.stderr
    assert said.stderr.count("\n") == 1


def test_a_program_without_its_words_says_its_usage(tmp_path: Path) -> None:
    assert a_program(tmp_path, "kubernetes_pods.py", "", "dance").returncode == 64
