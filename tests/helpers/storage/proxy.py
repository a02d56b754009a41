"""An HTTP proxy in front of the storage emulator: counts requests, injects faults, adds missing features.

Features of Google Cloud Storage that the emulator lacks: objects are read by the XML API with all its
headers, old generations answer with 404, listings have pages, a missing bucket is named, a finished upload
session answers a second time, `Content-Encoding` is stated, and writes and removals obey
`ifGenerationMatch`.
"""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import json
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple
from urllib.parse import parse_qs, quote, unquote, urlencode, urlsplit

from shardwright.core.storage import faults

from .scripted import Answers, Response

_OBJECTS = re.compile(
    r"/(?:download/|upload/)?storage/v1/b/(?P<bucket>[^/]+)(?P<objects>/o(?:/(?P<name>.*))?)?\Z"
)
#: What obstore asks for: the XML API.
_XML = re.compile(r"/(?!(?:storage|upload|download|batch)/)(?P<bucket>[^/]+)(?P<objects>/(?P<name>.+))\Z")
_REWRITE = re.compile(r"(?P<source>.*)/rewriteTo/b/(?P<bucket>[^/]+)/o/(?P<name>.*)\Z")
_LAST_MODIFIED = "Tue, 24 Nov 2026 10:00:00 GMT"
#: Headers that apply to one connection.
_HOPS = frozenset(("connection", "transfer-encoding", "content-length", "keep-alive"))


@dataclass
class Request:
    """A request that the proxy received.

    Attributes:
      kind: media, stat, list, upload, begin, chunk, delete, copy, or bucket.
      bucket: Name of the bucket.
      name: Name of the object; for a copy, of the target; for a listing, the prefix.
      attempt: Number of equal requests before.
      query: Query of the URL.
      ranged: Whether it asks for a range of bytes.
      number: Position in the order of arrival.
      status: Status of the answer; 0 if there was none.
      sent: Size of its body in bytes.
    """

    kind: str
    bucket: str
    name: str
    attempt: int
    query: dict[str, str]
    ranged: bool = False
    number: int = 0
    status: int = 0
    sent: int = 0

    def dice(self, seed: int) -> float:
        """Returns a number from 0 to 1 that depends only on the request and the seed."""
        text = f"{seed} {self.kind} {self.name} {self.attempt}"
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") / 2**64


class Fault(NamedTuple):
    """A fault to inject.

    Attributes:
      action: `status` answers with `value` at once; `drop` closes the connection before the request is
        executed, `lose` afterwards; `cut` ends the answer in the middle of its body; `delay` waits `value`
        seconds; `flip` changes a byte of the answer's body, `flip_upload` one of the request's.
      value: Argument of the action.
    """

    action: str
    value: float = 0


Rule = Callable[[Request], Fault | None]


def flaky(seed: int) -> Rule:
    """Returns a rule for a flaky storage: a quarter of all requests fail in some way, others are late."""
    kinds = (
        *[Fault("status", 503)] * 10, *[Fault("status", 429)] * 3, *[Fault("drop")] * 4, *[Fault("lose")] * 3,
        *[Fault("cut")] * 5, *[Fault("delay", 0.02)] * 10,
    )  # fmt: skip

    def rule(request: Request) -> Fault | None:
        place = int(request.dice(seed) * 100)
        return kinds[place] if place < len(kinds) else None

    return rule


