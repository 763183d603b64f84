"""Which responses are compressed, and which are not."""

import gzip
import json
from collections.abc import AsyncIterator

import httpx2
import pytest
from fastapi import FastAPI
from fastapi.responses import JSONResponse, Response, StreamingResponse

from fairlead.server.compression import PIECE_BYTES, Compression
from fairlead.server.problems import CONSOLE
from tests.server.world import BASE, World

LONG = {"text": "Fairlead " * 500}
LONGER = {"numbers": list(range(50_000))}
GZIP = {"Accept-Encoding": "br, gzip;q=0.8"}


@pytest.fixture
async def client() -> AsyncIterator[httpx2.AsyncClient]:
    app = FastAPI()
    app.add_middleware(Compression)

    @app.api_route("/long", methods=["GET", "POST"])
    async def long() -> Response:
        return JSONResponse(LONG, headers={"ETag": '"1"'})

    @app.get("/longer")
    async def longer() -> Response:
        return JSONResponse(LONGER)

    @app.get("/short")
    async def short() -> Response:
        return JSONResponse({})

    @app.get("/image")
    async def image() -> Response:
        return Response(b"x" * 5000, media_type="image/png")

    @app.get("/stream")
    async def stream() -> Response:
        async def lines() -> AsyncIterator[str]:
            for _ in range(100):
                yield "line\n" * 100

        return StreamingResponse(lines(), media_type="text/html")

    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app), base_url=BASE) as opened:
        yield opened


async def test_a_long_text_is_compressed(client: httpx2.AsyncClient) -> None:
    async with client.stream("GET", "/long", headers=GZIP) as answer:
        raw = b"".join([part async for part in answer.aiter_raw()])

    assert answer.headers["content-encoding"] == "gzip"
    assert answer.headers["vary"] == "Accept-Encoding"
    assert answer.headers["etag"] == 'W/"1"'
    assert int(answer.headers["content-length"]) == len(raw) < 200
    assert b"Fairlead" in gzip.decompress(raw)


@pytest.mark.parametrize("path", ["/short", "/image", "/stream"])
async def test_short_texts_images_and_streams_are_not(client: httpx2.AsyncClient, path: str) -> None:
    answer = await client.get(path, headers=GZIP)

    assert "content-encoding" not in answer.headers


@pytest.mark.parametrize("accepted", ["identity", "gzip;q=0", "br"])
async def test_a_client_that_does_not_accept_it_gets_the_text(
    client: httpx2.AsyncClient, accepted: str
) -> None:
    answer = await client.get("/long", headers={"Accept-Encoding": accepted})

    assert "content-encoding" not in answer.headers
    assert answer.headers["vary"] == "Accept-Encoding"
    assert answer.headers["etag"] == '"1"'


async def test_an_answer_to_a_change_is_not_compressed_since_it_may_hold_a_new_secret(
    client: httpx2.AsyncClient,
) -> None:
    answer = await client.post("/long", headers=GZIP)

    assert "content-encoding" not in answer.headers


async def test_pages_and_files_are_compressed_and_files_stay_cacheable(world: World) -> None:
    page = await world.call("GET", f"{BASE}{CONSOLE}/jobs", who="viewer", headers=GZIP)
    styles = page.text.partition('rel="stylesheet" href="')[2].partition('"')[0]
    file = await world.call("GET", f"{BASE}{styles}", who=None, headers=GZIP)

    assert page.headers["content-encoding"] == file.headers["content-encoding"] == "gzip"
    assert "immutable" in file.headers["cache-control"]


async def test_a_body_of_several_pieces_is_one_gzip(client: httpx2.AsyncClient) -> None:
    """As a browser reads it: the client decompresses it."""
    assert len(json.dumps(LONGER)) > 3 * PIECE_BYTES
    answer = await client.get("/longer", headers=GZIP)
    assert answer.headers["content-encoding"] == "gzip"
    assert answer.json() == LONGER
