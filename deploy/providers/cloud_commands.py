"""Machines that a vendor's command line rents: `aws ec2` or `gcloud compute`.

Settings, in TOML: `vendor = "aws"` with `launch_template`, or `vendor = "google"` with
`instance_template` and `zone`; `options`, words that each start gets besides; and `dry_run`. With
`dry_run = true` no machine is started or ended: `check` and `start` print the command instead.

The image of the template holds dlq, and runs the user data (AWS) or the startup script (Google) as
root. The join token is a part of that script, which the machine can read from its vendor's metadata
address. It is good for one node and one key, so it is worth nothing after the machine has joined.
The script reaches the command by its standard input: all users of this host can read arguments.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

from provider_program import (
    MachineMaker,
    MachineRequest,
    RefusedCall,
    command_json,
    join_script,
    run_program,
    setting,
)

_STATE_DIR = "/var/lib/dlq-node"
_TOKEN = "/run/dlq-token"


class RentedMachine(NamedTuple):
    """`lives`: it runs, or is coming or going. A stopped one costs its disks alone."""

    request_id: str
    instance_id: str
    lives: bool


class CloudVendor(Protocol):
    """The words of one command line. The script of a start is on its standard input."""

    def start_words(self, asked: MachineRequest) -> list[str]: ...
    def started_id(self, printed: Any) -> str: ...
    def list_words(self, label: str, value: str) -> list[str]: ...
    def machines(self, printed: Any) -> list[RentedMachine]: ...
    def stop_words(self, instance_id: str) -> list[str]: ...
    def instance_word(self, asked: MachineRequest) -> str:
        """The instance id, as a word of the shell on the machine."""
        ...


class AmazonEc2:
    """A repeated start has the same client token, and so is the same instance."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._template = setting(settings, "launch_template")

    def start_words(self, asked: MachineRequest) -> list[str]:
        tags = f"{{Key=dlq-request,Value={asked.request_id}}},{{Key=dlq-pool,Value={asked.pool}}}"
        return [
            *_EC2, "run-instances", "--count", "1",
            "--client-token", asked.request_id,
            "--launch-template", f"LaunchTemplateName={self._template}",
            "--instance-initiated-shutdown-behavior", "terminate",
            "--tag-specifications", f"ResourceType=instance,Tags=[{tags}]",
            "--user-data", "file:///dev/stdin",
        ]  # fmt: skip

    def started_id(self, printed: Any) -> str:
        return str(printed["Instances"][0]["InstanceId"])

    def list_words(self, label: str, value: str) -> list[str]:
        states = "Name=instance-state-name,Values=pending,running,stopping,stopped,shutting-down"
        wanted = ["--filters", f"Name=tag:dlq-{label},Values={value}", states]
        return [*_EC2, "describe-instances", *wanted]

    def machines(self, printed: Any) -> list[RentedMachine]:
        found = [one for some in printed["Reservations"] for one in some["Instances"]]
        return [
            RentedMachine(tag["Value"], one["InstanceId"], one["State"]["Name"] != "stopped")
            for one in found
            for tag in one["Tags"]
            if tag["Key"] == "dlq-request"
        ]

    def stop_words(self, instance_id: str) -> list[str]:
        return [*_EC2, "terminate-instances", "--instance-ids", instance_id]

    def instance_word(self, asked: MachineRequest) -> str:
        return '"$(cat /var/lib/cloud/data/instance-id)"'


