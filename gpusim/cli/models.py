"""Models: list, show, new."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gpusim.cli.console import emit_result, help_without_command, refusing_file_errors, report_written
from gpusim.cli.options import FormatOption, pairs_of, size_of

app = typer.Typer(help="List, show and make models.", callback=help_without_command, invoke_without_command=True)


@app.command("list")
def models_list(output: FormatOption = "table") -> None:
    """List the models that ship, with their weights and the operations of a forward pass."""
    from gpusim.models.loading import load_model, shipped_models
    from gpusim.report import graph_tables

    models = [load_model(name) for name in shipped_models()]
    summaries = [graph_tables.model_summary(model, model.graph()) for model in models]
    emit_result(output, {"models": summaries}, lambda: [graph_tables.models_table(summaries)])


@app.command("show")
def models_show(
    name: Annotated[str, typer.Argument(help="Model: name, or a .yaml file.", metavar="NAME")],
    sizes: Annotated[
        list[str] | None,
        typer.Option("--set", help="Size of the model, such as batch or seq_len. May be repeated.", metavar="SIZE=N"),
    ] = None,
    output: FormatOption = "table",
) -> None:
    """Show one model: sizes, weights, operations, layers, and the source of its shape.

    JSON lists every layer.
    """
    from gpusim.models.loading import Model, open_model
    from gpusim.report import graph_tables, program_tables

    model = open_model(name)
    chosen = {name: size_of("--set", name, text) for name, text in pairs_of("--set", sizes).items()}
    if not isinstance(model, Model):
        program = model.graph(chosen)
        shown = program_tables.program_object(model, program)
        emit_result(output, shown, lambda: program_tables.program_tables(model, program))
        return
    graph = model.graph(chosen)
    emit_result(output, graph_tables.model_object(model, graph), lambda: graph_tables.model_tables(model, graph))


@app.command("new")
def models_new(
    config: Annotated[
        Path, typer.Option("--from", help="config.json of a model of Hugging Face's transformers.", metavar="CONFIG")
    ],
    output: Annotated[Path, typer.Option("-o", help="Model file to write.", metavar="FILE")],
    title: Annotated[str, typer.Option(help="What tables call it. Default: the name in the configuration.")] = "",
    source: Annotated[
        str, typer.Option(help="Where the configuration is from, such as its address. Default: its file.")
    ] = "",
) -> None:
    """Make a model file of a configuration: sizes and layers, without weights.

    Llama 2 and 3, Mistral, Mixtral, Qwen2, 2.5 and 3 with and without experts, Gemma 1 to 3, Phi 1 to 4, DeepSeek V2
    and V3, GPT-2, BERT and RoBERTa. transformers need not be installed.
    """
    from gpusim.models.configs.making import model_text
    from gpusim.models.loading import load_model

    with refusing_file_errors(config, "name the config.json of a model with --from"):
        text = model_text(config, title, source)
    with refusing_file_errors(output, "choose another file with -o"):
        _ = output.write_text(text, encoding="utf-8")
    graph = load_model(str(output)).graph()
    report_written(output, f"{graph.parameters:,} parameters")
