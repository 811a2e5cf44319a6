"""The part of a Kubernetes API server that pods and secrets need, as its documentation has it.

Names are taken once (409). A deleted pod stays until its node has ended it. Lists come in pages of
one snapshot, which may expire (410). An owner takes its secrets along. Fields that a Pod or a
Secret does not have are refused (422).
"""

from __future__ import annotations

import json
import threading
import urllib.parse
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

_POD = {
    "metadata", "spec", "apiVersion", "kind",
    "restartPolicy", "automountServiceAccountToken", "terminationGracePeriodSeconds",
    "containers", "volumes", "nodeSelector", "tolerations", "runtimeClassName", "hostNetwork",
}  # fmt: skip
_CONTAINER = {
    "name", "image", "command", "args", "env", "resources", "lifecycle", "volumeMounts",
    "securityContext", "imagePullPolicy",
}  # fmt: skip


class FakeKubernetes:
    """Serves `url`. `slow_to_end`: a deleted pod stays until `end`."""

    def __init__(self) -> None:
        self.pods: dict[str, dict[str, Any]] = {}
        self.secrets: dict[str, dict[str, Any]] = {}
        self.calls: list[str] = []
        self.bearers: set[str] = set()
        self.slow_to_end = False
        self.page_size = 0  # 0: as asked
        self.expired = False  # the snapshot of a list is gone at its second page
        self.lose_next = ""  # the method whose next answer is lost
        self.forbids = ""  # the method that this account may not use
        # Status and body in place of its own answers, such as recorded ones, by "GET pods".
        self.plays: dict[str, tuple[int, Any]] = {}
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def end(self, name: str, phase: str | None = None) -> None:
        """Its node has ended this pod: it is gone, or stays in this phase."""
        if phase is not None:
            self.pods[name]["status"]["phase"] = phase
            return
        uid = self.pods.pop(name)["metadata"]["uid"]
        for secret, kept in list(self.secrets.items()):
            if any(one["uid"] == uid for one in kept["metadata"].get("ownerReferences", [])):
                del self.secrets[secret]

    # --- calls ------------------------------------------------------------------------------------

    def create(self, kind: str, body: dict[str, Any], *, dry: bool) -> tuple[int, Any]:
        kept = self.pods if kind == "pods" else self.secrets
        name = body["metadata"]["name"]
        wrong = _wrong(kind, body)
        if wrong:
            return 422, _status(422, f'{kind} "{name}" is invalid: {wrong}')
        if name in kept:
            return 409, _status(409, f'{kind} "{name}" already exists')
        made = json.loads(json.dumps(body))
        made["metadata"]["uid"] = f"uid-{name}-{len(self.calls)}"
        if kind == "pods":
            made["status"] = {"phase": "Pending"}
        if not dry:
            kept[name] = made
        return 201, made

    def delete(self, name: str, body: dict[str, Any] | None) -> tuple[int, Any]:
        pod = self.pods.get(name)
        if pod is None:
            return 404, _status(404, f'pods "{name}" not found')
        wanted = (body or {}).get("preconditions", {}).get("uid")
        if wanted not in (None, pod["metadata"]["uid"]):
            return 409, _status(409, "the UID in the precondition does not match")
        pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        if not self.slow_to_end:
            self.end(name)
        return 200, pod

    def listed(self, asked: Mapping[str, str]) -> tuple[int, Any]:
        key, _, value = asked["labelSelector"].partition("=")
        begin = int(asked.get("continue") or 0)
        if begin and self.expired:
            return 410, _status(410, "the provided continue parameter is too old")
        found = [pod for pod in self.pods.values() if pod["metadata"]["labels"].get(key) == value]
        page = self.page_size or int(asked["limit"])
        after = begin + page
        more = str(after) if after < len(found) else ""
        items = [_listed(pod) for pod in found[begin:after]]
        about = {"resourceVersion": str(len(self.calls)), "continue": more}
        return 200, {"kind": "PodList", "apiVersion": "v1", "metadata": about, "items": items}


def _handler(cluster: FakeKubernetes) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:
            """Tests have nobody who reads it."""

        def _answer(self) -> None:
            path, _, query = self.path.partition("?")
            asked = dict(urllib.parse.parse_qsl(query))
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            cluster.calls.append(f"{self.command} {path}")
            cluster.bearers.add(self.headers.get("Authorization", ""))
            status, found = self._done(path.split("/")[5:], asked, body)
            if cluster.lose_next == self.command:
                cluster.lose_next = ""
                self.connection.close()
                return
            raw = json.dumps(found).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

        def _done(self, parts: list[str], asked: dict[str, str], body: Any) -> tuple[int, Any]:
            played = cluster.plays.get(f"{self.command} {parts[0]}") if len(parts) == 1 else None
            if played is not None:
                return played
            if cluster.forbids == self.command:
                return 403, _status(403, f"{parts[0]} is forbidden: User cannot do that")
            match self.command, parts:
                case "POST", [kind]:
                    return cluster.create(kind, body, dry=asked.get("dryRun") == "All")
                case "GET", ["pods"]:
                    return cluster.listed(asked)
                case "GET", ["pods", name]:
                    missing = _status(404, f'pods "{name}" not found')
                    return (200, cluster.pods[name]) if name in cluster.pods else (404, missing)
                case "DELETE", ["pods", name]:
                    return cluster.delete(name, body)
            return 404, _status(404, "the server could not find the requested resource")

        do_GET = do_POST = do_DELETE = _answer

    return Handler


_REASONS = {
    403: "Forbidden", 404: "NotFound", 409: "AlreadyExists", 410: "Expired", 422: "Invalid",
}  # fmt: skip


def _listed(pod: Mapping[str, Any]) -> dict[str, Any]:
    """An item of a list has no words for its kind."""
    return {key: one for key, one in pod.items() if key not in ("kind", "apiVersion")}


def _status(code: int, message: str) -> dict[str, Any]:
    return {
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": _REASONS[code], "details": {}, "code": code,
    }  # fmt: skip


def _wrong(kind: str, body: dict[str, Any]) -> str:
    if kind == "secrets":
        odd = set(body) - {"apiVersion", "kind", "metadata", "stringData", "type"}
        return f"unknown fields {odd}" if odd else ""
    spec = body["spec"]
    odd = (set(body) | set(spec)) - _POD
    volumes = {one["name"] for one in spec["volumes"]}
    for container in spec["containers"]:
        odd |= set(container) - _CONTAINER
        if not {one["name"] for one in container.get("volumeMounts", [])} <= volumes:
            return "volumeMounts[0].name: Not found"
    return f"unknown fields {odd}" if odd else ""
