"""Machines are pods of a Kubernetes cluster, made through its API: each runs an agent.

The name of a pod is the request id, so a repeated `start` finds the pod of the first one. The join
token is a Secret that only this pod mounts, and Kubernetes removes it with the pod. A pod that is
told to end has `leave_seconds` for its jobs to save.

Settings, in TOML: `server`, `namespace` and `image` must be there. Optional ones are `ca_file`,
`token_file`, `client_cert_file`, `client_key_file`, `gpu_resource`, `leave_seconds`,
`timeout_seconds` and `agent_config`. The token is read anew for each call. Inside a cluster, the
first two default to the files of the service account. `pod` is a table that is laid over the spec
of the pod, such as a node selector, tolerations, a runtime class and volumes.
"""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from http.client import HTTPException
from pathlib import Path
from typing import Any

from provider_program import MachineRequest, RefusedCall, join_script, run_program, setting

_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
_POOL, _REQUEST = "dlq.dev/pool", "dlq.dev/request"
_TOKEN_DIR, _STATE_DIR = "/run/dlq-token", "/var/lib/dlq-node"
_PAGE = 500
# Of these phases no process is left. A deleted pod stays listed until its node has ended it.
_OVER = frozenset({"Succeeded", "Failed"})
# Gone, too old a list; there already; gone, or the name has another pod by now.
_MEANT = {"GET": {404, 410}, "POST": {409}, "DELETE": {404, 409}}


