"""Options of an enqueue over the API."""

from typing import Any

from tests.server.world import World

JOB: dict[str, Any] = {"definition_key": "greet", "payload": {"name": "Ada"}}


async def post(world: World, path: str = "/jobs", **more: Any) -> Any:
    return await world.call("POST", path, who="operator", json={**JOB, **more})


async def test_a_job_has_its_options(world: World) -> None:
    made = await post(
        world, tags=["red", "blue"], timeout=1.5, expires_in=3600, dedupe_key="k", unique_for=86_400
    )

    assert made.status_code == 201, made.text
    job = made.json()
    assert (job["tags"], job["timeout_seconds"], job["deduplicated"]) == (["red", "blue"], 2, False)
    assert job["expires_at"] > job["scheduled_for"]
    await world.call("POST", f"/jobs/{job['id']}/cancel", who="operator")
    again = await post(world, dedupe_key="k")
    assert (again.json()["id"], again.json()["deduplicated"]) == (job["id"], True)


async def test_a_debounced_job_is_moved(world: World) -> None:
    key = {"key": "k", "seconds": 600, "max_seconds": 3600}
    first = (await post(world, debounce=key)).json()
    second = (await post(world, payload={"name": "Bob"}, debounce=key)).json()
    kept = (await post(world, payload={"name": "Eve"}, debounce={**key, "payload": "first"})).json()

    assert [one["deduplicated"] for one in (first, second, kept)] == [False, True, True]
    assert {one["id"] for one in (first, second, kept)} == {first["id"]}
    assert (kept["payload"], kept["scheduled_for"] > first["scheduled_for"]) == ({"name": "Bob"}, True)


async def test_bad_options_are_refused_with_their_names(world: World) -> None:
    bad: list[tuple[str, Any]] = [
        ("tags", ["a", "a"]),
        ("tags", "a"),
        ("tags", ["x" * 65]),
        ("timeout", 0),
        ("expires_in", "soon"),
        ("unique_for", 60),
        ("debounce", {"key": "k"}),
        ("debounce", {"key": "k", "seconds": 5, "max_seconds": 1}),
        ("debounce", {"key": "k", "seconds": 5, "payload": "middle"}),
        ("debounce", {"key": "k", "seconds": 5, "window": 1}),
    ]
    for name, value in bad:
        refused = await post(world, **{name: value})
        assert (refused.status_code, refused.json()["code"]) == (422, "invalid_input"), refused.text
        assert refused.json()["errors"][0]["path"].split(".")[0].lstrip("/").split("/")[0] == name
