"""Predictions of measured steps of whole models: what each row of a table stands for, and what it is compared with."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from packaging.version import Version

from gpusim.errors import InputError
from gpusim.evidence.end_to_end import KNOWN_BY, UNPREDICTED, StepRow, read_steps
from gpusim.evidence.fields import rows_of
from gpusim.execution.cases import Case
from gpusim.execution.models import FootprintWorkload, ModelWorkload, SummaryWorkload
from gpusim.execution.service import Service
from gpusim.execution.sweep import predict_all
from gpusim.experiment.model_run import ModelRun, Script
from gpusim.models.aten.file import is_captured
from gpusim.models.policy import LOWERED, Fusion, Layout, default_layout
from gpusim.progress import Progress, no_progress
from gpusim.report.step_validation_tables import step_validation_tables
from gpusim.specs import Spec, load_spec
from gpusim.step.model import StepSummary
from gpusim.studies.validation.prediction import specs_of
from gpusim.studies.validation.step_report import STEP_TIMES, EndToEndReport, ScoredStep
from gpusim.studies.validation.table_kind import Request, TableKind, Validated
from gpusim.system import System


@dataclass(frozen=True, slots=True)
class KnownModel:
    """A model of the tables by the shipped one that it is."""

    model: str
    sizes: tuple[tuple[str, int], ...] = ()
    captured: bool = False
    """Whether it is a captured model."""
    fusion: Fusion = "none"
    tokens_of_item: int = 1
    """Tokens that one item of ``batch`` stands for, where a table counts its batch in tokens."""
    lengths: Mapping[int, Mapping[int, float]] = field(default_factory=dict)
    """Shares of batches by their length in tokens, padding included, for a stated longest one."""
    inference: str = ""
    """The shipped model of its inference, where that is another."""
    greedy: str = ""
    """Shipped model of inference with one beam, where that is another."""
    tokens_of_inference: int = 1
    """Tokens of an item in inference."""
    halved: bool = False
    """Its inference in half precision holds the model in FP16, without autocast."""
    inference_layout: Layout | None = None
    """Layout of images in inference; None: as in training."""
    script: Script = field(default_factory=Script)
    """Script that trains the model."""
    sizes_of_inference: tuple[tuple[str, int], ...] = ()
    """Sizes in inference alone."""
    matched: bool = True
    """TorchInductor finds the pattern of its attention."""


SUFFIXES = (".yaml", ".yaml.gz")
"""Ends of the names of model files."""
BINS_OF_512 = {64: 0.176, 128: 0.193, 192: 0.114, 256: 0.083, 320: 0.065, 384: 0.053, 448: 0.044, 512: 0.272}
"""Share of BERT's sequences of up to 512 tokens of Wikipedia, by bins of 64 tokens (graphcore/tutorials@e9dbe48
blogs_code/packedBERT/histograms.py, which Krell et al., arXiv:2107.02027, evaluate): 279 tokens in the mean."""
TIMED = Script(waits=True, adds_gradients=True)
"""NeuSight's loop (neusight/Tracing/trace.py: measure_e2e) waits for each pass, and never clears gradients."""
LOOPS = Script(fused_optimizer=(), waits=True)
"""Updates parameters one after the other, and waits for each step."""
TIMED_ALONE = Script(waits=True, channels_last=())
"""A model by itself: each step is waited for, and images are as PyTorch makes them."""
SCRIPTS: Mapping[str, Script] = {
    "timm": Script(fused_optimizer=(), waits=True, scales_loss=False, channels_last=()),
    "torchvision": Script(fused_optimizer=(), waits=True, scales_loss=False, channels_last=(), updates=False),
    "paddle-tensorrt": Script(waits=True, channels_last=(), rests=True, copies_images=True),
}
"""Scripts by the library that the column ``framework`` names. timm's benchmark.py waits for each step, and updates
parameters one after the other, without a scale of the loss. The loop on torchvision's networks
(ryujaehun/pytorch-gpu-benchmark@3f47a9e) clears gradients, and has no optimizer. PaddleClas's loop
(PaddlePaddle/PaddleClas@010ee18 tools/infer/predict.py) times a copy of new images to the GPU, the engine, and a copy
of its results; then it sleeps for 10 ms "for T4 GPU", and makes as many random numbers as the next images have."""
COPIED = "copy of the input from pageable memory inside"
"""Note of a row whose step holds such a copy."""
LOOPS_GROUPS = Version("8")
"""First TensorRT that does not convolve one group after the other; those whose version is not known are older."""
ENGINES = frozenset({"paddle-tensorrt"})
"""Libraries that run a model as an engine, which the host hands to the GPU at once, and whose attention is spelled out:
PaddleClas's tables are of TensorRT up to 8.0."""
MODELS: Mapping[str, KnownModel] = {
    "resnet50v1.5": KnownModel("resnet50", script=LOOPS),
    "se-resnext101-32x4d": KnownModel("se_resnext101_32x4d", script=LOOPS),
    "ssd300-r50": KnownModel("ssd300", script=LOOPS.model_copy(update={"postdivide_gradients": True})),
    "maskrcnn-r50-fpn": KnownModel(
        "mask_rcnn",
        inference="mask_rcnn_inference",
        inference_layout="nchw",
        script=Script(channels_last=(*LOWERED, "tf32"), delay_allreduce=True, postdivide_gradients=True),
    ),
    "transformer-big": KnownModel(
        "transformer_big",
        tokens_of_item=28,
        inference="transformer_big_beam_search",
        tokens_of_inference=44,
        halved=True,
        script=Script(postdivide_gradients=True),
    ),
    "gnmt-v2": KnownModel(
        "gnmt_v2",
        inference="gnmt_v2_beam_search",
        greedy="gnmt_v2_greedy",
        halved=True,
        script=Script(
            fused_optimizer=(), items_of_update=1024, allreduce_per_microbatch=True, postdivide_gradients=True
        ),
    ),
    "bert-large-pretrain": KnownModel("bert_large_masked", fusion="elementwise", lengths={512: BINS_OF_512}),
    "bert-large-squad": KnownModel(
        "bert_large_squad", script=Script(fused_optimizer=("amp-fp16",), waits=True, postdivide_gradients=True)
    ),
    "bert_large": KnownModel("bert_large", inference="bert_large_classification", script=TIMED),
    "gpt2_large": KnownModel("gpt2_large", script=TIMED, matched=False),
    "gpt3_27": KnownModel("gpt3_2.7b", script=TIMED, matched=False),
    "gpt3_xl": KnownModel("gpt3_xl", script=TIMED, matched=False),
    "opt_13": KnownModel("opt_1.3b", script=TIMED, matched=False),
    "switchxl4": KnownModel("switch_xl4", (("capacity", 45),), script=TIMED, sizes_of_inference=(("busy", 2),)),
}
"""By the names that the tables give them. Of NVIDIA's BERT: pre-training runs in TorchScript, which fuses. Its loader
(LDDL) puts sequences of like length together, in bins of 64 tokens, and pads a batch to its longest, nearly the end of
its bin. ``run_squad.py`` takes apex's FusedAdam in FP16 and ``BertAdam`` else, whose calls update one parameter after
the other. torch.optim updates ResNet, SE-ResNeXt (ConvNets/image_classification/optimizers.py), SSD (SSD/main.py) and
GNMT (GNMT/train.py), apex the others. A step ends with a synchronisation or a loss that is read in
ConvNets/image_classification/training.py, in SSD/ssd/train.py (benchmark_train_loop) and in run_squad.py. GNMT is
trained with 1024 sentences an update on 1 to 8 GPUs (its README, quick start), by apex's DistributedDataParallel,
which sums gradients after each pass (apex/parallel/distributed.py: allreduce_hook); SSD, the Transformer, run_squad.py
and Mask R-CNN use it, too. Mask R-CNN keeps images as NHWC but in FP32 on V100 (its README, known issues), and in no
inference (tools/test_net.py); apex sums its gradients after the backward pass (tools/train_net.py: delay_allreduce).

NeuSight (neusight/Tracing/trace.py) runs transformers 4.38.1 (setup.py) on tokens that are all 1: BERT in inference as
AutoModelForSequenceClassification, in training as AutoModelForPreTraining without a loss of the next sentence. Of a
Switch Transformer with random weights two experts of four take tokens in the mean, and 64 of a sequence each (two draws
of all weights, 512 tokens: 2.0 and 1.9 experts, 62 and 64 tokens); with dropout all four, and 45 of a sequence. PyTorch
2.1 compiles BERT's attention into one kernel, and not GPT-2's (pytorch issue 119760)."""
BEAMS = re.compile(r"beam=(\d+)")
"""Beams of a search, in the notes of a row."""


