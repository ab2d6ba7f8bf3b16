from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
from typing import Any

import anyio
import httpx
import pytest

from treadle.plugin import Assembly, Model, ProviderError, Reply, Request, Text, UsageError, as_message
from treadle_http import Http, HttpSettings, Profile

SECRET = "sk-very-secret-0123456789"
ONE = b'data: {"choices":[{"index":0,"delta":{"content":"one"}}]}\n\n'
END = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
DONE = b"data: [DONE]\n\n"


async def good(peer: Any) -> None:
    await peer.request()
    await peer.start()
    await peer.send(ONE + END + DONE)
    await peer.finish()


def provider_model(http: Http, ref: str) -> Model:
    model = http.open_model(ref)
    assert model is not None
    return model


# --- references, keys, addresses ------------------------------------------------------------------------------


@pytest.mark.parametrize("ref", ["openai:gpt-5", "ollama:qwen3:0.6b", "openrouter:a/b:free", "azure:x", "mistral:m"])
def test_known_providers_are_opened(ref: str) -> None:
    model = provider_model(Http(), ref)
    assert (model.ref, model.family, model.window_tokens) == (ref, f"{ref.partition(':')[0]}-chat", None)


@pytest.mark.parametrize("ref", ["unknown:x", "openai", "", "local:smollm2", "sqlite:///a.db"])
def test_other_references_are_left_to_others(ref: str) -> None:
    assert Http().open_model(ref) is None


@pytest.mark.parametrize(("ref", "native"), [("openai:gpt-5", True), ("deepseek:deepseek-chat", False)])
def test_a_model_writes_structured_answers_itself_where_its_server_takes_a_schema(ref: str, native: bool) -> None:
    assert getattr(Http().open_model(ref), "native_output", None) is native


def test_a_reference_without_a_model_is_an_error_that_says_how() -> None:
    with pytest.raises(UsageError, match="openai:MODEL"):
        Http().open_model("openai:")


@pytest.mark.parametrize("name", ["", "a:b"])
def test_a_provider_without_a_usable_name_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="provider name"):
        Http(HttpSettings(providers=(Profile(name=name),)))


async def test_a_missing_key_is_named_when_the_model_is_first_used(ask: Any) -> None:
    model = provider_model(Http(), "openai:gpt-5")
    with pytest.raises(ProviderError, match="OPENAI_API_KEY") as caught:
        await ask(model)
    assert caught.value.kind == "auth"


