"""The description of the API: it has every call and every read, and refers to nothing missing."""

from __future__ import annotations

import json
import re

from dlq_web.api.openapi import description
from dlq_web.api.resources import RESOURCES
from dlq_web.line.methods import METHODS


def test_every_read_and_every_call_is_described() -> None:
    paths = description()["paths"]
    assert {f"/v1{one.path}" for one in RESOURCES} <= paths.keys()
    unary = {f"/api{path}" for path, method in METHODS.items() if not method.streams}
    assert unary == {path for path in paths if path.startswith("/api/")}


def test_every_reference_leads_somewhere() -> None:
    told = description()
    schemas = told["components"]["schemas"]
    named = set(re.findall(r'"#/components/schemas/([^"]+)"', json.dumps(told)))
    assert named <= schemas.keys()


def test_each_operation_has_a_name_of_its_own() -> None:
    paths = description()["paths"]
    names = [one["operationId"] for methods in paths.values() for one in methods.values()]
    assert len(names) == len(set(names))


def test_every_parameter_of_a_path_is_one() -> None:
    for path, methods in description()["paths"].items():
        told = [one["name"] for one in methods.get("get", {}).get("parameters", ())
                if one["in"] == "path"]  # fmt: skip
        if "get" in methods:
            assert told == re.findall(r"\{(\w+)\}", path)


def test_no_call_of_nodes_and_no_certificate_is_offered() -> None:
    services = {path.split("/")[1] for path in METHODS}
    assert not services & {
        "dlq.v1.AgentService",
        "dlq.v1.JoinService",
        "dlq.v1.IdentityService",
    }
