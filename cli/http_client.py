"""Reads the coordinator's HTTP API, for commands that show what it knows."""

import http.client
import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from typing import Any

from hocket.protocol.addresses import parse_address
from hocket.protocol.environment import read_token
from hocket.protocol.errors import AuthError, ConnectError, HocketError, WireError
from hocket.protocol.limits import CONNECT_TIMEOUT_S, HTTP_PORT

SETTING = "--http or HOCKET_HTTP"
Json = dict[str, Any]


def fetch(where: str, path: str, query: Mapping[str, str | None] | None = None, token_file: str = "") -> Json:
    """What the coordinator answers under ``path``.

    Args:
        where: ``HOST:PORT`` of its HTTP API.
        path: one of those that the API has; it is quoted here.
        query: parameters; those that are None are left out.
        token_file: file with the service's token, for a coordinator that asks for it.

    Raises:
        ConnectError: nobody answers there; it names the address and the setting.
        AuthError: the token is missing or wrong.
        ArgumentError: the address or the token file is not one.
        HocketError: the coordinator knows no such thing; its sentence says what.
    """
    address = parse_address(where, SETTING, HTTP_PORT)
    given = {key: value for key, value in (query or {}).items() if value is not None}
    url = f"http://{address}{urllib.parse.quote(path)}" + (f"?{urllib.parse.urlencode(given)}" if given else "")
    request = urllib.request.Request(url)
    if token_file:
        request.add_header("Authorization", f"Bearer {read_token(token_file).decode('latin-1')}")
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # a proxy does not lead to our loopback
    try:
        with opener.open(request, timeout=CONNECT_TIMEOUT_S) as response:
            return _parse(response.read(), str(address))
    except urllib.error.HTTPError as refused:
        with refused:
            raise _refusal(refused, str(address)) from refused
    except (OSError, http.client.HTTPException) as broken:
        reason = broken.reason if isinstance(broken, urllib.error.URLError) else broken
        detail = getattr(reason, "strerror", None) or str(reason) or type(reason).__name__
        raise ConnectError(str(address), SETTING, f"the coordinator does not answer there: {detail}") from broken


def _refusal(refused: urllib.error.HTTPError, address: str) -> HocketError:
    try:
        sentence = str(_parse(refused.read(), address)["error"])
    except (WireError, KeyError):
        sentence = f"{address} answered {refused.code} {refused.reason}"
    return AuthError(sentence) if refused.code == 401 else HocketError(sentence)


def _parse(body: bytes, address: str) -> Json:
    try:
        answer = json.loads(body)
    except ValueError as broken:
        raise WireError(f"what answers at {address} is no coordinator of hocket's") from broken
    if not isinstance(answer, dict):
        raise WireError(f"what answers at {address} is no coordinator of hocket's")
    return answer