class GoogleCompute:
    """The name of an instance is the request id, and is taken once in its zone."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._template = setting(settings, "instance_template")
        self._zone = setting(settings, "zone")

    def start_words(self, asked: MachineRequest) -> list[str]:
        return [
            *_GCE, "create", asked.request_id, "--zone", self._zone, "--format", "json",
            "--source-instance-template", self._template,
            "--labels", f"dlq-request={asked.request_id},dlq-pool={asked.pool}",
            "--metadata-from-file", "startup-script=/dev/stdin",
        ]  # fmt: skip

    def started_id(self, printed: Any) -> str:
        return str(printed[0]["name"])

    def list_words(self, label: str, value: str) -> list[str]:
        wanted = f"labels.dlq-{label}={value}"
        return [*_GCE, "list", "--zones", self._zone, "--filter", wanted, "--format", "json"]

    def machines(self, printed: Any) -> list[RentedMachine]:
        over = ("TERMINATED", "STOPPED", "SUSPENDED")
        return [
            RentedMachine(one["labels"]["dlq-request"], one["name"], one["status"] not in over)
            for one in printed
        ]

    def stop_words(self, instance_id: str) -> list[str]:
        return [*_GCE, "delete", instance_id, "--zone", self._zone, "--quiet", "--format", "json"]

    def instance_word(self, asked: MachineRequest) -> str:
        return shlex.quote(asked.request_id)


class CloudMachines:
    """See `MachineMaker`."""

    def __init__(self, vendor: CloudVendor, options: list[str], *, dry: bool) -> None:
        self._vendor, self._options, self._dry = vendor, options, dry

    def start(self, asked: MachineRequest) -> str:
        there = self._there(asked.request_id)
        if there:
            return there[0]
        words = self._words(asked)
        if self._dry:
            raise RefusedCall(f"dry_run: {_shown(words)}")
        try:
            return self._vendor.started_id(command_json(words, text=self._script(asked)))
        except (LookupError, TypeError) as error:
            raise RefusedCall(f"{words[0]} printed no instance: {error!r}") from None

    def stop(self, request_id: str) -> bool:
        for instance_id in self._there(request_id):
            words = self._vendor.stop_words(instance_id)
            if self._dry:
                raise RefusedCall(f"dry_run: {_shown(words)}")
            command_json(words)
        return not self._there(request_id)

    def listed(self, pool: str) -> list[tuple[str, str]]:
        return [
            (one.request_id, one.instance_id) for one in self._listed("pool", pool) if one.lives
        ]

    def check(self, asked: MachineRequest) -> list[str]:
        """The command of a start, and whether the vendor answers."""
        there = len(self.listed(asked.pool))
        shown = _shown(self._words(asked))
        return [f"a start would run: {shown}", f"machines of pool {asked.pool}: {there}"]

    def _words(self, asked: MachineRequest) -> list[str]:
        return [*self._vendor.start_words(asked), *self._options]

    def _script(self, asked: MachineRequest) -> str:
        joined = join_script(
            asked, token_file=_TOKEN, state=_STATE_DIR, instance=self._vendor.instance_word(asked)
        )
        return (
            f"#!/bin/sh\numask 077\nprintf '%s\\n' {shlex.quote(asked.token)} >{_TOKEN}\n{joined}"
        )

    def _there(self, request_id: str) -> list[str]:
        listed = self._listed("request", request_id)
        return [one.instance_id for one in listed if one.request_id == request_id]

    def _listed(self, label: str, value: str) -> list[RentedMachine]:
        words = self._vendor.list_words(label, value)
        try:
            return self._vendor.machines(command_json(words))
        except (LookupError, TypeError) as error:
            raise RefusedCall(f"{words[0]} printed no list of instances: {error!r}") from None


_EC2 = ("aws", "ec2", "--output", "json", "--no-cli-pager")
_GCE = ("gcloud", "compute", "instances")
_VENDORS: Mapping[str, Callable[[Mapping[str, Any]], CloudVendor]] = {
    "aws": AmazonEc2,
    "google": GoogleCompute,
}


def cloud_machines(settings: Mapping[str, Any]) -> MachineMaker:
    """The machines of the vendor in the settings."""
    name = setting(settings, "vendor")
    if name not in _VENDORS:
        raise RefusedCall(f"vendor in the settings is none of {', '.join(_VENDORS)}")
    options = setting(settings, "options", [])
    return CloudMachines(_VENDORS[name](settings), options, dry=setting(settings, "dry_run", False))


def _shown(words: list[str]) -> str:
    """A command on one line, as a shell takes it; its script is on standard input."""
    return shlex.join(words)


if __name__ == "__main__":
    run_program(cloud_machines)
