"""The command that answers: `plumbline serve`."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

from typer import Argument, Option, Typer

from plumbline.cli import options as take
from plumbline.cli.output import print_to_stderr, show_progress
from plumbline.config.imports import check_installed, extras, load_entry_point, plugins

serve_app = Typer(cls=take.CommandGroup)
of_place, of_bounds = (
    partial(Option, rich_help_panel=heading)
    for heading in ("Where it listens", "What clients may ask")
)
MODELS = (
    "A run (its last model), a model directory, GGUF file, address or hub name; NAME is what "
    "clients ask for."
)
HOST = "Any other than this machine's own needs --token-env."
TOKEN = "The environment variable with the token that is asked."  # noqa: S105 - a help text
ENGINE = "Let a vLLM server that is started for it draw (autoregressive models)."
AGENT = "Also answer browser agents: each model as NAME-agent."
CONTENTS = "With --log: messages and answers, too."


@serve_app.command(
    rich_help_panel=take.SHARE,
    epilog="Examples: `plumbline serve runs/mine` · "
    "`plumbline serve small=runs/a/models/rl large=models/smollm2-135m` · "
    "`SECRET=... plumbline serve runs/mine --host 0.0.0.0 --token-env SECRET --log requests.jsonl`",
)
def serve(
    models: Annotated[list[str], Argument(metavar="[NAME=]RUN|MODEL...", help=MODELS)],
    host: Annotated[str, of_place(help=HOST)] = "127.0.0.1",
    port: Annotated[int, of_place(min=0, max=65535, help="0 takes a free one.")] = 8000,
    token_env: Annotated[str | None, of_place(metavar="NAME", help=TOKEN)] = None,
    grace: Annotated[
        float, of_place(min=1, help="Seconds for running requests at the end.")
    ] = 30.0,
    max_tokens: Annotated[int, of_bounds(min=1, help="Of an answer.")] = 4096,
    max_requests: Annotated[int, of_bounds(min=1, help="In flight.")] = 64,
    max_n: Annotated[int, of_bounds(min=1, help="Answers to one request.")] = 16,
    max_bytes: Annotated[int, of_bounds(min=1, help="Of a request's body.")] = 1 << 20,
    timeout: Annotated[float, of_bounds(min=0.1, help="Seconds for a request's answers.")] = 120.0,
    engine: Annotated[str | None, take.of_model(metavar="vllm", help=ENGINE)] = None,
    agent: Annotated[bool, take.of_model("--agent", help=AGENT)] = False,
    family: take.Family = None,
    device: take.Device = "auto",
    dtype: take.Dtype = None,
    rows_at_once: take.RowsAtOnce = None,
    chat_template: take.ChatTemplate = None,
    log: Annotated[
        Path | None, take.of_output(metavar="FILE", help="Add a JSON line for each request.")
    ] = None,
    log_contents: Annotated[bool, take.of_output("--log-contents", help=CONTENTS)] = False,
    trust_code: take.TrustCode = False,
) -> None:
    """Answer OpenAI-compatible requests with one or several models of any family, until it is told
    to end.

    A page to try them at /; POST /v1/chat/completions, GET /v1/models, /healthz, /metrics
    (Prometheus) and /openapi.json. A model decodes as its own run evaluated it, but for what a
    request says.
    """
    check_installed("serving", extras().get("serve", ()))
    from dataclasses import replace

    from plumbline.errors import RecipeError
    from plumbline.policies.opening import ModelOptions
    from plumbline.serve.backend import Backend
    from plumbline.serve.limits import PUBLIC, RequestLimits
    from plumbline.serve.page import routes as page
    from plumbline.serve.served_models import named_models, open_models
    from plumbline.serve.server import ServerOptions, token_of
    from plumbline.serve.server import serve as run_server

    options = take.pick_arguments(ModelOptions, locals())
    if engine not in {None, "vllm"}:
        raise RecipeError(f"there is no engine {engine}", "give vllm, or leave out --engine")
    limits = RequestLimits(
        body=max_bytes, tokens=max_tokens, answers=max_n, requests=max_requests, seconds=timeout
    )
    serving = take.pick_arguments(ServerOptions, locals())
    serving = replace(serving, token=token_of(token_env, serving))
    planner = plugins("plumbline.serve").get("agent")
    if agent and planner is None:
        raise RecipeError(
            "no installed package answers browser agents", "install one, or leave out --agent"
        )
    named = named_models(models)

    def opening() -> Sequence[Backend]:
        with show_progress() as view:
            opened = open_models(named, options, view)
        if planner is not None and agent:
            opened = load_entry_point(planner, "planner of a browser agent")(opened, named)
        return opened

    run_server(opening, serving, print_to_stderr, page.routes(named), PUBLIC | page.PUBLIC)
