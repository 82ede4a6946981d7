"""The application: routes, templates, error pages. Queries run in threads."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from importlib.resources import files
from typing import Any
from urllib.parse import parse_qsl, urlencode

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.requests import Request as HttpRequest
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from ..errors import LedgerError, SourceError, StenoError
from ..export.conversation import Step
from ..export.html import style_sheet
from ..fleet.board import FleetStatus, fleet_status
from ..fleet.store import fleet_exists, open_fleet
from ..ledger.protocol import Store, now_ms
from ..ledger.queries.filters import TimeZone
from ..ledger.queries.team import PermissionRequest
from ..runner.run_registry import active_runs
from ..team.approvals import open_requests
from . import actions, pages, run_page
from .conversations import ConversationCache
from .ledger_access import LedgerAccess
from .live import OVERVIEW, ActiveRuns, EventStream, LiveHub, StreamLimitError
from .security import CLIENT, RESPONSE_HEADERS, AccessPolicy, Gatekeeper
from .templating import create_environment
from .url_state import UnknownIdError, UrlError, UrlState, check_id, check_number, parse_state

STATIC_FILES = {
    "page.css": "text/css; charset=utf-8",
    "page.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}
THEMES = ("light", "dark")
MAX_STEP = 10**9
MAX_BATCHES = 20  # on the page of the fleet
ErrorReporter = Callable[[Exception], None]
ListPage = Callable[[Store, pages.Request], pages.Values]


class Site:
    """What the routes share."""

    def __init__(
        self, access: LedgerAccess, policy: AccessPolicy, zone: TimeZone, on_error: ErrorReporter
    ) -> None:
        self.access = access
        self.policy = policy
        self.zone = zone
        self.on_error = on_error
        self.active = ActiveRuns()
        self.conversations = ConversationCache()
        self.static = {name: _static_file(name) for name in STATIC_FILES}
        versions = {
            name: hashlib.sha256(data).hexdigest()[:12] for name, data in self.static.items()
        }
        self.environment = create_environment(zone, versions, policy)
        self.live = LiveHub(
            active=self.active,
            conversations=self.conversations,
            render_rows=self._render_active,
            render_steps=self._render_steps,
            open_requests=self._open_requests,
            render_requests=self._render_requests,
            on_error=on_error,
        )

    def render(self, template: str, values: pages.Values, request: HttpRequest | None) -> str:
        theme = request.cookies.get("steno_theme", "") if request is not None else ""
        has_fleet = fleet_exists(self.access.location)
        common = {
            "has_fleet": has_fleet,
            "theme": theme if theme in THEMES else "",
            "now": now_ms(),
            "policy": self.policy,
        }
        return self.environment.get_template(template).render({**common, **values})

    def _render_active(self, rows: list[dict[str, Any]]) -> str:
        return self.render("_active.html", {"active": rows}, None)

    def _open_requests(self) -> list[PermissionRequest]:
        with self.access.reader() as store:
            return open_requests(store)

    def _render_requests(self, requests: list[PermissionRequest], on_run_page: bool) -> str:
        values = {"requests": requests, "on_run_page": on_run_page}
        return self.render("_requests.html", values, None).strip()

    def _render_steps(self, steps: Sequence[Step], started_ms: int | None) -> str:
        return self.render("_steps.html", {"steps": steps, "started_ms": started_ms}, None)


def _static_file(name: str) -> bytes:
    data = files("steno.web").joinpath("static", name).read_bytes()
    shared = style_sheet("colours", "charts", "steps") if name == "page.css" else ""
    return shared.encode() + data


def create_app(site: Site) -> Starlette:
    """The ASGI application."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        site.access.start()
        task = asyncio.create_task(site.live.run())
        yield
        task.cancel()
        site.access.close()
        site.conversations.close()

    lists: dict[str, tuple[str, ListPage, tuple[str, ...]]] = {
        "/": ("overview.html", pages.overview, ()),
        "/runs": ("runs.html", pages.runs_page, pages.RUN_SORTS),
        "/sessions": ("sessions.html", pages.sessions_page, pages.SESSION_SORTS),
        "/search": ("search.html", pages.search_page, ()),
        "/tools": ("tools.html", pages.tools_page, ()),
    }
    details = {"": _summary, "/steps": _steps, "/files": _files, "/raw": _raw}
    routes = [
        *(Route(path, partial(_show_list, site, *entry)) for path, entry in lists.items()),
        Route("/compare", partial(_show_comparison, site)),
        Route("/fleet", partial(_show_fleet, site)),
        *(
            Route(f"/{table}/{{id}}{part}", partial(_show_subject, site, table, show))
            for table in ("runs", "sessions")
            for part, show in details.items()
        ),
        *(
            Route(f"/{table}/{{id}}/{action}", partial(_act, site, table, action), methods=["POST"])
            for table in ("runs", "sessions")
            for action in actions.ACTIONS
        ),
        Route("/metrics", partial(_send_metrics, site)),
        *(
            Route(
                f"/requests/{{id}}/{decision}", partial(_decide, site, decision), methods=["POST"]
            )
            for decision in actions.DECISIONS
        ),
        Route("/live", partial(_stream, site)),
        Route("/live/{id}", partial(_stream, site)),
        *(Route(f"/static/{name}", partial(_send_static, site, name)) for name in STATIC_FILES),
    ]
    handlers = {
        status_or_error: partial(_show_error, site)
        for status_or_error in (404, 405, StenoError, Exception)
    }
    return Starlette(
        routes=routes,
        lifespan=lifespan,
        middleware=[Middleware(Gatekeeper, policy=site.policy)],
        exception_handlers=handlers,
    )


