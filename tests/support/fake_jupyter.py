"""A stand-in for `jupyter lab`: a server on loopback with a token, and its note about itself."""

import sys
from pathlib import Path

_PROGRAM = """\
#!{python}
import http.server, json, os, sys
assert sys.argv[1] == "lab", sys.argv
class Page(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # a line stays open, as that of a browser does
    def do_GET(self):
        good = self.path.endswith("?token=secret")
        name = self.path.split("?")[0].strip("/")
        body = ("notebook of job %s: %s" % (os.environ["DLQ_JOB_ID"], name)).encode()
        self.send_response(200 if good else 403)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_):
        pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page)
note = {{"port": server.server_address[1], "token": "secret", "base_url": "/"}}
draft = os.path.join(os.environ["JUPYTER_RUNTIME_DIR"], "draft")
with open(draft, "w") as written:
    json.dump(note, written)
os.rename(draft, draft.replace("draft", "jpserver-%d.json" % os.getpid()))
print("args", sys.argv[2:], flush=True)
server.serve_forever()
"""


def install_jupyter(place: Path) -> None:
    """Put a program `jupyter` there."""
    program = place / "jupyter"
    program.write_text(_PROGRAM.format(python=sys.executable))
    program.chmod(0o755)
