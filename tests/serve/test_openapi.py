"""The server's own OpenAPI page is true: requests made from it are answered as it says, and so are
those against it."""

import httpx
import pytest
from hypothesis import HealthCheck, given, settings

from plumbline.serve.app import openapi
from tests.serve.serving import RequestLimits, Scripted, ScriptedText, running

schemathesis = pytest.importorskip("schemathesis", reason="schemathesis is not installed")
EXAMPLES = settings(
    max_examples=25, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)


@pytest.fixture(scope="module")
def page():
    with running(
        [ScriptedText(Scripted(), retries=0)], limits=RequestLimits(tokens=64, answers=3)
    ) as server:
        yield schemathesis.openapi.from_url(f"{server.address}/openapi.json")
        assert httpx.get(f"{server.address}/healthz").is_success


@pytest.mark.parametrize("mode", list(schemathesis.GenerationMode), ids=lambda mode: mode.value)
def test_every_request_has_an_answer_that_the_page_declares(page, mode):
    from schemathesis import checks

    held = [checks.not_a_server_error, checks.status_code_conformance, checks.content_type_conformance,
            checks.response_schema_conformance, checks.negative_data_rejection]  # fmt: skip
    seen = set()
    for operation in (each.ok() for each in page.get_all_operations()):

        @EXAMPLES
        @given(case=operation.as_strategy(generation_mode=mode))
        def holds(case):
            case.call_and_validate(checks=held)
            seen.add(case.operation.label)

        if mode.is_positive or operation.body:
            holds()
    assert "POST /v1/chat/completions" in seen


def test_the_page_names_the_models_and_the_limits():
    body = openapi({"a": Scripted("a")}, RequestLimits(tokens=7, answers=2))["components"][
        "schemas"
    ]["ChatBody"]["properties"]
    assert body["model"]["enum"] == ["a"]
    assert body["n"]["anyOf"][0]["maximum"] == 2
    assert [
        body[name]["anyOf"][0]["maximum"] for name in ("max_tokens", "max_completion_tokens")
    ] == [7, 7]
