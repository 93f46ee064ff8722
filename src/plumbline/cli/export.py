"""The command that hands a trained model on: `plumbline export`."""

from pathlib import Path
from typing import Annotated

import typer

from plumbline.cli import options as take
from plumbline.cli.output import print_json, print_text, progress

Given = Annotated[
    str,
    typer.Argument(metavar="RUN|MODEL", help="A run's folder (its last model), a model directory, GGUF file or name."),
]
Out = Annotated[Path, typer.Option(metavar="FOLDER", help="A new or empty folder, or one that an export was put into.")]
Kind = Annotated[str, typer.Option(metavar="merged|adapter|gguf", help="What is written.")]
Dtype = Annotated[
    str | None,
    typer.Option(metavar="float32|bfloat16|float16", help="Of merged weights; by default float32, which is exact."),
]
Gguf = Annotated[
    str | None, typer.Option(metavar="f32|f16|bf16|q8_0", help="How a GGUF file keeps matrices; by default f16.")
]
Evaluate = Annotated[
    int | None,
    typer.Option(min=1, metavar="N", help="Measure the change in reward on N held-out examples of the model's task."),
]
Base = Annotated[
    str | None, typer.Option(metavar="NAME", help="The base's public name, where its directory does not say it.")
]


export_app = typer.Typer(cls=take.Group)


@export_app.command(
    epilog="Examples: `plumbline export runs/mine --out shared/mine --dtype bfloat16 --evaluate 100` · "
    "`plumbline export runs/mine --out shared/mine-gguf --kind gguf --gguf q8_0` · "
    "`plumbline export runs/mine/models/sft --out shared/sft --kind adapter`"
)
def export(
    model: Given,
    out: Out,
    kind: Kind = "merged",
    dtype: Dtype = None,
    gguf: Gguf = None,
    evaluate: Evaluate = None,
    base: Base = None,
    trust_code: take.TrustCode = False,  # noqa: ARG001
    as_json: take.Json = False,
) -> None:
    """Write a trained model for others, with a model card and a licence note; nothing that we did not make is touched.

    merged is an ordinary transformers directory (the families other than autoregressive keep their own format), adapter
    what LoRA trained, without its base, and gguf one file for llama.cpp. What is written is read back and compared.
    """
    from plumbline.policies.export.export import Export
    from plumbline.policies.export.export import export as write

    what = Export(model=model, out=out, kind=kind, dtype=dtype, gguf=gguf, evaluate=evaluate, base=base)
    with progress() as view:
        done = write(what, view)
    print_json(done.plain()) if as_json else print_text(done.text())
