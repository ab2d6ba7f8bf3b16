from __future__ import annotations

import json
from typing import Any

import pytest

from treadle_http.errors import error_in_answer, error_of, retry_after

NOON = 1_767_268_800.0  # 2026-01-01 12:00:00 UTC


def kind(status: int, body: Any, headers: dict[str, str] | None = None) -> str:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return error_of(status, headers or {}, raw).kind


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        (429, {"error": {"message": "exceeded your current quota", "details": [{"retryDelay": "48s"}]}}, "rate_limit"),
        (
            429,
            {
                "error": {
                    "message": "exceeded your current quota",
                    "details": [
                        {"violations": [{"quotaId": "GenerateRequestsPerDayPerProject"}]},
                        {"retryDelay": "48s"},
                    ],
                }
            },
            "quota",
        ),
        (401, {"error": {"message": "no"}}, "auth"),
        (403, {"detail": "Forbidden"}, "auth"),
        (400, {"code": "Client specified an invalid argument", "error": "Incorrect API key provided: x"}, "auth"),
        (400, [{"error": {"code": 400, "details": [{"reason": "API_KEY_INVALID"}], "message": "bad"}}], "auth"),
        (404, {"error": {"code": "model_not_found", "message": "no"}}, "not_found"),
        (400, {"error": {"code": "model_not_found", "message": "no"}}, "not_found"),
        (400, {"error": {"code": "context_length_exceeded", "message": "long"}}, "context_overflow"),
        (413, b"", "context_overflow"),
        (429, {"error": {"message": "This model's maximum context length is 8192 tokens"}}, "context_overflow"),
        (400, {"error": {"message": "temperature must be below 2"}}, "bad_request"),
        (422, {"detail": [{"loc": ["body", "n"], "msg": "Extra inputs are not permitted"}]}, "bad_request"),
        (429, {"error": {"code": "rate_limit_exceeded", "message": "slow down"}}, "rate_limit"),
        (429, {"error": {"code": "insufficient_quota", "message": "pay"}}, "quota"),
        (402, {"error": {"message": "Insufficient Balance"}}, "quota"),
        (503, b"<html><title>503</title></html>", "overloaded"),
        (529, {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}, "overloaded"),
        (500, {"error": {"message": "x"}}, "server"),
        (502, b"<html>", "server"),
        (504, b"", "server"),
        (400, {"error": {"code": "tool_use_failed", "message": "x"}}, "tool_use_failed"),
        (418, b"\xff\xfe", "bad_request"),
    ],
)
def test_status_and_body_give_one_kind(status: int, body: Any, expected: str) -> None:
    assert kind(status, body) == expected


def test_a_rate_limit_that_says_not_to_retry_is_a_quota() -> None:
    assert kind(429, {"error": {"message": "x"}}, {"x-should-retry": "false"}) == "quota"


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"error": {"message": "said"}}, "said"),
        ({"error": "said"}, "said"),
        ({"detail": "said"}, "said"),
        ({"message": "said"}, "said"),
        ({"detail": [{"msg": "a"}, {"msg": "b"}]}, "a; b"),
        (b"<html><head><title>502 Bad\nGateway</title></head></html>", "502 Bad Gateway"),
        (b"<p>Too <b>busy</b></p>", "Too busy"),
        (b"plain words", "plain words"),
        (b"", "The server answered with status 400 and no words."),
        (
            {"error": {"message": "Provider returned error", "metadata": {"raw": '{"error":{"message":"deep"}}'}}},
            "deep",
        ),
    ],
)
def test_the_words_are_found_in_any_body(body: Any, words: str) -> None:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    error = error_of(400, {}, raw)
    assert words in error.message
    assert error.raw == raw.decode()


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "20"}, 20.0),
        ({"retry-after": "1", "retry-after-ms": "976"}, 0.976),
        ({"retry-after": "Thu, 01 Jan 2026 12:00:30 GMT"}, 30.0),
        ({"retry-after": "Thu, 01 Jan 2026 11:00:00 GMT"}, 0.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "-5"}, None),
        ({"retry-after": "inf"}, None),
        ({}, None),
    ],
)
def test_headers_say_when_to_come_back(headers: dict[str, str], seconds: float | None) -> None:
    found = retry_after(headers, NOON)
    assert found == (None if seconds is None else pytest.approx(seconds))


@pytest.mark.parametrize(
    ("body", "seconds"),
    [
        ({"error": {"message": "Please try again in 976ms."}}, 0.976),
        ({"error": {"message": "Please try again in 6m0.5s. Visit"}}, 360.5),
        ({"error": {"message": "Please try again in 1h2m3s"}}, 3723.0),
        ({"error": {"message": "Please retry after 24 seconds."}}, 24.0),
        ({"error": {"details": [{"@type": "x/google.rpc.RetryInfo", "retryDelay": "34.4s"}]}}, 34.4),
        ({"error": {"message": "try again later"}}, None),
    ],
)
def test_bodies_say_when_to_come_back(body: Any, seconds: float | None) -> None:
    found = error_of(429, {}, json.dumps(body).encode()).retry_after_seconds
    assert found == (None if seconds is None else pytest.approx(seconds))


def test_a_header_counts_more_than_words() -> None:
    body = json.dumps({"error": {"message": "try again in 9s"}}).encode()
    assert error_of(429, {"retry-after": "2"}, body).retry_after_seconds == 2.0


def test_a_redirect_names_where_the_server_sends_the_call() -> None:
    error = error_of(308, {"location": "https://other.example/v1"}, b"")
    assert error.kind == "bad_request" and "https://other.example/v1" in str(error) and "base URL" in str(error)


@pytest.mark.parametrize(
    ("value", "expected", "status"),
    [
        ({"error": {"message": "busy", "type": "overloaded_error"}}, "overloaded", None),
        ({"error": {"message": "slow", "code": 429}}, "rate_limit", 429),
        ({"error": {"message": "down", "code": 502}}, "server", 502),
        ({"error": {"message": "odd"}}, "server", None),
        ({"error": "odd"}, "server", None),
        ({"error": {"message": "x", "type": "invalid_request_error"}}, "bad_request", None),
        ({"error": {"message": "x", "code": "insufficient_quota"}}, "quota", None),
        ({"error": {"message": "x", "type": "not_found_error"}}, "not_found", None),
        ({"error": {"message": "x", "type": "request_too_large"}}, "context_overflow", None),
        ({"error": {"message": "x", "type": "permission_error"}}, "auth", None),
        ({"error": {"message": "x", "code": "invalid_prompt"}}, "bad_request", None),
        ({"error": {"message": "x", "code": "rate_limit_exceeded"}}, "rate_limit", None),
        ({"error": {"message": "x", "type": "billing_error"}}, "quota", None),
    ],
)
def test_an_error_inside_an_answer_has_a_kind_without_a_status(value: Any, expected: str, status: int | None) -> None:
    error = error_in_answer(value, json.dumps(value))
    assert (error.kind, error.status) == (expected, status)