class Proxy(Answers):
    """The proxy; `url` contains its own port.

    Attributes:
      target: The emulator's (host, port).
      page_size: Maximum number of objects on a page of a listing.
      rule: Chooses the fault for each request.
      requests: Requests since `watch`.
      max_in_flight: Largest number of requests of each kind at the same time, since `watch`.
    """

    def __init__(self, target: tuple[str, int]) -> None:
        super().__init__()
        self.target, self.url, self.page_size = target, "", 1000
        self.rule: Rule | None = None
        self.requests: list[Request] = []
        self.max_in_flight: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._conditions = threading.Lock()
        self._in_flight: Counter[str] = Counter()
        self._attempts: Counter[tuple[str, ...]] = Counter()
        self._objects: dict[tuple[str, str], dict[str, Any]] = {}
        self._buckets: set[str] = set()
        self._sessions: dict[str, tuple[str, str]] = {}
        self._finished: dict[str, Response] = {}

    @contextlib.contextmanager
    def watch(self, rule: Rule | None = None, page_size: int = 1000) -> Iterator[Proxy]:
        """Forgets earlier requests, and applies a rule during the block."""
        with self._lock:
            self.requests.clear()
            self.max_in_flight.clear()
            self._attempts.clear()
        self.rule, self.page_size = rule, page_size
        try:
            yield self
        finally:
            self.rule, self.page_size = None, 1000

    def counts(self, bucket: str = "") -> Counter[str]:
        """Returns the number of requests of each kind."""
        return Counter(request.kind for request in self.requests if bucket in ("", request.bucket))

    def names(self, kind: str) -> list[str]:
        """Returns the objects in the requests of one kind, in the order of arrival."""
        return [request.name for request in self.requests if request.kind == kind]

    def answer(self, method: str, target: str, headers: Any, body: bytes) -> Response:
        """Answers one request."""
        request = self._note(method, target, headers, body)
        try:
            action, value = (self.rule(request) if self.rule else None) or Fault("")
            if action == "status":
                request.status = int(value)
                message = json.dumps({"error": {"message": f"the proxy says {value}"}}).encode()
                return Response(message, request.status, headers=(("Content-Type", "application/json"),))
            if action == "drop":
                return Response(drops=True)
            if action == "delay":
                time.sleep(value)
            answer = self._ask(method, target, headers, request, _flipped(body, action == "flip_upload"))
            request.status = answer.status
            if action == "lose":
                return Response(drops=True)
            if action == "cut" and answer.body:
                return answer._replace(only=len(answer.body) // 2)
            return answer._replace(body=_flipped(answer.body, action == "flip"))
        finally:
            with self._lock:
                self._in_flight[request.kind] -= 1

    def _note(self, method: str, target: str, headers: Any, body: bytes) -> Request:
        parts = urlsplit(target)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        match = _OBJECTS.match(parts.path) or _XML.match(parts.path)
        bucket, name = (unquote(match["bucket"]), match["name"]) if match else ("", None)
        kind = _kind(method, query, name) if match and match["objects"] else "bucket"
        if match and match.re is _XML:
            kind = "media"
        if kind == "copy" and name and (copied := _REWRITE.match(name)):
            bucket, name = copied["bucket"], copied["name"]
        if kind == "list":
            name = query.get("prefix", "")
        elif kind in ("upload", "begin"):
            found = re.search(rb'"name": *("(?:[^"\\]|\\.)*")', body)
            name = query.get("name") or (json.loads(found[1]) if found else "")
        elif kind == "chunk":
            bucket, name = self._sessions.get(query["upload_id"], (bucket, ""))
        else:
            name = unquote(name or "")
        with self._lock:
            same = (kind, bucket, name, query.get("pageToken", ""), headers.get("Content-Range", ""))
            request = Request(kind, bucket, name, self._attempts[same], query, "Range" in headers)
            request.number, request.sent = len(self.requests), len(body)
            self._attempts[same] += 1
            self.requests.append(request)
            self._in_flight[kind] += 1
            self.max_in_flight[kind] = max(self.max_in_flight[kind], self._in_flight[kind])
        return request

    def _ask(self, method: str, path: str, headers: Any, request: Request, body: bytes) -> Response:
        known = self._objects.get((request.bucket, request.name))
        wanted = request.query.get("generation")
        if wanted and known and request.kind in ("media", "stat") and known["generation"] != wanted:
            return Response(f"No such object: {request.bucket}/{request.name}".encode(), 404)
        if request.kind == "chunk" and (finished := self._finished.get(request.query["upload_id"])):
            return finished
        is_xml = request.kind == "media" and not _OBJECTS.match(urlsplit(path).path)
        if is_xml:
            path = f"/download/storage/v1/b/{request.bucket}/o/{quote(request.name, safe='')}?alt=media"
            if known and request.ranged and not int(known["size"]):
                return Response(status=416)
        if request.kind == "list":
            path = _without_page(path)
        with self._conditions if "ifGenerationMatch" in request.query else contextlib.nullcontext():
            known = self._objects.get((request.bucket, request.name))
            if request.query.get("ifGenerationMatch", "") not in ("", known["generation"] if known else "0"):
                return Response(b'{"error": {"code": 412, "message": "conditionNotMet"}}', 412)
            answer = self._forward(method, path, headers, body)
            self._learn(request, answer)
        if request.kind == "list" and answer.status == http.client.OK:
            start = int(request.query.get("pageToken", "0"))
            answer = answer._replace(body=_page(answer.body, start, self.page_size))
        if answer.status == http.client.NOT_FOUND and request.bucket not in self._buckets:
            missing = b'{"error": {"code": 404, "message": "The specified bucket does not exist."}}'
            answer = answer._replace(body=missing)
        more = []
        if request.kind == "media" and known and known.get("contentEncoding"):
            more.append(("Content-Encoding", known["contentEncoding"]))
        if is_xml and known:
            more += [
                ("ETag", f'"{known["generation"]}"'), ("Last-Modified", _LAST_MODIFIED),
                ("x-goog-generation", known["generation"]),
            ]  # fmt: skip
        return answer._replace(headers=(*answer.headers, *more))

    def _forward(self, method: str, path: str, headers: Any, body: bytes) -> Response:
        connection = http.client.HTTPConnection(*self.target, timeout=30)
        try:
            sent = {name: value for name, value in headers.items() if name.lower() not in _HOPS}
            connection.request(method, path, body or None, {**sent, "Content-Length": str(len(body))})
            response = connection.getresponse()
            kept = [(name, value) for name, value in response.getheaders() if name.lower() not in _HOPS]
            return Response(response.read(), response.status, headers=tuple(kept))
        except OSError:  # the emulator is down, and so is the storage
            return Response(status=503)
        finally:
            connection.close()

    def _learn(self, request: Request, answer: Response) -> None:
        """Stores state that the emulator does not keep."""
        if request.kind == "bucket" and answer.status == http.client.OK:
            self._buckets.add(json.loads(answer.body)["name"])
            return
        if request.kind == "begin" and answer.status == http.client.OK:
            location = next(value for name, value in answer.headers if name.lower() == "location")
            upload_id = parse_qs(urlsplit(location).query)["upload_id"][0]
            self._sessions[upload_id] = (request.bucket, request.name)
        if request.kind == "delete" and answer.status < http.client.BAD_REQUEST:
            self._objects.pop((request.bucket, request.name), None)
        if request.kind in ("upload", "chunk", "copy") and answer.status == http.client.OK:
            made = json.loads(answer.body)
            made = made.get("resource", made)
            self._objects[made["bucket"], made["name"]] = made
            if request.kind == "chunk":
                self._finished[request.query["upload_id"]] = answer


def _kind(method: str, query: dict[str, str], name: str | None) -> str:
    if method == "PUT" or "upload_id" in query:
        return "chunk"
    if "uploadType" in query:
        return "begin" if query["uploadType"] == "resumable" else "upload"
    if method == "DELETE":
        return "delete"
    if method == "POST":
        return "copy"
    if name is None:
        return "list"
    return "media" if query.get("alt") == "media" else "stat"


def _without_page(path: str) -> str:
    parts = urlsplit(path)
    query = [(k, v) for k, values in parse_qs(parts.query).items() for v in values if k != "pageToken"]
    return f"{parts.path}?{urlencode(query)}"


def _page(body: bytes, start: int, size: int) -> bytes:
    """Returns a page of a complete listing."""
    listing = json.loads(body)
    items = sorted(listing.get("items") or [], key=lambda item: item["name"].encode())
    page = {"items": items[start : start + size], "prefixes": (listing.get("prefixes") or []) * (not start)}
    if start + size < len(items):
        page["nextPageToken"] = str(start + size)
    return json.dumps(page).encode()


def _flipped(data: bytes, flips: bool) -> bytes:
    """Returns bytes of which one in the middle is changed, if there are any, or the same."""
    middle = len(data) // 2
    return data[:middle] + bytes((data[middle] ^ 1,)) + data[middle + 1 :] if flips and data else data


def always(fault: Fault, kind: str, name: str = "") -> Rule:
    """Returns a rule that injects a fault into requests of a kind whose object contains a text."""
    return lambda request: fault if request.kind == kind and name in request.name else None


def before_reading(name: str, act: Callable[[], None]) -> Rule:
    """Returns a rule that runs a function right before an object is read for the first time."""
    lock, done = threading.Lock(), []

    def rule(request: Request) -> Fault | None:
        with lock:
            first = request.kind == "media" and request.name == name and not done
            done.extend([request] * first)
        if first:
            act()
        return None

    return rule


class Retries:
    """How long operations are retried: as long as usual, or from some event on only for a moment."""

    def __init__(self) -> None:
        self._usual = faults.PATIENCE_SECONDS, faults.FIRST_PATIENCE_SECONDS

    def end_soon(self) -> None:
        """Ends all retries soon. What comes before this call has time, however busy the machine is."""
        faults.PATIENCE_SECONDS = faults.FIRST_PATIENCE_SECONDS = 0.3

    def as_usual(self) -> None:
        faults.PATIENCE_SECONDS, faults.FIRST_PATIENCE_SECONDS = self._usual


def for_good(rule: Rule, retries: Retries) -> Rule:
    """Returns the rule of a storage that is gone from the first fault of a rule on; retries end soon then."""
    gone: list[Fault] = []

    def lasting(request: Request) -> Fault | None:
        if fault := rule(request):
            gone.append(fault)
            retries.end_soon()
        return gone[0] if gone else None

    return lasting
