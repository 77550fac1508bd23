"""The server: pages and the JSON API, over predictions in worker processes."""

from __future__ import annotations

import asyncio
import json
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

from fastapi import FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware.trustedhost import TrustedHostMiddleware

from gpusim.errors import InputError, defect_reason, one_line
from gpusim.execution.models import ModelWorkload
from gpusim.execution.workers import WorkerLostError
from gpusim.files.yamlfile import parse_value
from gpusim.pages.what_if import heights_px, rows_of, sides_of, table_of
from gpusim.serve import tasks
from gpusim.serve.choices import Choices
from gpusim.serve.guard import LOOPBACK, MOST_BODY_BYTES, Headed
from gpusim.serve.live import LIVE_FILES, live_html
from gpusim.serve.records import (
    BoardAnswer,
    BoardRequest,
    ChartAnswer,
    KnobsAnswer,
    PredictAnswer,
    PredictRequest,
    Refusal,
    Speedup,
    TableAnswer,
    WorkloadsAnswer,
    refusal_of,
)
from gpusim.serve.reference import reference_html
from gpusim.serve.work import Lane, OverloadError
from gpusim.studies.knobs import knobs_of
from gpusim.studies.what_if import BoardPrediction, variant_yaml
from gpusim.studies.workload import GpuVariant, Workload
from gpusim.version import __version__
from gpusim.workloads.short_form import is_operator

NDJSON = "application/x-ndjson"
EXAMPLES = {
    "operator": {
        "summary": "an operator on a changed A100",
        "value": {"workload": "gemm:4096x4096x4096:bf16", "gpu": "a100", "knobs": {"sms": 120}},
    },
    "step": {
        "summary": "a step on two boards",
        "value": {
            "workload": "bert_base",
            "step": {"precision": "fp16", "sizes": {"batch": 8}},
            "gpu": "a100",
            "second": {"gpu": "h100", "overrides": {"power.board_limit_w": "0.5x"}},
        },
    },
}
REFUSALS: dict[int | str, dict[str, Any]] = {
    422: {"model": Refusal, "description": "A wrong field; one line names it and the remedy."},
    503: {"model": Refusal, "description": "Too much is asked for at once, or it takes too long."},
}

Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class Limits:
    """What the server does at most."""

    jobs: int = 1
    """Processes for operators; half as many, at least one, are for steps and pages."""
    operator_s: float = 30.0
    """Most time of an operator, from its request."""
    step_s: float = 180.0
    """Most time of a step or a page."""
    waiting: int = 400
    """Most predictions of operators that wait for a process."""
    waiting_steps: int = 24
    remembered: int = 512
    """Predictions that are kept."""
    cache: bool = True
    """Whether launches of steps are remembered on disk."""


@dataclass(frozen=True, slots=True)
class _Question:
    """What is to be predicted."""

    text: str
    """The workload with its options, as commands take it."""
    workload: Workload
    boards: tuple[tuple[GpuVariant, GpuVariant], ...]
    """Each board as shipped, and with its values."""


class _ClientGoneError(Exception):
    """Nobody waits for the answer."""


