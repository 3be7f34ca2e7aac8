"""The HTTP API: what the coordinator knows, as JSON, and its metrics.

    GET /healthz             {"status": "ok"}; never needs a token
    GET /api/status          `views.status`
    GET /api/workers         {"workers": [`views.worker`]}
    GET /api/jobs            {"jobs": [`views.job`]}
    GET /api/groups          {"groups": [`views.group`], "forming": [`views.forming`]}; ?job= names one job
    GET /api/groups/NAME     {"groups": [`views.group_in_full`]}: by name or number; all epochs known, the newest first
    GET /api/barriers        {"barriers": [`views.barrier`]}
    GET /api/ops             `operations.merge`
    GET /metrics             Prometheus text

Fields are only ever added. Errors are {"error": sentence} with status 401 or 404. On another address than loopback
every request but the first needs the header ``Authorization: Bearer TOKEN``.
"""

import hmac
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from aiohttp import web

from hocket.coordinator import metrics, operations, views
from hocket.coordinator.config import VARIABLES
from hocket.protocol.addresses import is_loopback
from hocket.protocol.doorway import listen

if TYPE_CHECKING:
    from hocket.coordinator.server import Coordinator

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
SHUTDOWN_S = 1.0


class HttpServer:
    """Serves the API of one coordinator."""

    def __init__(self, coordinator: "Coordinator") -> None:
        self._coordinator = coordinator
        self._runner: web.AppRunner | None = None

    async def start(self) -> int:
        """Listens and returns the port. Raises `ConnectError` naming address and setting."""
        config = self._coordinator.config
        sock = listen(config.http_address, f"--http-host, --http-port or {VARIABLES['http_host']}")
        token = b"" if is_loopback(config.http_host) else config.read_token()
        app = web.Application(middlewares=[_guard(token)] if token else [])
        app.add_routes(self._routes())
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=SHUTDOWN_S)
        try:
            await self._runner.setup()
            await web.SockSite(self._runner, sock).start()
        except BaseException:
            sock.close()
            raise
        return int(sock.getsockname()[1])

    async def stop(self) -> None:
        """Ends what is being served and frees the port."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    def _routes(self) -> list[web.RouteDef]:
        return [
            web.get("/healthz", self._healthz),
            web.get("/api/status", self._status),
            web.get("/api/workers", self._workers),
            web.get("/api/jobs", self._jobs),
            web.get("/api/groups", self._groups),
            web.get("/api/groups/{name:.+}", self._group),
            web.get("/api/barriers", self._barriers),
            web.get("/api/ops", self._operations),
            web.get("/metrics", self._metrics),
        ]

    async def _healthz(self, request: web.Request) -> web.Response:
        return web.json_response({"status": "ok"})

    async def _status(self, request: web.Request) -> web.Response:
        return web.json_response(views.status(self._coordinator.core, self._coordinator.now))

    async def _workers(self, request: web.Request) -> web.Response:
        return _list("workers", views.workers(self._coordinator.core, self._coordinator.now))

    async def _jobs(self, request: web.Request) -> web.Response:
        return _list("jobs", views.jobs(self._coordinator.core, self._coordinator.now))

    async def _groups(self, request: web.Request) -> web.Response:
        core, now, job = self._coordinator.core, self._coordinator.now, request.query.get("job")
        return web.json_response({"groups": views.groups(core, now, job), "forming": views.all_forming(core, now, job)})

    async def _group(self, request: web.Request) -> web.Response:
        name, job = request.match_info["name"], request.query.get("job")
        found = views.find_groups(self._coordinator.core, self._coordinator.now, name, job)
        if not found:
            of_job = f" of job {job!r}" if job else ""
            return _error(404, f"no group {name!r}{of_job} is known")
        return _list("groups", found)

    async def _barriers(self, request: web.Request) -> web.Response:
        return _list("barriers", views.barriers(self._coordinator.core, self._coordinator.now))

    async def _operations(self, request: web.Request) -> web.Response:
        answers = await self._coordinator.ask_operations()
        return web.json_response(operations.merge(self._coordinator.core.membership, answers))

    async def _metrics(self, request: web.Request) -> web.Response:
        text = metrics.render(self._coordinator.core, self._coordinator.strangers_turned_away)
        return web.Response(body=text, headers={"Content-Type": metrics.CONTENT_TYPE})


def _list(name: str, entries: Sequence[Mapping[str, Any]]) -> web.Response:
    return web.json_response({name: entries})


def _error(status: int, sentence: str) -> web.Response:
    return web.json_response({"error": sentence}, status=status)


def _guard(token: bytes) -> Any:
    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        given = request.headers.get("Authorization", "").removeprefix("Bearer ").encode(errors="surrogateescape")
        if request.path != "/healthz" and not hmac.compare_digest(given, token):
            sentence = "the token is missing or wrong (set HOCKET_TOKEN_FILE to the file with the service's token)"
            return _error(401, sentence)
        return await handler(request)

    return guard
