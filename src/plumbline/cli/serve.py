"""The command that answers: `plumbline serve`."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from plumbline.cli import options as take
from plumbline.cli.output import progress
from plumbline.config.imports import check_installed, extras, loaded, plugins

WHERE, BOUNDS = "Where it listens", "What clients may ask"
serve_app = typer.Typer(cls=take.Group)
Models = Annotated[
    list[str],
    typer.Argument(
        metavar="[NAME=]RUN|MODEL...",
        help="A run (its last model), a model directory, GGUF file, address or hub name; NAME is what clients ask for.",
    ),
]
Host = Annotated[str, typer.Option(rich_help_panel=WHERE, help="Any other than this machine's own needs --token-env.")]
Port = Annotated[int, typer.Option(min=0, max=65535, rich_help_panel=WHERE, help="0 takes a free one.")]
TokenEnv = Annotated[
    str | None,
    typer.Option(metavar="NAME", rich_help_panel=WHERE, help="The environment variable with the token that is asked."),
]
MostTokens = Annotated[int, typer.Option("--max-tokens", min=1, rich_help_panel=BOUNDS, help="Of an answer.")]
MostRequests = Annotated[int, typer.Option("--max-requests", min=1, rich_help_panel=BOUNDS, help="In flight.")]
MostAnswers = Annotated[int, typer.Option("--max-n", min=1, rich_help_panel=BOUNDS, help="Answers to one request.")]
MostBytes = Annotated[int, typer.Option("--max-bytes", min=1, rich_help_panel=BOUNDS, help="Of a request's body.")]
Timeout = Annotated[float, typer.Option(min=0.1, rich_help_panel=BOUNDS, help="Seconds for a request's answers.")]
Grace = Annotated[float, typer.Option(min=1, rich_help_panel=WHERE, help="Seconds for running requests at the end.")]
Engine = Annotated[
    str | None,
    typer.Option(
        metavar="vllm",
        rich_help_panel=take.MODEL,
        help="Let a vLLM server that is started for it draw (autoregressive models).",
    ),
]
Log = Annotated[
    Path | None, typer.Option(metavar="FILE", rich_help_panel=take.OUTPUT, help="Add a JSON line for each request.")
]
Routes = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE.yaml",
        rich_help_panel=take.MODEL,
        help="Serve a further model, `router`: a table says which model does which job (`plumbline route` writes one).",
    ),
]
RouteLog = Annotated[
    Path | None,
    typer.Option(metavar="FILE", rich_help_panel=take.OUTPUT, help="With --routes: add a JSON line for each decision."),
]
LogContents = Annotated[
    bool, typer.Option("--log-contents", rich_help_panel=take.OUTPUT, help="With --log: messages and answers, too.")
]
Agent = Annotated[
    bool,
    typer.Option("--agent", rich_help_panel=take.MODEL, help="Also answer browser agents: each model as NAME-agent."),
]


@serve_app.command(
    epilog="Examples: `plumbline serve runs/mine` · "
    "`plumbline serve small=runs/a/models/rl large=models/smollm2-135m --routes routes.yaml` · "
    "`SECRET=... plumbline serve runs/mine --host 0.0.0.0 --token-env SECRET --log requests.jsonl`"
)
def serve(
    models: Models,
    host: Host = "127.0.0.1",
    port: Port = 8000,
    token_env: TokenEnv = None,
    grace: Grace = 30.0,
    max_tokens: MostTokens = 4096,
    max_requests: MostRequests = 64,
    max_n: MostAnswers = 16,
    max_bytes: MostBytes = 1 << 20,
    timeout: Timeout = 120.0,
    engine: Engine = None,
    agent: Agent = False,
    family: take.Family = None,
    device: take.Device = "auto",
    dtype: take.Dtype = None,
    rows_at_once: take.RowsAtOnce = None,
    chat_template: take.ChatTemplate = None,
    log: Log = None,
    log_contents: LogContents = False,
    routes: Routes = None,
    route_log: RouteLog = None,
    trust_code: take.TrustCode = False,  # noqa: ARG001
) -> None:
    """Answer OpenAI-compatible requests with one or several models of any family, until it is told to end.

    A page to try them at /; POST /v1/chat/completions, GET /v1/models, /healthz, /metrics (Prometheus) and
    /openapi.json. A model decodes as its own run evaluated it, but for what a request says.
    """
    check_installed("serving", extras().get("serve", ()))
    from dataclasses import replace

    from plumbline.checks.diagnosis.routes import read_routes
    from plumbline.errors import RecipeError
    from plumbline.evaluation.models import ModelOptions
    from plumbline.serve.limits import PUBLIC, Limits
    from plumbline.serve.opening import named_models, open_models
    from plumbline.serve.page import routes as page
    from plumbline.serve.router import open_router
    from plumbline.serve.running import Serving, token_of
    from plumbline.serve.running import serve as run_server
    from plumbline.serve.served import Served

    if engine not in {None, "vllm"}:
        raise RecipeError(f"there is no engine {engine}", "give vllm, or leave out --engine")
    limits = Limits(body=max_bytes, tokens=max_tokens, answers=max_n, requests=max_requests, seconds=timeout)
    serving = Serving(host=host, port=port, limits=limits, grace=grace, log=log, log_contents=log_contents)
    serving = replace(serving, token=token_of(token_env, serving))
    options = ModelOptions(
        family=family,
        device=device,
        dtype=dtype,
        rows_at_once=rows_at_once,
        chat_template=chat_template,
        engine=engine,
    )
    if route_log is not None and routes is None:
        raise RecipeError("--route-log is of a router, and there is none", "add --routes FILE.yaml")
    planner = plugins("plumbline.serve").get("agent")
    if agent and planner is None:
        raise RecipeError("no installed package answers browser agents", "install one, or leave out --agent")
    named, table = named_models(models), None if routes is None else read_routes(routes)

    def opening() -> Sequence[Served]:
        with progress() as view:
            opened = open_models(named, options, view)
        if planner is not None and agent:
            opened = loaded(planner, "planner of a browser agent")(opened, named)
        if table is not None:
            opened.append(open_router(table, opened, named, route_log))
        return opened

    run_server(opening, serving, partial(typer.echo, err=True), page.routes(named), PUBLIC | page.PUBLIC)


def add(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.add_typer(serve_app)