# -- lists -----------------------------------------------------------------------------------------


def _state(request: HttpRequest, sorts: tuple[str, ...]) -> UrlState:
    return parse_state(request.url.path, request.query_params.multi_items(), sorts)


async def _show_list(
    site: Site, template: str, page: ListPage, sorts: tuple[str, ...], request: HttpRequest
) -> Response:
    state = _state(request, sorts)

    def render() -> str:
        active = site.active.rows()
        query = pages.Request(state, site.zone, now_ms(), site.access.choices, active)
        with site.access.reader() as store:
            values = page(store, query)
        return site.render(template, {**values, "active": active}, request)

    return HTMLResponse(await run_in_threadpool(render))


async def _show_comparison(site: Site, request: HttpRequest) -> Response:
    ids = request.query_params.getlist("id")

    def render() -> str:
        with site.access.reader() as store:
            values = pages.compare_page(store, ids)
        return site.render("compare.html", values, request)

    return HTMLResponse(await run_in_threadpool(render))


async def _show_fleet(site: Site, request: HttpRequest) -> Response:
    def render() -> str:
        return site.render("fleet.html", {"fleet": read_fleet(site.access.location)}, request)

    return HTMLResponse(await run_in_threadpool(render))


def read_fleet(location: str | None) -> FleetStatus | None:
    """The boards of all batches; None without a fleet, which is not created here."""
    if not fleet_exists(location):
        return None
    try:
        with open_fleet(location, read_only=True) as store:
            return fleet_status(store, store.batches()[:MAX_BATCHES])
    except LedgerError:  # no tables yet
        return None


# -- one run or session ----------------------------------------------------------------------------

ShowSubject = Callable[[Site, Store, run_page.Subject, HttpRequest], Response]


async def _show_subject(
    site: Site, table: str, show: ShowSubject, request: HttpRequest
) -> Response:
    id_ = check_id(request.path_params["id"])

    def respond() -> Response:
        with site.access.reader() as store:
            subject = run_page.find_subject(store, table, id_, site.active.rows())
            if subject.table != table or subject.id != id_:
                query = urlencode(request.query_params.multi_items())
                part = request.url.path.removeprefix(f"/{table}/{id_}")
                return RedirectResponse(f"{subject.path}{part}{'?' + query if query else ''}", 303)
            return show(site, store, subject, request)

    return await run_in_threadpool(respond)


def _start(request: HttpRequest, default: int = 1) -> int:
    return check_number(request.query_params.get("from"), "from", default, MAX_STEP)


def _summary(site: Site, store: Store, subject: run_page.Subject, request: HttpRequest) -> Response:
    line = check_number(request.query_params.get("line"), "line", 0, MAX_STEP)
    if line:
        return _jump_to_line(site, subject, line)
    values = run_page.summary_values(store, subject, site.conversations)
    part = None
    start = _start(request, 0) or None
    if not values["is_long"] or start is not None:
        part = run_page.conversation_slice(subject, site.conversations, start)
    active = [row for row in site.active.rows() if row["run_id"] == subject.id]
    requests = [one for one in open_requests(store) if one.run == subject.id]
    values |= {"slice": part, "active": active, "tab": "conversation"}
    values |= {"requests": requests, "on_run_page": True}
    return HTMLResponse(site.render("run.html", values, request))


def _jump_to_line(site: Site, subject: run_page.Subject, line: int) -> Response:
    """Redirect to the slice with the step of a line, or to the raw line."""
    number = None
    if subject.source is not None:
        number = site.conversations.get(subject.source).step_of_line(line)
    if number is None:
        return RedirectResponse(f"{subject.path}/raw?from={line}#line-{line}", 303)
    start = max(1, number - run_page.STEPS_BEFORE)
    return RedirectResponse(f"{subject.path}?from={start}#step-{number}", 303)


