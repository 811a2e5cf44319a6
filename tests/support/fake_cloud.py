"""`aws` and `gcloud` of a test: programs that keep instances in a directory, as the vendors would.

Each checks the words that it is given, and writes them down with its standard input.
"""

from __future__ import annotations

import json
import stat
import sys
from pathlib import Path
from typing import Any

_PROGRAM = """\
#!{python}
import json, sys
from pathlib import Path
from support.fake_cloud import answer
answer(Path({root!r}), Path(sys.argv[0]).name, sys.argv[1:])
"""


class FakeCloud:
    """The directory `bin` goes into PATH. `instances`: by id, as the vendor has them."""

    def __init__(self, root: Path) -> None:
        self.root, self.bin = root, root / "bin"
        self.bin.mkdir(parents=True)
        for name in ("aws", "gcloud"):
            path = self.bin / name
            tests = str(Path(__file__).parent.parent)
            program = _PROGRAM.format(python=sys.executable, root=str(root))
            lines = program.splitlines(keepends=True)
            lines.insert(1, f"import sys; sys.path.insert(0, {tests!r})\n")
            path.write_text("".join(lines))
            path.chmod(stat.S_IRWXU | stat.S_IROTH | stat.S_IXOTH)

    def fail_half_way(self) -> None:
        """The next start makes its machine, and says that it failed."""
        (self.root / "half").touch()

    @property
    def instances(self) -> dict[str, dict[str, Any]]:
        return _kept(self.root)

    def become(self, instance_id: str, state: str) -> None:
        kept = _kept(self.root)
        kept[instance_id]["state"] = state
        _keep(self.root, kept)


def answer(root: Path, name: str, words: list[str]) -> None:
    """The process of one command."""
    with (root / "calls").open("a") as calls:
        calls.write(json.dumps([name, *words]) + "\n")
    kept = _kept(root)
    found = (_aws if name == "aws" else _gcloud)(kept, words)
    _keep(root, kept)
    if (root / "half").exists() and ("run-instances" in words or "create" in words):
        (root / "half").unlink()
        sys.stderr.write("ERROR: the line was lost\n")
        raise SystemExit(254)
    sys.stdout.write(json.dumps(found))


def _aws(kept: dict[str, dict[str, Any]], words: list[str]) -> Any:
    assert words[:4] == ["ec2", "--output", "json", "--no-cli-pager"], words
    verb, told = words[4], dict(zip(words[5::2], words[6::2], strict=False))
    if verb == "run-instances":
        return _run_instances(kept, told)
    if verb == "terminate-instances":
        there = kept.pop(told["--instance-ids"], None)
        if there is None:
            _fail("An error occurred (InvalidInstanceID.NotFound)")
        return {"TerminatingInstances": []}
    assert verb == "describe-instances"
    tag, states = words[6].split(","), words[7]
    key, value = tag[0].removeprefix("Name=tag:"), tag[1].removeprefix("Values=")
    found = [
        {
            "InstanceId": name,
            "State": {"Name": one["state"]},
            "Tags": [{"Key": k, "Value": v} for k, v in one["tags"].items()],
        }
        for name, one in kept.items()
        if one["tags"].get(key) == value and one["state"] in states
    ]
    return {"Reservations": [{"Instances": found}] if found else []}


def _run_instances(kept: dict[str, dict[str, Any]], told: dict[str, str]) -> Any:
    script = Path(told["--user-data"].removeprefix("file://")).read_text()
    for name, one in kept.items():
        if one["client_token"] == told["--client-token"]:
            if one["script"] != script:
                _fail("An error occurred (IdempotentParameterMismatch)")
            return {"Instances": [{"InstanceId": name}]}
    name = f"i-{len(kept) + 1:08x}"
    pairs = told["--tag-specifications"].partition("Tags=[")[2].removesuffix("]")
    tags = dict(part.removeprefix("Key=").split(",Value=") for part in pairs[1:-1].split("},{"))
    kept[name] = {
        "state": "pending",
        "tags": tags,
        "client_token": told["--client-token"],
        "script": script,
    }
    return {"Instances": [{"InstanceId": name}]}


def _gcloud(kept: dict[str, dict[str, Any]], words: list[str]) -> Any:
    assert words[:2] == ["compute", "instances"], words
    verb = words[2]
    if verb == "list":
        key, value = words[words.index("--filter") + 1].removeprefix("labels.").split("=")
        return [
            {"name": name, "status": one["state"], "labels": one["tags"]}
            for name, one in kept.items()
            if one["tags"].get(key) == value
        ]
    name = words[3]
    if verb == "delete":
        if kept.pop(name, None) is None:
            _fail(f"ERROR: The resource '{name}' was not found")
        return []
    assert verb == "create"
    if name in kept:
        _fail(f"ERROR: The resource '{name}' already exists")
    labels = words[words.index("--labels") + 1].split(",")
    source = words[words.index("--metadata-from-file") + 1].removeprefix("startup-script=")
    tags = dict(label.split("=") for label in labels)
    kept[name] = {"state": "PROVISIONING", "tags": tags, "script": Path(source).read_text()}
    return [{"name": name, "status": "RUNNING"}]


def _fail(why: str) -> None:
    sys.stderr.write(f"{why}\n")
    raise SystemExit(254)


def _kept(root: Path) -> dict[str, dict[str, Any]]:
    path = root / "instances.json"
    found: dict[str, dict[str, Any]] = json.loads(path.read_text()) if path.exists() else {}
    return found


def _keep(root: Path, kept: dict[str, dict[str, Any]]) -> None:
    (root / "instances.json").write_text(json.dumps(kept))