async def test_the_key_and_the_address_are_read_at_each_call(
    serve: Any, ask: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    heads: list[bytes] = []

    async def handle(peer: Any) -> None:
        await good(peer)
        heads.append(peer.head)

    model = provider_model(Http(), "openai:gpt-5")
    async with serve(handle) as url:
        monkeypatch.setenv("OPENAI_BASE_URL", url + "/")
        for key in ("first", " second\n"):
            monkeypatch.setenv("OPENAI_API_KEY", key)
            await ask(model)
    assert b"authorization: Bearer first\r\n" in heads[0] and b"authorization: Bearer second\r\n" in heads[1]
    assert heads[0].startswith(b"POST /v1/chat/completions HTTP/1.1\r\n")


@pytest.mark.parametrize(
    ("version", "target"),
    [
        ("2024-10-21", b"/v1/openai/deployments/my%20gpt/chat/completions?api-version=2024-10-21"),
        ("", b"/v1/openai/v1/chat/completions"),
    ],
)
async def test_azure_has_its_own_paths_and_header(
    version: str, target: bytes, serve: Any, ask: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    heads: list[bytes] = []

    async def handle(peer: Any) -> None:
        await good(peer)
        heads.append(peer.head)

    monkeypatch.setenv("AZURE_OPENAI_API_KEY", SECRET)
    monkeypatch.setenv("AZURE_OPENAI_API_VERSION", version)
    async with serve(handle) as url:
        monkeypatch.setenv("AZURE_OPENAI_ENDPOINT", url)
        await ask(provider_model(Http(), "azure:my gpt"))
    assert heads[0].startswith(b"POST " + target + b" HTTP/1.1") and f"api-key: {SECRET}".encode() in heads[0]


async def test_a_key_that_the_server_repeats_is_not_shown(
    serve: Any, ask: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def handle(peer: Any) -> None:
        await peer.request()
        await peer.start("401 Unauthorized", kind="application/json")
        await peer.send(json.dumps({"error": {"message": f"Incorrect API key: {SECRET}"}}).encode())
        await peer.finish()

    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    model = provider_model(Http(), "openai:gpt-5")
    async with serve(handle) as url:
        monkeypatch.setenv("OPENAI_BASE_URL", url)
        with pytest.raises(ProviderError) as caught:
            await ask(model)
    error = caught.value
    assert error.kind == "auth" and "OPENAI_API_KEY" in str(error)
    assert SECRET not in f"{error} {error!r} {error.raw} {model!r} {vars(model)}"


@pytest.mark.parametrize("key", ["a b", "schlüssel", "a\nb"])
async def test_a_key_that_no_header_can_hold_is_refused_unseen(
    key: str, ask: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", key)
    with pytest.raises(ProviderError, match="OPENAI_API_KEY") as caught:
        await ask(provider_model(Http(), "openai:gpt-5"))
    assert key not in str(caught.value)


@pytest.mark.parametrize("url", ["localhost:8000/v1", "ftp://x.example", "http://[broken", "http://", "http://h:port"])
async def test_an_address_that_is_none_is_a_bad_request(url: str, at: Any, ask: Any) -> None:
    with pytest.raises(ProviderError) as caught:
        await ask(at(url))
    assert caught.value.kind == "bad_request"


async def test_a_password_in_an_address_is_not_shown(at: Any, ask: Any) -> None:
    with pytest.raises(ProviderError, match="was not reached") as caught:
        await ask(at("http://user:pass-word@127.0.0.1:9/v1"))
    assert "pass-word" not in str(caught.value)


async def test_a_server_that_is_not_there_is_interrupted_and_says_where(at: Any, ask: Any) -> None:
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    port = listener.extra(anyio.abc.SocketAttribute.local_port)
    await listener.aclose()
    with pytest.raises(ProviderError, match="was not reached") as caught:
        await ask(at(f"http://127.0.0.1:{port}/v1"))
    assert caught.value.kind == "interrupted" and str(port) in str(caught.value)


async def test_a_redirect_is_not_followed(serve: Any, at: Any, ask: Any) -> None:
    async def handle(peer: Any) -> None:
        await peer.request()
        await peer.start("308 Permanent Redirect", more="location: https://other.example/\r\n")
        await peer.finish()

    async with serve(handle) as url:
        with pytest.raises(ProviderError, match=r"other\.example"):
            await ask(at(url))


# --- answers ---------------------------------------------------------------------------------------------------


async def test_pieces_arrive_while_the_server_still_writes(serve: Any, at: Any) -> None:
    seen = anyio.Event()

    async def handle(peer: Any) -> None:
        await peer.request()
        await peer.start()
        await peer.send(ONE)
        await seen.wait()
        await peer.send(END + DONE)
        await peer.finish()

    assembly = Assembly()
    async with serve(handle) as url, at(url).stream(Request(messages=(as_message("x"),))) as pieces:
        async for piece in pieces:
            assembly.feed(piece)
            seen.set()
    assert assembly.parts == (Text("one"),)


async def test_events_without_their_content_type_are_still_read(serve: Any, at: Any, ask: Any) -> None:
    async def handle(peer: Any) -> None:
        await peer.request()
        await peer.start(kind="text/plain")
        await peer.send(b": hello\n\n" + ONE + END + DONE)
        await peer.finish()

    async with serve(handle) as url:
        assert (await ask(at(url))).text == "one"


async def test_a_page_of_html_with_status_200_is_a_server_error(serve: Any, at: Any, ask: Any) -> None:
    async def handle(peer: Any) -> None:
        await peer.request()
        await peer.start(kind="text/html")
        await peer.send(b"<html>Log in first</html>")
        await peer.finish()

    async with serve(handle) as url:
        with pytest.raises(ProviderError, match="not JSON") as caught:
            await ask(at(url))
    assert caught.value.kind == "server" and "Log in first" in caught.value.raw


async def test_a_reply_is_asked_for_whole_when_the_settings_say_so(serve: Any, at: Any, ask: Any) -> None:
    bodies: list[Any] = []

    async def handle(peer: Any) -> None:
        await peer.request()
        bodies.append(json.loads(peer.body))
        await peer.start(kind="application/json")
        await peer.send(b'\n \n{"choices":[{"message":{"content":"whole"},"finish_reason":"stop"}]}')
        await peer.finish()

    async with serve(handle) as url:
        assert (await ask(at(url, stream=False))).text == "whole"
    assert bodies[0]["stream"] is False and "stream_options" not in bodies[0]


async def test_an_end_that_came_before_the_connection_broke_counts(serve: Any, at: Any, ask: Any) -> None:
    async def handle(peer: Any) -> None:
        await peer.request()
        await peer.start()
        await peer.send(ONE + END)

    async with serve(handle) as url:
        reply: Reply = await ask(at(url))
    assert (reply.text, reply.finish) == ("one", "end")


async def test_an_answer_is_not_kept_waiting_for_the_end_of_the_connection(serve: Any, at: Any, ask: Any) -> None:
    async def handle(peer: Any) -> None:
        await peer.request()
        await peer.start()
        await peer.send(ONE + END + DONE)
        await peer.gone()

    with anyio.fail_after(5):
        async with serve(handle) as url:
            assert (await ask(at(url))).text == "one"


# --- time-outs and cancels -----------------------------------------------------------------------------------------


async def test_silence_before_the_first_byte_is_interrupted(serve: Any, at: Any, ask: Any) -> None:
    async def handle(peer: Any) -> None:
        await peer.request()
        await peer.gone()

    async with serve(handle) as url:
        with pytest.raises(ProviderError, match=r"sent nothing for 0\.1 seconds") as caught:
            await ask(at(url, first_byte_seconds=0.1))
    assert caught.value.kind == "interrupted"


async def test_silence_after_the_headers_counts_as_before_the_first_byte(serve: Any, at: Any, ask: Any) -> None:
    async def handle(peer: Any) -> None:
        await peer.request()
        await peer.start()
        await peer.gone()

    async with serve(handle) as url:
        with pytest.raises(ProviderError, match=r"sent nothing for 0\.1 seconds"):
            await ask(at(url, first_byte_seconds=0.1, idle_seconds=60))


async def test_silence_in_the_middle_is_interrupted_with_what_had_arrived(serve: Any, at: Any, ask: Any) -> None:
    async def handle(peer: Any) -> None:
        await peer.request()
        await peer.start()
        await peer.send(ONE)
        await peer.gone()

    async with serve(handle) as url:
        with pytest.raises(ProviderError, match=r"sent nothing for 0\.1 seconds") as caught:
            await ask(at(url, idle_seconds=0.1))
    assert (caught.value.kind, caught.value.partial) == ("interrupted", (Text("one"),))


async def test_a_comment_is_a_sign_of_life(serve: Any, at: Any, ask: Any) -> None:
    async def handle(peer: Any) -> None:
        await peer.request()
        await peer.start()
        for _ in range(8):  # four times the allowed silence in all
            await anyio.sleep(0.1)
            await peer.send(b":\n")
        await peer.send(b"\n" + ONE + END + DONE)
        await peer.finish()

    async with serve(handle) as url:
        assert (await ask(at(url, idle_seconds=0.2))).text == "one"


async def test_a_cancel_closes_the_connection_at_once(serve: Any, at: Any) -> None:
    noticed = anyio.Event()

    async def handle(peer: Any) -> None:
        await peer.request()
        await peer.start()
        await peer.send(ONE)
        await peer.gone()
        noticed.set()

    async with serve(handle) as url:
        with anyio.CancelScope() as scope:
            async with at(url).stream(Request(messages=(as_message("x"),))) as pieces:
                async for _ in pieces:
                    scope.cancel()
        with anyio.fail_after(5):
            await noticed.wait()
    assert scope.cancelled_caught


async def test_leaving_early_closes_the_connection_at_once(serve: Any, at: Any) -> None:
    noticed = anyio.Event()

    async def handle(peer: Any) -> None:
        await peer.request()
        await peer.start()
        await peer.send(ONE)
        await peer.gone()
        noticed.set()

    async with serve(handle) as url:
        async with at(url).stream(Request(messages=(as_message("x"),))) as pieces:
            await anext(pieces)
        with anyio.fail_after(5):
            await noticed.wait()


async def test_leaving_an_answer_of_which_thousands_of_chunks_have_arrived_leaves_nothing_behind(
    serve: Any, at: Any
) -> None:
    async def handle(peer: Any) -> None:
        await peer.request()
        await peer.start()
        # Less than the 64 KiB that one read of the socket takes.
        await peer.stream.send(b"%x\r\n%s\r\n" % (len(ONE), ONE) + b"1\r\n:\r\n" * 9000)
        await peer.gone()

    async with serve(handle) as url:
        async with at(url).stream(Request(messages=(as_message("x"),))) as pieces:
            await anext(pieces)
        del pieces
        gc.collect()  # what was left half read would be reported here, and warnings are errors


# --- clients ---------------------------------------------------------------------------------------------------------


async def test_calls_of_an_open_stack_share_a_connection(serve: Any, ask: Any) -> None:
    connections = 0

    async def handle(peer: Any) -> None:
        nonlocal connections
        connections += 1
        while True:
            await good(peer)

    async with serve(handle) as url:
        http = Http(HttpSettings(providers=(Profile(name="any", base_url=url, key_required=False),)))
        model = provider_model(http, "any:m")
        async with http.lifespan():
            for _ in range(3):
                await ask(model)
        assert connections == 1
        await ask(model)
    assert connections == 2


LIBRARIES = ["httpx", "httpx2"]


@pytest.mark.parametrize("library", LIBRARIES)
async def test_an_injected_client_is_used_as_it_is_and_left_open(library: str, serve: Any, at: Any, ask: Any) -> None:
    module = pytest.importorskip(library)
    heads: list[bytes] = []

    async def handle(peer: Any) -> None:
        await good(peer)
        heads.append(peer.head)

    async with serve(handle) as url, module.AsyncClient(headers={"x-team": "blue"}, trust_env=False) as client:
        assert (await ask(at(url, client=client))).text == "one"
        assert not client.is_closed
    assert b"x-team: blue" in heads[0]


@pytest.mark.parametrize("library", LIBRARIES)
async def test_faults_of_an_injected_client_are_provider_errors(library: str, serve: Any, at: Any, ask: Any) -> None:
    module = pytest.importorskip(library)

    async def handle(peer: Any) -> None:
        await peer.request()
        await peer.start()
        await peer.send(ONE)

    async with serve(handle) as url, module.AsyncClient(trust_env=False) as client:
        with pytest.raises(ProviderError, match="RemoteProtocolError") as caught:
            await ask(at(url, client=client))
        assert (caught.value.kind, caught.value.partial) == ("interrupted", (Text("one"),))
    with pytest.raises(ProviderError, match="was not reached"):
        async with module.AsyncClient(trust_env=False) as client:
            await ask(at("http://127.0.0.1:9/v1", client=client))


async def test_an_injected_clients_own_time_out_counts(serve: Any, at: Any, ask: Any) -> None:
    async def handle(peer: Any) -> None:
        await peer.request()
        await peer.gone()

    async with serve(handle) as url, httpx.AsyncClient(timeout=0.1, trust_env=False) as client:
        with pytest.raises(ProviderError, match="ReadTimeout") as caught:
            await ask(at(url, client=client))
    assert caught.value.kind == "interrupted"


def test_importing_the_plugin_imports_no_http_library() -> None:
    code = "import sys, treadle_http; print([m for m in sys.modules if 'httpx' in m or m in ('ssl', 'h11')])"
    path = os.pathsep.join(entry for entry in sys.path if entry)
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={**os.environ, "PYTHONPATH": path}
    )
    assert run.stdout.strip() == "[]"


# --- other wires -----------------------------------------------------------------------------------------------------

ANSWERS = {
    "anthropic": b'{"type":"message","content":[{"type":"text","text":"one"}],"stop_reason":"end_turn"}',
    "openai-responses": b'{"status":"completed","output":[{"type":"message","content":[{"type":"output_text",'
    b'"text":"one"}]}]}',
    "gemini": b'{"candidates":[{"content":{"parts":[{"text":"one"}]},"finishReason":"STOP"}]}',
}


@pytest.mark.parametrize(
    ("provider", "key", "base", "target", "header"),
    [
        ("anthropic", "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", b"/v1/messages", b"x-api-key: "),
        ("openai-responses", "OPENAI_API_KEY", "OPENAI_BASE_URL", b"/v1/responses", b"authorization: Bearer "),
        (
            "gemini",
            "GEMINI_API_KEY",
            "GOOGLE_GEMINI_BASE_URL",
            b"/v1beta/models/m:streamGenerateContent?alt=sse",
            b"x-goog-api-key: ",
        ),
        (
            "gemini",
            "GOOGLE_API_KEY",
            "GEMINI_BASE_URL",
            b"/v1beta/models/m:streamGenerateContent?alt=sse",
            b"x-goog-api-key: ",
        ),
    ],
)
async def test_each_provider_has_its_path_its_variables_and_its_header(
    provider: str,
    key: str,
    base: str,
    target: bytes,
    header: bytes,
    serve: Any,
    ask: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    heads: list[bytes] = []

    async def handle(peer: Any) -> None:
        await peer.request()
        heads.append(peer.head)
        await peer.start(kind="application/json")
        await peer.send(ANSWERS[provider])
        await peer.finish()

    monkeypatch.setenv(key, SECRET)
    async with serve(handle) as url:
        bare = url.removesuffix("/v1")
        # The version may stand in the variable too, but for the one that differs.
        for address in (bare, url) if provider == "anthropic" else (url,) if provider != "gemini" else (bare,):
            monkeypatch.setenv(base, address)
            assert (await ask(provider_model(Http(), f"{provider}:m"))).text == "one"
    assert all(head.startswith(b"POST " + target + b" HTTP/1.1\r\n") for head in heads)
    assert all(header + SECRET.encode() in head for head in heads)
    assert all((b"anthropic-version: 2023-06-01" in head) == (provider == "anthropic") for head in heads)


@pytest.mark.parametrize(
    ("ref", "family"),
    [
        ("anthropic:claude", "anthropic"),
        ("openai-responses:gpt-5", "openai-responses"),
        ("gemini:gemini-3-pro", "gemini"),
        ("llamacpp-messages:m", "llamacpp-messages"),
    ],
)
def test_each_wire_has_a_family_of_its_own(ref: str, family: str) -> None:
    assert provider_model(Http(), ref).family == family
