"""An image registry on loopback that does as it is told: wants a password, is slow, breaks,
lies.
"""

import base64
import gzip
import hashlib
import io
import json
import tarfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

MANIFEST = "application/vnd.oci.image.manifest.v1+json"


def digest_of(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()


def layer_of(root: Path) -> bytes:
    """The files below a directory, as one uncompressed layer."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        tar.add(root, arcname=".")
    return out.getvalue()


class _Handler(BaseHTTPRequestHandler):
    registry: "SmallRegistry"
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.registry.requests.append(self.path)
        self._answer(send=True)

    def do_HEAD(self) -> None:
        self._answer(send=False)

    def _answer(self, *, send: bool) -> None:
        wanted = base64.b64encode(self.registry.password.encode()).decode()
        if self.registry.password and self.headers.get("Authorization") != f"Basic {wanted}":
            self._error(401, "UNAUTHORIZED", send, challenge=True)
            return
        parts = self.path.removeprefix("/v2/").strip("/").rsplit("/", 2)
        if parts == [""]:
            self._send(b"{}", "application/json", send)
        elif parts[1] == "manifests":
            self._manifest(f"{parts[0]}/{parts[2]}", send)
        elif parts[1] == "blobs" and parts[2] in self.registry.blobs:
            self.registry.hold_blobs.wait(60)
            self._send(self.registry.blobs[parts[2]], "application/octet-stream", send)
        else:
            self._error(404, "BLOB_UNKNOWN", send)

    def _manifest(self, name: str, send: bool) -> None:
        if self.registry.failures > 0:
            self.registry.failures -= 1
            self._error(503, "UNAVAILABLE", send)
        elif name in self.registry.manifests:
            self._send(self.registry.manifests[name], MANIFEST, send)
        else:
            self._error(404, "MANIFEST_UNKNOWN", send)

    def _error(self, status: int, code: str, send: bool, *, challenge: bool = False) -> None:
        words = code.lower().replace("_", " ")
        body = json.dumps({"errors": [{"code": code, "message": words}]}).encode()
        self._send(body, "application/json", send, status=status, challenge=challenge)

    def _send(
        self,
        body: bytes,
        kind: str,
        send: bool,
        *,
        status: int = 200,
        challenge: bool = False,
    ) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        if challenge:
            self.send_header("WWW-Authenticate", 'Basic realm="small"')
        self.end_headers()
        if send:
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""


class SmallRegistry:
    """Serves what `put` was given. Knobs may be turned at any time."""

    def __init__(self) -> None:
        self.blobs: dict[str, bytes] = {}
        self.manifests: dict[str, bytes] = {}
        self.password = ""
        """`USER:PASSWORD`; empty: anybody may pull."""
        self.hold_blobs = threading.Event()
        self.hold_blobs.set()
        """Cleared: blobs are not sent before it is set again."""
        self.failures = 0
        """So many manifest requests are answered with 503."""
        self.requests: list[str] = []
        self.digest = ""
        """Of the image that a test is about, if it says so."""
        handler = type("Handler", (_Handler,), {"registry": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.name = f"localhost:{self._server.server_port}"

    def put(self, path: str, tag: str, *layers: bytes) -> str:
        """Store an image of these uncompressed layers; its digest."""
        packed = [gzip.compress(layer, mtime=0) for layer in layers]
        config = {
            "architecture": "amd64",
            "os": "linux",
            "config": {},
            "rootfs": {"type": "layers", "diff_ids": [digest_of(layer) for layer in layers]},
        }
        manifest = json.dumps(
            {
                "schemaVersion": 2,
                "mediaType": MANIFEST,
                "config": self._blob(
                    json.dumps(config).encode(), "application/vnd.oci.image.config.v1+json"
                ),
                "layers": [
                    self._blob(blob, "application/vnd.oci.image.layer.v1.tar+gzip")
                    for blob in packed
                ],
            }
        ).encode()
        for reference in (tag, digest_of(manifest)):
            self.manifests[f"{path}/{reference}"] = manifest
        return digest_of(manifest)

    def _blob(self, data: bytes, kind: str) -> dict[str, object]:
        self.blobs[digest_of(data)] = data
        return {"mediaType": kind, "digest": digest_of(data), "size": len(data)}

    def start(self) -> None:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        self.hold_blobs.set()
        self._server.shutdown()
        self._server.server_close()


@contextmanager
def small_registry() -> Iterator[SmallRegistry]:
    registry = SmallRegistry()
    registry.start()
    try:
        yield registry
    finally:
        registry.stop()