def validate_steps(
    paths: Sequence[Path | str],
    service: Service = Service(),
    arch_path: Sequence[Path] = (),
    progress: Progress = no_progress,
    model_path: Sequence[Path] = (),
) -> EndToEndReport:
    """Predict every row of tables of whole models.

    Args:
        model_path: folders of model files, for models that do not ship.

    Raises:
        MeasuredError: a file breaks the schema.
        SpecError: a spec is wrong.
    """
    rows = rows_of(paths, read_steps)
    shares: list[tuple[int, float]] = []
    cases: list[Case[SummaryWorkload]] = []
    reasons: dict[int, str] = {}
    specs, unknown = specs_of((row.gpu for row in rows), arch_path)
    for index, row in enumerate(rows):
        if row.gpu in unknown:
            reasons[index] = unknown[row.gpu]
        elif (found := model_of(row, model_path)) is None:
            reasons[index] = f"model '{row.model}' is not known" + (", nor in --model-path" if model_path else "")
        else:
            try:
                system, steps = _system_of(row, specs[row.gpu], arch_path), workloads_of(row, found)
            except InputError as error:
                reasons[index] = str(error)
                continue
            for share, workload in steps:
                shares.append((index, share))
                cases.append(Case(system, SummaryWorkload(replace(workload, arch_path=tuple(arch_path)))))
    parts: dict[int, list[tuple[float, StepSummary]]] = {}
    for (index, share), outcome in zip(shares, predict_all(cases, service, progress, tolerant=True), strict=True):
        if outcome.result is None:
            reasons[index] = outcome.reason
        else:
            parts.setdefault(index, []).append((share, outcome.result))
    fits = _larger_batches_fit(rows, cases, [index for index, _ in shares], service)
    scored = [
        ScoredStep(rows[index], tuple(of_row), fits.get(index))
        for index, of_row in parts.items()
        if index not in reasons
    ]
    skipped = [(rows[index], reasons[index]) for index in sorted(reasons)]
    hashes = {str(path): hashlib.sha256(Path(path).read_bytes()).hexdigest() for path in paths}
    return EndToEndReport(tuple(scored), tuple(skipped), hashes)


