"""State, metrics, documentation, and who is let in."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from prometheus_client.parser import text_string_to_metric_families

from streamkit.errors import ConfigError, UsageError
from streamkit.http.server.http_server import HttpServer, parse_address
from streamkit.plan import load
from streamkit.runtime.local.instance.client import Application
from streamkit.transport.embedded import EmbeddedTransport
from tests.broker.support import until
from tests.http.support import SHOP, USERS, processed, request, served, write_shop

TOKEN = {"Authorization": "Bearer s3cret"}


@pytest.fixture(scope="module")
def shop(tmp_path_factory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("shop")
    log = EmbeddedTransport(folder / "log")
    write_shop(log)
    with served(folder, log, token="s3cret") as (address, _):
        processed(address, 3 * len(USERS), TOKEN)
        yield address
    log.close()


def test_the_token_is_asked_for_everywhere_but_where_probes_and_people_begin(shop):
    for path in ("/health", "/ready", "/", "/api", "/openapi.json"):
        assert request(shop, path).status == 200
    for path in ("/status", "/lag", "/metrics", "/stores", "/stores/counts/all"):
        refused = request(shop, path)
        assert (refused.status, refused.headers["www-authenticate"]) == (401, "Bearer")
        assert request(shop, path, headers={"Authorization": "Bearer other"}).status == 401
        assert request(shop, path, headers=TOKEN).status == 200


def test_pages_of_other_sites_do_not_get_through(shop):
    assert request(shop, "/health", headers={"Host": "evil.example"}).status == 403
    for malformed in ("localhost:1:2", "evil.example/@localhost", "[::1", "local host"):
        assert request(shop, "/status", headers={**TOKEN, "Host": malformed}).status == 400
    port = shop.partition(":")[2]
    assert request(shop, "/health", headers={"Host": f"localhost:{port}"}).status == 200
    refused = request(shop, "/status", method="POST", headers={**TOKEN, "Origin": "http://evil.example"})
    assert refused.status == 403


def test_an_unknown_parameter_is_refused_with_the_known_ones(shop):
    for path, known in (("/topics", "none"), ("/nodes", "none"), ("/dead-letters", "limit")):
        refused = request(shop, path, headers=TOKEN, bogus="1")
        assert (refused.status, refused.json["error"].split(": ")[-1].startswith(known)) == (400, True), refused.json


def test_status_tells_of_threads_tasks_and_topics(shop):
    (instance,) = request(shop, "/status", headers=TOKEN).json["instances"]
    assert (instance["address"], instance["state"], len(instance["threads"])) == (shop, "RUNNING", 2)
    tasks = {task["id"] for thread in instance["threads"] for task in thread["tasks"]}
    assert len(tasks) == 6
    topics = {topic["topic"]: topic["consumed"] for topic in instance["topics"]}
    assert topics["orders"] == 3 * len(USERS)
    lag = request(shop, "/lag", headers=TOKEN).json
    assert lag["lag"] == 0
    assert {(each["topic"], each["position"]) for each in lag["partitions"]} >= {("prices", 3), ("prices", 0)}


def test_threads_come_and_go(tmp_path):
    log = EmbeddedTransport(tmp_path / "log")
    write_shop(log)
    try:
        with served(tmp_path / "a", log) as (address, application):

            def settled(count: int) -> bool:
                status = application.status()
                tasks = [len(thread.tasks) for thread in status.threads if thread.state == "RUNNING"]
                return len(tasks) == count and sum(tasks) == 6 and min(tasks) > 0

            added = request(address, "/threads", method="POST").json
            assert len(added["threads"]) == 3
            until(lambda: settled(3), "three threads share the tasks")
            removed = request(address, "/threads", method="DELETE").json
            assert removed["thread"] == added["thread"]
            until(lambda: settled(2), "two threads have the tasks")
            until(lambda: request(address, "/stores/counts/all").status == 200, "the moved tasks answer")
            assert request(address, "/pause", method="POST").json == {"paused": True}
            assert request(address, "/resume", method="POST").json == {"paused": False}
    finally:
        log.close()


def test_metrics_have_the_names_of_kafka_streams(shop):
    answer = request(shop, "/metrics", headers=TOKEN)
    assert answer.headers["content-type"].startswith("text/plain")
    samples = [sample for family in text_string_to_metric_families(answer.text) for sample in family.samples]
    totals: dict[str, float] = {}
    for sample in samples:
        totals[sample.name] = totals.get(sample.name, 0) + sample.value
    task, thread = "kafka_streams_stream_task_metrics_", "kafka_streams_stream_thread_metrics_"
    assert totals[f"{task}process_total"] == totals[f"{thread}process_total"] > 3 * len(USERS)
    assert totals[f"{task}dropped_records_total"] == 0
    assert totals[f"{thread}task_created_total"] == 6
    assert totals["kafka_streams_stream_metrics_alive_stream_threads"] == 2
    for name in ("process", "commit", "poll", "punctuate", "task_created", "task_closed"):
        assert {f"{thread}{name}_rate", f"{thread}{name}_total"} <= totals.keys()
    consumed = [
        sample for sample in samples if sample.name == "kafka_streams_stream_topic_metrics_records_consumed_total"
    ]
    assert sum(sample.value for sample in consumed if sample.labels["topic_name"] == "orders") == 3 * len(USERS)
    assert {sample.labels["processor_node_id"] for sample in consumed if sample.labels["topic_name"] == "prices"} == {
        "KSTREAM-SOURCE-0000000000"
    }
    assert totals["kafka_consumer_consumer_fetch_manager_metrics_records_lag"] == 0


def test_every_endpoint_is_documented_and_answers(shop):
    document = request(shop, "/openapi.json").json
    api = request(shop, "/api").text
    for path, operations in document["paths"].items():
        assert path.replace("{", "&#123;") in api or path in api
        for method, operation in operations.items():
            names = {parameter["name"]: parameter for parameter in operation["parameters"]}
            assert ("{store}" in path) == ("store" in names)
            assert ("{topic}" in path) == (names.get("topic", {}).get("in") == "path")
            if method == "get":
                streamed = "text/event-stream" in operation["responses"]["200"]["content"]
                store = {"windows": "per-window", "sessions": "per-session", "versions": "prices"}
                kind = path.rpartition("/")[2]
                needed = {name: "user-01" for name, each in names.items() if each["required"] and each["in"] == "query"}
                target = path.replace("{store}", store.get(kind, "counts")).replace("{topic}", "orders")
                answer = request(shop, target, method="HEAD" if streamed else "GET", headers=TOKEN, **needed)
                assert answer.status == 200, (path, answer.text)


def test_before_the_start_stores_can_not_be_read_and_nothing_is_ready(tmp_path):
    file = tmp_path / "topology.yaml"
    file.write_text(SHOP)
    log = EmbeddedTransport(tmp_path / "log")
    server = HttpServer("127.0.0.1", 0)
    try:
        server.start(Application(load(file, overrides={"state.dir": str(tmp_path / "state")}), log))
        assert request(server.address, "/health").status == 200
        assert request(server.address, "/ready").status == 503
        for path in ("/stores/counts/all", "/stores/countries/all", "/stores/counts/get?key=a"):
            assert request(server.address, path).status == 503
    finally:
        server.close()
        log.close()


def test_a_port_in_use_is_one_clear_line():
    server = HttpServer("127.0.0.1", 0)
    try:
        with pytest.raises(ConfigError, match=rf"--http: port {server.port} on 127.0.0.1 is in use by another process"):
            HttpServer("127.0.0.1", server.port)
    finally:
        server.close()
    with pytest.raises(ConfigError, match="is no address of this machine"):
        HttpServer("no.such.host.invalid", 0)


def test_an_address_is_a_host_and_a_port():
    assert parse_address("0.0.0.0:80") == ("0.0.0.0", 80)
    for wrong in ("host", "host:", "host:99999", "::1:80", ""):
        with pytest.raises(UsageError, match="expected HOST:PORT"):
            parse_address(wrong)