def _steps(site: Site, store: Store, subject: run_page.Subject, request: HttpRequest) -> Response:
    part = run_page.conversation_slice(subject, site.conversations, _start(request, 0) or None)
    if part is None:
        raise SourceError(f"{subject.id}: its recording is not on this machine")
    return HTMLResponse(site.render("_slice.html", {"slice": part, "subject": subject}, None))


def _files(site: Site, store: Store, subject: run_page.Subject, request: HttpRequest) -> Response:
    values = {**run_page.file_values(store, subject, site.conversations), "tab": "files"}
    return HTMLResponse(site.render("files.html", values, request))


def _raw(site: Site, store: Store, subject: run_page.Subject, request: HttpRequest) -> Response:
    values = {**run_page.raw_values(subject, _start(request)), "tab": "raw"}
    return HTMLResponse(site.render("raw.html", values, request))


# -- live, actions, files, errors ------------------------------------------------------------------


async def _stream(site: Site, request: HttpRequest) -> EventStream | Response:
    id_ = request.path_params.get("id", OVERVIEW)
    if id_ != OVERVIEW:
        check_id(id_)
    client = request.scope.get(CLIENT, "")
    try:
        return site.live.subscribe(id_, request.headers.get("last-event-id"), client)
    except StreamLimitError as error:  # shown by the page
        return PlainTextResponse(f"{error}\n", 429)


async def _act(site: Site, table: str, action: str, request: HttpRequest) -> Response:
    form = await _read_action_form(site, request)
    id_ = check_id(request.path_params["id"])

    def act() -> Response:
        with site.access.reader() as store:
            subject = run_page.find_subject(store, table, id_, site.active.rows())
        actions.perform(action, site.access, subject, form.get("text", ""))
        return RedirectResponse(subject.path, 303)

    return await run_in_threadpool(act)


async def _decide(site: Site, decision: str, request: HttpRequest) -> Response:
    """Permit or deny a requested call."""
    form = await _read_action_form(site, request)
    id_ = check_id(request.path_params["id"])

    def act() -> Response:
        decided = actions.decide(site.access, id_, decision, form.get("text", ""))
        is_on_run_page = form.get("page") == "run" and decided.run is not None
        path = f"/runs/{check_id(decided.run or '')}" if is_on_run_page else "/"
        return RedirectResponse(path, 303)

    return await run_in_threadpool(act)


async def _read_action_form(site: Site, request: HttpRequest) -> dict[str, str]:
    """The fields of a form of our own page; UrlError for any other."""
    form = await _read_form(request)
    if not site.policy.allow_actions or not site.policy.is_csrf_token(form.get("csrf", "")):
        raise UrlError("this form is out of date; reload the page and try again")
    return form


async def _read_form(request: HttpRequest) -> dict[str, str]:
    """The fields of a form; UrlError if it is too long."""
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > actions.MAX_FORM_BYTES:
            raise UrlError(f"the form is too long (maximum {actions.MAX_FORM_BYTES:,} bytes)")
    return dict(parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True))


async def _send_metrics(site: Site, request: HttpRequest) -> Response:
    """The counters of the ledger for Prometheus."""
    from ..export import prometheus

    def build() -> str:
        active = [info.agent for info in active_runs()]
        with site.access.reader() as store:
            return prometheus.prometheus_text(store, site.zone, now_ms(), active)

    text = await run_in_threadpool(build)
    return Response(text, headers={"content-type": prometheus.CONTENT_TYPE})


async def _send_static(site: Site, name: str, request: HttpRequest) -> Response:
    headers = {"cache-control": "max-age=31536000, immutable"}  # the version is in the URL
    return Response(site.static[name], media_type=STATIC_FILES[name], headers=headers)


async def _show_error(site: Site, request: HttpRequest, error: Exception) -> Response:
    """An error page: what was wrong; details of an unexpected error go to the terminal."""
    status = getattr(error, "status_code", 500)
    message = str(error)
    if isinstance(error, UrlError):
        status = 400
    elif isinstance(error, UnknownIdError | SourceError):
        status = 404
    elif isinstance(error, LedgerError):
        status = 503
    elif isinstance(error, StenoError):
        status = 409
    elif status in (404, 405):
        message = "page not found" if status == 404 else "not allowed here"
    else:
        site.on_error(error)
        message = "internal error; see the terminal of steno serve"
    html = site.render("error.html", {"status": status, "message": message}, request)
    return HTMLResponse(html, status, RESPONSE_HEADERS)  # no middleware sees internal errors