def _larger_batches_fit(
    rows: Sequence[StepRow], cases: Sequence[Case[SummaryWorkload]], indices: Sequence[int], service: Service
) -> dict[int, bool]:
    """Whether the batch that ran out of memory fits, by the index of a row that states one.

    Args:
        cases: of the batches that ran.
        indices: of their rows.
    """
    stated = [(index, rows[index].failed_batch, case) for index, case in zip(indices, cases, strict=True)]
    larger = [
        (index, replace(case.workload.step, sizes={**case.workload.step.sizes, "batch": batch}), case.system)
        for index, batch, case in stated
        if batch
    ]
    needed = predict_all([Case(system, FootprintWorkload(step)) for _, step, system in larger], service, tolerant=True)
    found = zip(larger, needed, strict=True)
    return {index: one.result.fits for (index, _, _), one in found if one.result is not None}


def _system_of(row: StepRow, spec: Spec, arch_path: Sequence[Path]) -> System:
    """The system that a row was timed on.

    Raises:
        InputError: its GPU does not run at the clock that the row states.
    """
    system = spec.system if row.cuda is None else load_spec(spec.files[0], arch_path, cuda=row.cuda).system
    if row.clock_mhz is None:
        return system
    low_mhz, high_mhz = system.gpu.clock.min_mhz, system.gpu.clock.max_mhz
    if not low_mhz <= row.clock_mhz <= high_mhz:
        raise InputError(f"clock_mhz: {row.clock_mhz:g}, and {system.gpu.name} runs at {low_mhz:g} to {high_mhz:g}")
    return system.with_values([("clock.max_mhz", row.clock_mhz)])


