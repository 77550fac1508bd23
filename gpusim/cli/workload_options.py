"""A workload as commands take it, an operator in one word or a model with its options, and what it stands for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from gpusim.cli.console import refuse
from gpusim.cli.model_options import (
    FrameworkOptions,
    SharingOptions,
    WorkOptions,
    model_workload,
    refuse_contradictions,
)
from gpusim.cli.options import SimulationOptions, SpecOptions, changed_options, named

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpusim.studies.workload import GpuVariant, Workload

WORKLOADS = """WORKLOAD is an operator in one word, or a model as 'gpusim model' takes it.

An operator: OP:SIZES:TYPE, then NAME=VALUE pairs, each after a colon, such as gemm:4096x4096x4096:bf16,
gemm:16x11008x4096:int8:layout=nn, bmm:64x512x512x64 (batch first), softmax:8192x1024:fp32, or
attention_fwd:2048x2048x128:fp16:batch=8:heads=16:causal=yes. gemm is what 'gpusim gemm' predicts; other names and
values are those of measured tables (gpusim validate --help). --detail, --l2, --load and --operands are for operators.

A model: a name of 'gpusim models list' or a .yaml file, with --mode, --batch, --precision and the other options of
'gpusim model'."""
WorkloadArgument = Annotated[
    str, typer.Argument(help="Operator such as gemm:4096x4096x4096:fp16, or a model.", metavar="WORKLOAD")
]
WorkloadsArgument = Annotated[
    list[str], typer.Argument(help="Operators such as gemm:4096x4096x4096:fp16, or models.", metavar="WORKLOAD...")
]
PrecisionOption = Annotated[
    str,
    typer.Option("--precision", metavar="NAME", help="Of a model: fp32, tf32, amp-fp16 …; see 'gpusim model'."),
]


def workloads_of(
    texts: Sequence[str],
    simulation: SimulationOptions,
    work: WorkOptions,
    how: FrameworkOptions,
    sharing: SharingOptions,
    precision: str,
) -> dict[str, Workload]:
    """The workloads that arguments stand for, by their texts; of operators and models each takes the options for it."""
    from gpusim.workloads.short_form import is_operator

    mixed = len({is_operator(text) for text in texts}) > 1
    found = {}
    for text in texts:
        if mixed and is_operator(text):
            own = workload_of(text, simulation, WorkOptions(), FrameworkOptions(), SharingOptions(), "")
        elif mixed:
            own = workload_of(text, SimulationOptions(), work, how, sharing, precision)
        else:
            own = workload_of(text, simulation, work, how, sharing, precision)
        found[text] = own
    return found


def workload_of(
    text: str,
    simulation: SimulationOptions,
    work: WorkOptions,
    how: FrameworkOptions,
    sharing: SharingOptions,
    precision: str,
) -> Workload:
    """The workload that an argument and options stand for."""
    from gpusim.execution.cases import OperatorWorkload
    from gpusim.prediction.options import Options
    from gpusim.workloads.short_form import is_operator, is_sizes, operator_of

    groups = (work, how, sharing)
    given = [flag for group in groups for flag in changed_options(group)] + (["precision"] if precision else [])
    if is_operator(text):
        if given:
            refuse(f"{_flags(given)}: of a model, but {text} is an operator; write OP:SIZES:TYPE:NAME=VALUE")
        try:
            return OperatorWorkload(operator_of(text), Options(**named(simulation)))
        except ValueError as error:
            refuse(str(error))
    if is_sizes(text):
        refuse(f"{text}: an operator begins with its name; write gemm:{text}")
    if text.startswith("model:"):
        refuse(f"{text}: a model is its name alone; write {text.removeprefix('model:')}")
    if ":" in text:
        from gpusim.errors import did_you_mean
        from gpusim.workloads.operators import OPS

        name = text.partition(":")[0]
        refuse(f"{text}: neither OP:SIZES:TYPE nor a model: unknown operator{did_you_mean(name, OPS)}")
    if operators := changed_options(simulation):
        refuse(f"{_flags(operators)}: of an operator, but {text} is a model; leave it out")
    if len(work.batches) > 1:
        refuse(f"--batch {work.batch}: several are of 'gpusim model'; name one")
    refuse_contradictions(work, sharing)
    workload = model_workload(text, precision, work, how, sharing)
    from gpusim.models.loading import open_model

    open_model(workload.model).check_sizes(workload.sizes)  # or each GPU would be said not to run it
    return workload


def variant_of(arch: str, spec: SpecOptions) -> GpuVariant:
    """A GPU with the values that options replace."""
    from gpusim.studies.workload import GpuVariant

    given = spec.named()
    return GpuVariant(arch, given["overrides"], given["cuda"], tuple(given["arch_path"]))


def _flags(names: list[str]) -> str:
    return ", ".join(f"--{name.replace('_', '-')}" for name in names)
