"""Real daemons of the inference side: agents whose virtual GPUs say what a test wants them to."""

import json
from dataclasses import replace
from pathlib import Path
from time import time
from typing import Any

from dlq_client.line.identity import load_identity, save_identity
from dlq_common.identity.pki import Role, new_key_and_csr
from dlq_master.serving import read_authority
from support.harness import Daemons


class Lender(Daemons):
    """Agents of the inference side, whose virtual GPUs are as `say` last said."""

    def _make_agent(self, name: str) -> None:
        super()._make_agent(name)
        config = self.root / f"{name}.toml"
        script = self.root / f"{name}.gpus"
        told = config.read_text().replace("H100-80GB", f"H100-80GB@{script}")
        config.write_text(told.replace("[node]\n", '[node]\npool = "inference"\n'))

    def say(self, name: str, *lines: str) -> None:
        """From now on the GPUs of this node are like this."""
        draft = self.root / f"{name}.draft"
        draft.write_text("".join(f"{line}\n" for line in lines))
        draft.rename(self.root / f"{name}.gpus")

    def server(self, name: str) -> dict[str, Any]:
        """One line of `dlq admin loan status`."""
        told = json.loads(self.said("admin", "loan", "status", "--json"))["servers"]
        return next(one for one in told if one["node_id"] == name)

    def log_in_as(self, name: str, role: Role) -> Path:
        """The home of a user of this role, as if somebody with that uid had logged in."""
        self.said(
            "admin", "user", "set", name, "--role", role.value, "--uid", "4711", "--gid", "4711"
        )
        mine = load_identity(self.root / "home")
        assert mine is not None
        made = new_key_and_csr(name)
        authority = read_authority(self.root / "master", "torture")
        signed = authority.sign_user(made.request, name, role, time())
        home = self.root / f"home-{name}"
        save_identity(
            home, replace(mine, key=made.key, certificate=signed, user=name, role=role.value)
        )
        return home