def model_of(row: StepRow, model_path: Sequence[Path] = ()) -> KnownModel | None:
    """The model of a row: one that ships, or a file of its name and image size, or of its name, in a folder."""
    if row.model in MODELS:
        return MODELS[row.model]
    names = [f"{row.model}-{row.image_size}", row.model] if row.image_size else [row.model]
    paths = (folder / f"{name}{suffix}" for folder in model_path for name in names for suffix in SUFFIXES)
    path = next((path for path in paths if path.is_file()), None)
    script = SCRIPTS.get(row.library, TIMED_ALONE)
    return KnownModel(str(path), captured=is_captured(path), script=script) if path else None


def workloads_of(row: StepRow, known: KnownModel) -> list[tuple[float, ModelWorkload]]:
    """The steps that a row is compared with, each with its share of the batches."""
    lengths = known.lengths.get(row.seq_len or 0, {row.seq_len: 1.0})
    return [(share, workload_of(row, known, length)) for length, share in lengths.items()]


def workload_of(row: StepRow, known: KnownModel, length: int | None = None) -> ModelWorkload:
    """The step of batches of a length in tokens; None: of the length that the row states.

    Raises:
        InputError: no model is predicted in the precision of the row.
    """
    if row.precision in UNPREDICTED:
        raise InputError(f"precision '{row.precision}' is not predicted")
    beams = int(found[1]) if (found := BEAMS.search(row.notes)) else None
    infers = row.mode == "inference"
    engine = infers and row.library in ENGINES
    fused = known.fusion == "elementwise" or row.compiled
    fusion: Fusion = "engine" if engine else "none" if not fused else "inductor" if known.captured else "elementwise"
    run = ModelRun(
        model=_model_of(known, beams, infers=infers),
        mode=row.mode,
        precision="fp16" if infers and known.halved and row.precision == "amp-fp16" else row.precision,
        sizes=_sizes_of(row, known, beams, length, infers=infers),
        gpus=row.gpus,
        accumulation=row.accumulation,
        fusion=fusion,
        attention=row.attention or ("eager" if engine else "fused" if row.compiled and known.matched else None),
        layout=row.layout or (default_layout(row.precision) if engine else known.inference_layout if infers else None),
        version=row.torch,
        script=known.script.model_copy(update={"container": _container(row), **_condition(row, engine=engine)}),
    )
    without = ("update",) if row.unit == STEP_TIMES and known.script.updates else ()
    return replace(run.workload(row.gpu), without=without, parallel=row.parallel)


def _condition(row: StepRow, *, engine: bool) -> dict[str, bool]:
    """What a row states of its loop, and of the engine's version."""
    found = {"copies_images": True} if COPIED in row.notes else {}
    if engine:
        version = re.search(r"\d+(\.\d+)*", row.framework)
        found["loops_groups"] = version is None or Version(version[0]) < LOOPS_GROUPS
    return found


def _container(row: StepRow) -> str:
    """The container of PyTorch that a row states; none of an engine, or where a library of models stands there."""
    unnamed = row.library in SCRIPTS and row.framework == row.library
    return "" if unnamed or row.library in ENGINES else row.framework


def _model_of(known: KnownModel, beams: int | None, *, infers: bool) -> str:
    """The shipped model that a row ran."""
    if not infers:
        return known.model
    return (known.greedy if beams == 1 else "") or known.inference or known.model


def _sizes_of(
    row: StepRow, known: KnownModel, beams: int | None, length: int | None, *, infers: bool
) -> dict[str, int]:
    """The sizes that a row states, and those that its model fixes."""
    tokens = known.tokens_of_inference if infers else known.tokens_of_item
    fixed = (known.sizes_of_inference if infers else ()) or known.sizes
    stated = {"seq_len": length or row.seq_len, "image_size": row.image_size, "beam": beams}
    batch = max(1, row.batch // tokens)
    return {**dict(fixed), "batch": batch, **{name: size for name, size in stated.items() if size}}


def _validated(paths: Sequence[Path], request: Request) -> Validated:
    return Validated(validate_steps(paths, request.service, request.arch_path, request.progress, request.model_path))


WHOLE_MODELS = TableKind(
    "whole models",
    known_by=(KNOWN_BY,),
    reads=frozenset({"--model-path", "--more"}),
    validate=_validated,
    tables=lambda metrics, request: step_validation_tables(metrics, more=request.more),
)