class KubernetesPods:
    """See `MachineMaker`."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._settings = settings
        self._namespace = setting(settings, "namespace")
        self._leave_s = setting(settings, "leave_seconds", 30)
        self._pods = f"/api/v1/namespaces/{urllib.parse.quote(self._namespace, safe='')}/pods"
        self._secrets = self._pods.removesuffix("pods") + "secrets"

    def start(self, asked: MachineRequest) -> str:
        """The pod waits for its Secret, and the Secret belongs to the pod: so none is left over."""
        status, pod = self._call("POST", self._pods, self._pod(asked))
        if status == 409:
            pod = self._there(asked.request_id)
            if pod is None:
                raise RefusedCall(f"pod {asked.request_id} has just gone: start it again")
            if pod["metadata"].get("labels", {}).get(_REQUEST) != asked.request_id:
                raise RefusedCall(f"there is a pod {asked.request_id} that dlq has not made")
        uid: str = pod["metadata"]["uid"]
        self._call("POST", self._secrets, _secret(asked, uid))  # 409: it is there already
        return uid

    def stop(self, request_id: str) -> bool:
        pod = self._there(request_id)
        if pod is None or pod["metadata"].get("labels", {}).get(_REQUEST) != request_id:
            return True
        self._remove(request_id, pod["metadata"]["uid"])
        return self._there(request_id) is None

    def listed(self, pool: str) -> list[tuple[str, str]]:
        found: list[tuple[str, str]] = []
        more = ""
        while True:
            asked = {"labelSelector": f"{_POOL}={pool}", "limit": str(_PAGE), "continue": more}
            status, page = self._call("GET", f"{self._pods}?{urllib.parse.urlencode(asked)}")
            if status == 410:  # the snapshot of the first page is gone: a list of halves is none
                raise RefusedCall("the list of pods changed for too long: ask again")
            for pod in page["items"]:
                about = pod["metadata"]
                name, uid = about["labels"][_REQUEST], about["uid"]
                if pod.get("status", {}).get("phase") not in _OVER:
                    found.append((name, uid))
                elif "deletionTimestamp" not in about:  # it costs nothing, and would stay for ever
                    self._remove(name, uid)
            more = page["metadata"].get("continue") or ""
            if not more:
                return found

    def check(self, asked: MachineRequest) -> list[str]:
        """The API server admits the pod and the Secret, and keeps neither (`dryRun=All`)."""
        self._call("POST", f"{self._pods}?dryRun=All", self._pod(asked))
        self._call("POST", f"{self._secrets}?dryRun=All", _secret(asked, "none"))
        there = len(self.listed(asked.pool))
        return [
            f"the API server would take a pod in namespace {self._namespace}",
            "it would take its Secret",
            f"it lists pods: {there} of pool {asked.pool}",
        ]

    def _remove(self, request_id: str, uid: str) -> None:
        """This very pod, and no other of its name."""
        self._call("DELETE", self._of(request_id), {"preconditions": {"uid": uid}})

    def _there(self, request_id: str) -> dict[str, Any] | None:
        status, pod = self._call("GET", self._of(request_id))
        return None if status == 404 else pod

    def _of(self, request_id: str) -> str:
        return f"{self._pods}/{urllib.parse.quote(request_id, safe='')}"

    def _pod(self, asked: MachineRequest) -> dict[str, Any]:
        config = setting(self._settings, "agent_config", "")
        script = join_script(
            asked,
            token_file=f"{_TOKEN_DIR}/token",
            state=_STATE_DIR,
            instance='"$DLQ_INSTANCE"',
            config=config,
        )
        leave = ["dlq-nodeagent", "leave", "--for", f"{self._leave_s}s", "--state-dir", _STATE_DIR]
        leave += ["--config", config] if config else []
        uid = {"fieldRef": {"fieldPath": "metadata.uid"}}
        agent: dict[str, Any] = {
            "name": "agent",
            "image": setting(self._settings, "image"),
            "command": ["/bin/sh", "-c", script],
            "env": [{"name": "DLQ_INSTANCE", "valueFrom": uid}],
            "resources": {"limits": self._limits(asked)},
            # Jobs save before the agent is told to end.
            "lifecycle": {"preStop": {"exec": {"command": leave}}},
            "volumeMounts": [{"name": "token", "mountPath": _TOKEN_DIR, "readOnly": True}],
        }
        secret = {"secretName": asked.request_id, "defaultMode": 0o400}
        spec: dict[str, Any] = {
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": self._leave_s + 10,
            "containers": [agent],
            "volumes": [{"name": "token", "secret": secret}],
        }
        own = setting(self._settings, "pod", {})
        spec["volumes"] += own.get("volumes", [])
        agent["volumeMounts"] += own.get("volumeMounts", [])
        spec |= {key: one for key, one in own.items() if key not in ("volumes", "volumeMounts")}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": _about(asked), "spec": spec}

    def _limits(self, asked: MachineRequest) -> dict[str, str]:
        resource = setting(self._settings, "gpu_resource", "nvidia.com/gpu")
        return {resource: str(asked.gpu_count)} if asked.gpu_count else {}

    def _call(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """The status and the answer. Raises RefusedCall for a status that `_MEANT` lacks."""
        server = setting(self._settings, "server").rstrip("/")
        request = urllib.request.Request(server + path, method=method)
        request.add_header("Accept", "application/json")
        token_file = setting(self._settings, "token_file", _default("token"))
        if token_file:
            request.add_header("Authorization", f"Bearer {_read(token_file)}")
        if body is not None:
            request.data = json.dumps(body).encode()
            request.add_header("Content-Type", "application/json")
        timeout_s = setting(self._settings, "timeout_seconds", 20)
        try:
            with urllib.request.urlopen(request, timeout=timeout_s, context=self._tls()) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            if error.code in _MEANT[method]:
                return error.code, {}
            raise RefusedCall(f"{method} {path.partition('?')[0]}: {_why(error)}") from None
        except (OSError, HTTPException, ValueError) as error:
            raise RefusedCall(f"{server} does not answer: {error}") from None

    def _tls(self) -> ssl.SSLContext:
        context = ssl.create_default_context(
            cafile=setting(self._settings, "ca_file", _default("ca.crt")) or None
        )
        cert = setting(self._settings, "client_cert_file", "")
        if cert:
            context.load_cert_chain(cert, setting(self._settings, "client_key_file", cert))
        return context


def _about(asked: MachineRequest) -> dict[str, Any]:
    labels = {_POOL: asked.pool, _REQUEST: asked.request_id, "app.kubernetes.io/managed-by": "dlq"}
    return {"name": asked.request_id, "labels": labels}


def _secret(asked: MachineRequest, pod_uid: str) -> dict[str, Any]:
    about = _about(asked)
    about["ownerReferences"] = [
        {"apiVersion": "v1", "kind": "Pod", "name": asked.request_id, "uid": pod_uid}
    ]
    data = {"token": asked.token + "\n"}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": about, "stringData": data}


def _default(name: str) -> str:
    """The file of the pod's service account, where this program runs inside the cluster."""
    path = Path(_ACCOUNT, name)
    return str(path) if path.exists() else ""


def _read(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError as error:
        raise RefusedCall(f"{path}: {error.strerror}") from None


def _why(error: urllib.error.HTTPError) -> str:
    """The message of a Status object, or the words of the status line."""
    try:
        return f"{error.code} {json.load(error)['message']}"[:300]
    except (OSError, HTTPException, ValueError, KeyError, TypeError):
        return f"{error.code} {error.reason}"


if __name__ == "__main__":
    run_program(KubernetesPods)