class Predictor:
    """Predictions in worker processes, the latest of which are remembered."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._operators = Lane(limits.jobs, limits.waiting, limits.operator_s)
        self._steps = Lane(max(1, limits.jobs // 2), limits.waiting_steps, limits.step_s)
        self._known: OrderedDict[str, BoardPrediction] = OrderedDict()

    @asynccontextmanager
    async def running(self, board: str) -> AsyncIterator[None]:
        """The processes for the duration of the context.

        Args:
            board: a board that each predicts once, to be ready.
        """
        for lane in (self._operators, self._steps):
            lane.start(tasks.warm_up, GpuVariant(board))
        try:
            yield
        finally:
            for lane in (self._operators, self._steps):
                await lane.stop()

    async def predictions(
        self, question: _Question, report: Callable[[GpuVariant, object], None] = lambda *_: None
    ) -> list[tuple[BoardPrediction, BoardPrediction]]:
        """Each board as shipped, and with its values.

        Args:
            report: called with what is known of a board before its prediction: the number of launches, or its time.

        Raises:
            InputError: a board cannot run the workload.
            OverloadError: too much is asked for at once, or it takes too long.
        """
        wanted = {_key(question.workload, one): one for pair in question.boards for one in pair}
        running = {
            key: asyncio.ensure_future(self._prediction(key, question.workload, one, report))
            for key, one in wanted.items()
        }
        try:
            _ = await asyncio.gather(*running.values())
        finally:
            for one in running.values():
                _ = one.cancel()
        first, second = (
            [running[_key(question.workload, pair[at])].result() for pair in question.boards] for at in range(2)
        )
        return list(zip(first, second, strict=True))

    async def _prediction(
        self, key: str, workload: Workload, board: GpuVariant, report: Callable[[GpuVariant, object], None]
    ) -> BoardPrediction:
        if (known := self._known.get(key)) is not None:
            self._known.move_to_end(key)
            return known
        lane = self._steps if isinstance(workload, ModelWorkload) else self._operators
        task = tasks.Predict(workload, board, self._limits.cache)
        found: BoardPrediction = await lane.run(tasks.predict, task, lambda value: report(board, value))
        self._known[key] = found
        while len(self._known) > self._limits.remembered:
            _ = self._known.popitem(last=False)
        return found

    async def page(self, question: _Question) -> str:
        """The page to keep.

        Raises:
            InputError: a board cannot run the workload.
            OverloadError: too much is asked for at once, or it takes too long.
        """
        sides = sides_of(await self.predictions(question))
        boards = tuple(changed for _, changed in question.boards)
        found: str = await self._steps.run(tasks.write, tasks.Write(question.text, tuple(sides), boards))
        return found


def _key(workload: Workload, board: GpuVariant) -> str:
    return f"{workload!r} {board!r}"


def create_app(choices: Choices, limits: Limits = Limits(), hosts: Sequence[str] = LOOPBACK) -> FastAPI:
    """The server.

    Args:
        choices: what requests may choose by name.
        hosts: values of the header Host that it answers to.
    """
    predictor = Predictor(limits)

    @asynccontextmanager
    async def running(_app: FastAPI) -> AsyncIterator[None]:
        async with predictor.running(choices.boards[0]):
            yield

    app = FastAPI(
        title="gpusim API",
        description="Predicts how long an operator or a step of a model takes on a GPU whose values can be changed.",
        version=__version__,
        lifespan=running,
        max_body_size=MOST_BODY_BYTES,
        telemetry={"tracing": False, "metrics": False, "logs": False, "auto_configure": False},
        docs_url=None,
        redoc_url=None,
    )
    # The one that is added last comes first.
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=list(hosts), www_redirect=False)
    app.add_middleware(Headed)
    _answer_errors(app)
    _add_pages(app)
    _add_choices(app, choices)
    _add_predictions(app, choices, predictor)
    return app


def _answer_errors(app: FastAPI) -> None:
    """Have every error answered by one line."""

    def refused(status: int, detail: str, headers: Mapping[str, str] | None = None) -> JSONResponse:
        return JSONResponse({"detail": one_line(detail)}, status, headers)

    @app.exception_handler(RequestValidationError)
    async def _wrong_request(_request: Request, error: RequestValidationError) -> JSONResponse:
        return refused(422, refusal_of(error.errors()))

    @app.exception_handler(InputError)
    async def _wrong_input(_request: Request, error: InputError) -> JSONResponse:
        return refused(422, str(error))

    @app.exception_handler(OverloadError)
    async def _overload(_request: Request, error: OverloadError) -> JSONResponse:
        return refused(503, str(error), {"Retry-After": "2"})

    @app.exception_handler(WorkerLostError)
    async def _lost(_request: Request, error: WorkerLostError) -> JSONResponse:
        return refused(503, f"{error}; ask for less")

    @app.exception_handler(_ClientGoneError)
    async def _gone(_request: Request, _error: _ClientGoneError) -> Response:
        return Response(status_code=499)  # nobody reads it

    @app.exception_handler(HTTPException)
    async def _other(_request: Request, error: HTTPException) -> JSONResponse:
        if error.status_code == 400:  # all that a request can be besides what its record refuses
            return refused(422, "body: cannot be read as JSON; send an object as /docs describes it")
        return refused(error.status_code, str(error.detail))

    @app.exception_handler(Exception)
    async def _defect(_request: Request, error: Exception) -> JSONResponse:
        return refused(500, defect_reason(error))


def _add_pages(app: FastAPI) -> None:
    """Add the live page, its files, and the page of the API."""

    @app.get("/", include_in_schema=False)
    def live() -> HTMLResponse:
        return HTMLResponse(live_html())

    @app.get("/assets/{name}", include_in_schema=False)
    def asset(name: str) -> Response:
        if name not in LIVE_FILES:
            raise HTTPException(404, "no such file")
        kind, text = LIVE_FILES[name]
        return Response(text(), media_type=kind)

    @app.get("/docs", include_in_schema=False)
    def reference() -> HTMLResponse:
        text, policy = reference_html(app.openapi())
        return HTMLResponse(text, headers={"Content-Security-Policy": policy})


def _add_choices(app: FastAPI, choices: Choices) -> None:
    """Add what can be chosen, and the YAML of what was."""

    @app.get("/api/gpus", summary="GPUs")
    def gpus() -> list[dict[str, Any]]:
        """GPUs in short, as `gpusim archs list --format json` has them."""
        return choices.gpus

    @app.get("/api/workloads", summary="Workloads")
    def workloads() -> WorkloadsAnswer:
        """Operators, shipped models and captured ones, with what can be chosen of each."""
        return choices.workloads

    @app.get("/api/knobs", responses={422: REFUSALS[422]}, summary="Knobs")
    def knobs(gpu: Annotated[str, Query(max_length=200, description="Name of a GPU.")]) -> KnobsAnswer:
        """The knobs of a GPU: what ships, the ends, and the values of the spec behind each with their sources."""
        spec = choices.variant(BoardRequest(gpu=gpu)).spec
        return KnobsAnswer(gpu=spec.gpu.name, knobs=list(knobs_of(spec)))

    @app.get("/api/yaml", responses={422: REFUSALS[422]}, response_class=PlainTextResponse, summary="A board as YAML")
    def yaml(
        gpu: Annotated[str, Query(max_length=200, description="Name of a GPU.")],
        knobs: Annotated[str, Query(max_length=1000, description="Values of knobs, such as sms:120,clock:1500.")] = "",
        overrides: Annotated[
            list[str] | None, Query(max_length=256, description="KEY=VALUE of the spec; may be repeated.")
        ] = None,
    ) -> PlainTextResponse:
        """A spec file of a board with its values, which extends the shipped one; `--arch FILE` takes it."""
        asked = {"gpu": gpu, "knobs": _pairs("knobs", knobs.split(","), ":"), "overrides": _values(overrides or ())}
        board = choices.variant(BoardRequest.model_validate(asked))
        again = f"The same library on the changed board: --arch {board.arch}{_flags(board.overrides)}"
        text = variant_yaml(board.spec, f"{board.arch} changed", (again,) if board.overrides else ())
        name = f"{board.arch.lower()}-changed.yaml"
        return PlainTextResponse(text, headers={"Content-Disposition": f'attachment; filename="{name}"'})


def _pairs(field: str, texts: Sequence[str], between: str) -> dict[str, str]:
    """``NAME:VALUE`` texts by name."""
    found = {}
    for text in filter(None, texts):
        name, separator, value = text.partition(between)
        if not separator or name in found:
            raise InputError(f"{field}: '{text[:40]}' is not NAME{between}VALUE, or twice there; correct it")
        found[name] = value
    return found


def _values(texts: Sequence[str]) -> dict[str, Any]:
    try:
        return {name: parse_value(value[:200]) for name, value in _pairs("overrides", texts, "=").items()}
    except InputError:
        raise
    except ValueError as error:
        raise InputError(f"overrides: {error}") from None


def _flags(overrides: Mapping[str, Any]) -> str:
    return "".join(f" --set {key}={json.dumps(value).replace(' ', '')}" for key, value in overrides.items())


def _add_predictions(app: FastAPI, choices: Choices, predictor: Predictor) -> None:
    """Add predictions, and the page to keep of one."""
    body = {"requestBody": {"content": {"application/json": {"examples": EXAMPLES}}}}

    def question_of(asked: PredictRequest) -> _Question:
        boards = []
        for place, board in asked.boards:
            changed = choices.variant(board, place)
            boards.append((GpuVariant(changed.arch), changed))
        return _Question(_text(asked), choices.workload(asked), tuple(boards))

    @app.post(
        "/api/predict",
        response_model=PredictAnswer,
        responses={
            **REFUSALS,
            200: {
                "description": "The prediction.",
                "content": {NDJSON: {"schema": {"title": "events", "type": "object"}}},
            },
        },
        openapi_extra=body,
        summary="Predict",
    )
    async def predict(request: Request, asked: PredictRequest) -> PredictAnswer | StreamingResponse:
        """Predict a workload on one or two boards, each as shipped and with its values.

        With the header `Accept: application/x-ndjson` the answer is a line of JSON for each event: `progress` with the
        launches that are simulated, of a step `time` once that is known, then `result` or `error`; the last has
        `detail`, the others `answer` as of a single JSON object.
        """
        question = await run_in_threadpool(question_of, asked)
        if NDJSON in request.headers.get("accept", ""):
            return StreamingResponse(_events(predictor, question), media_type=NDJSON)
        found = await _while_connected(request, predictor.predictions(question))
        return answer_of(question.text, found)

    @app.post(
        "/api/page", responses=REFUSALS, openapi_extra=body, response_class=HTMLResponse, summary="A page to keep"
    )
    async def page(request: Request, asked: PredictRequest) -> HTMLResponse:
        """A self-contained page of a prediction: charts, values, and the source of each value."""
        question = await run_in_threadpool(question_of, asked)
        text = await _while_connected(request, predictor.page(question))
        return HTMLResponse(text, headers={"Content-Disposition": 'attachment; filename="gpusim-what-if.html"'})


def _text(asked: PredictRequest) -> str:
    """A workload with its options, as commands take it."""
    words = [asked.workload]
    # A command trains where nothing is said.
    always = set() if is_operator(asked.workload) else {"mode"}
    for part, named in ((asked.conditions, set()), (asked.step, always)):
        for name in sorted(part.model_fields_set | named):
            match getattr(part, name):
                case dict() as sizes:
                    words += [f"--size {size}={value}" for size, value in sizes.items()]
                case bool() as chosen:
                    words += [f"--{name}"] if chosen else []
                case None | "":
                    pass
                case value:
                    words.append(f"--{name} {value}")
    return " ".join(words)


def answer_of(workload: str, boards: Sequence[tuple[BoardPrediction, BoardPrediction]]) -> PredictAnswer:
    """What is said of predictions."""
    sides = sides_of(boards)
    table, rows = table_of(sides), rows_of(sides)
    heights = heights_px(rows)
    keys = [column.key for column in table.columns]
    return PredictAnswer(
        workload=workload,
        boards=[
            BoardAnswer(
                label=shipped.arch,
                shipped=shipped,
                changed=changed,
                speedup=Speedup.of(changed.speedup_over(shipped)),
            )
            for shipped, changed in boards
        ],
        speedup=Speedup.of(boards[1][1].speedup_over(boards[0][1])) if len(boards) > 1 else None,
        table=TableAnswer(
            columns=[column.heading for column in table.columns],
            rows=[[str(row[key]) for key in keys] for row in table.rows],
        ),
        charts={name: ChartAnswer(rows=rows[name], height_px=heights[name]) for name in rows},
    )


async def _events(predictor: Predictor, question: _Question) -> AsyncIterator[str]:
    """Lines of JSON: how far a prediction is, then the prediction."""
    events: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
    launches: dict[str, int] = {}
    timed: dict[str, BoardPrediction] = {}
    wanted = {_key(question.workload, one) for pair in question.boards for one in pair}

    def answer(boards: Sequence[tuple[BoardPrediction, BoardPrediction]]) -> Any:
        return answer_of(question.text, boards).model_dump(mode="json")

    def report(board: GpuVariant, value: object) -> None:
        key = _key(question.workload, board)
        if isinstance(value, BoardPrediction):
            timed[key] = value
            if timed.keys() == wanted:
                pairs = [
                    (timed[_key(question.workload, first)], timed[_key(question.workload, second)])
                    for first, second in question.boards
                ]
                events.put_nowait({"event": "time", "answer": answer(pairs)})
        elif isinstance(value, int):
            launches[key] = value
            events.put_nowait({"event": "progress", "launches": sum(launches.values())})

    predicting = asyncio.ensure_future(predictor.predictions(question, report))
    predicting.add_done_callback(lambda _: events.put_nowait(None))
    try:
        while (event := await events.get()) is not None:
            yield json.dumps(event) + "\n"
        try:
            event = {"event": "result", "answer": answer(await predicting)}
        except (InputError, OverloadError, WorkerLostError) as error:
            event = {"event": "error", "detail": one_line(str(error))}
        except Exception as error:  # noqa: BLE001 -- a defect, which the last event says
            event = {"event": "error", "detail": defect_reason(error)}
        yield json.dumps(event) + "\n"
    finally:
        _ = predicting.cancel()


async def _while_connected(request: Request, work: Coroutine[Any, Any, Found]) -> Found:
    """What work finds, as long as the client waits for it."""
    working = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_disconnected(request.receive))
    try:
        _ = await asyncio.wait({working, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise _ClientGoneError
        return await working
    finally:
        for one in (working, gone):
            _ = one.cancel()


async def _disconnected(receive: Callable[[], Awaitable[Mapping[str, Any]]]) -> None:
    """Wait until the client has gone."""
    while (await receive())["type"] != "http.disconnect":
        pass
