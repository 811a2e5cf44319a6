"""The description of the API: it has every call and every read, and refers to nothing missing."""

from __future__ import annotations

import json
import re
from typing import Any

from dlq_web.api import streams
from dlq_web.api.openapi import description
from dlq_web.api.resources import RESOURCES
from dlq_web.api.stream_reads import EVENTS, LINES, LOGS, PLAIN, SSE, STREAMS
from dlq_web.line.methods import METHODS
from support.api_fuzz import ENDLESS, without_endless


def test_every_read_and_every_call_is_described() -> None:
    paths = description()["paths"]
    reads = {f"/v1{one.path}" for one in RESOURCES}
    reads |= {f"/v1{one.path}" for one in STREAMS}
    assert reads == {path for path in paths if path.startswith("/v1/")}
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


def test_each_stream_that_is_served_is_described() -> None:
    served = {route.path for route in streams.routes()}
    assert served == {f"/v1{one.path}" for one in STREAMS}


def told_of(path: str) -> dict[str, Any]:
    told: dict[str, Any] = description()["paths"][f"/v1{path}"]["get"]
    return told


def test_a_stream_tells_its_parameters_and_content_types() -> None:
    said = {
        one.path: [(param["in"], param["name"]) for param in told_of(one.path)["parameters"]]
        for one in STREAMS
    }
    assert said == {
        EVENTS.path: [("query", "after"), ("header", "Last-Event-ID")],
        LOGS.path: [
            ("path", "job"), ("query", "attempt"), ("query", "rank"), ("query", "offset"),
            ("query", "follow"),
        ],
    }  # fmt: skip
    kinds = {one.path: set(told_of(one.path)["responses"]["200"]["content"]) for one in STREAMS}
    assert kinds == {EVENTS.path: {SSE, LINES}, LOGS.path: {PLAIN, LINES}}
    assert all("Accept" in told_of(one.path)["description"] for one in STREAMS)


def test_a_stream_tells_its_refusals_with_the_schema_of_errors() -> None:
    statuses = {one.path: sorted(told_of(one.path)["responses"]) for one in STREAMS}
    assert statuses == {
        EVENTS.path: ["200", "400", "401", "403", "410", "429", "503", "default"],
        LOGS.path: ["200", "400", "401", "403", "404", "429", "503", "default"],
    }
    for one in STREAMS:
        for status, told in told_of(one.path)["responses"].items():
            if status != "200":
                schema = told["content"]["application/json"]["schema"]
                assert schema == {"$ref": "#/components/schemas/Error"}
            assert ("Retry-After" in told.get("headers", {})) == (status in ("429", "503"))


def test_the_program_of_hostile_calls_leaves_out_streams_that_are_there() -> None:
    """And nothing else: without them it would wait for minutes."""
    assert set(ENDLESS) == {f"/v1{one.path}" for one in STREAMS}
    assert without_endless() == [
        "--exclude-path", "/v1/events", "--exclude-path", "/v1/jobs/{job}/logs",
    ]  # fmt: skip
