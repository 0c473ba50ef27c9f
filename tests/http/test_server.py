"""State, metrics, documentation, and who is let in."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from prometheus_client.parser import text_string_to_metric_families

from streamkit.errors import ConfigError, ProcessingError, UsageError
from streamkit.http.endpoint_app import HttpServer, parse_address
from streamkit.plan import load
from streamkit.runtime.local import status_model
from streamkit.runtime.local.client import Application
from streamkit.runtime.telemetry.open_telemetry import METRICS
from streamkit.transport.embedded import EmbeddedTransport
from streamkit.transport.log_interface import NewTopic
from tests.broker.support import until
from tests.http.support import SHOP, USERS, processed, request, served, write, write_shop

FAILING = """\
streamkit: 1
application: failing
config: {bootstrap.servers: embedded, poll.ms: 10}
topics: {in: {key: string, value: string, partitions: 1}, out: {key: string, value: string, partitions: 1}}
pipelines:
  p:
    stream: in
    steps: [{filter: int(value) > 0}]
    to: out
"""
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


def test_token_required_except_for_probes_and_index_page(shop):
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


@pytest.mark.parametrize(
    ("method", "path", "headers", "status"),
    [
        ("POST", "/pause", {"Origin": "http://HOST"}, 200),
        ("POST", "/pause", {"Origin": "https://HOST"}, 403),
        ("POST", "/pause", {"Origin": "https://HOST", "X-Forwarded-Proto": "https"}, 200),
        ("POST", "/pause", {"Origin": "http://HOST", "X-Forwarded-Proto": "https"}, 403),
        ("POST", "/pause", {"Origin": "null"}, 403),
        ("POST", "/pause", {"Origin": "http://localhost:1"}, 403),
        ("POST", "/pause", {"Sec-Fetch-Site": "cross-site"}, 403),
        ("POST", "/pause", {"Sec-Fetch-Site": "same-origin"}, 200),
        ("POST", "/", {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Dest": "document"}, 403),
        ("GET", "/status", {"Sec-Fetch-Site": "cross-site"}, 403),
        ("GET", "/status", {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Dest": "document"}, 403),
        ("GET", "/health", {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Dest": "image"}, 403),
        ("GET", "/", {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Dest": "iframe"}, 403),
        ("GET", "/", {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Dest": "document"}, 200),
        ("GET", "/status", {"Sec-Fetch-Site": "none", "Sec-Fetch-Dest": "document"}, 200),
    ],
)
def test_only_the_own_page_has_access_from_a_browser(method, path, headers, status, shop):
    sent = {name: value.replace("HOST", shop) for name, value in headers.items()}
    answer = request(shop, path, method=method, headers={**TOKEN, **sent})
    assert answer.status == status, answer.text
    assert request(shop, "/resume", method="POST", headers=TOKEN).status == 200


def test_a_server_for_other_machines_needs_a_token_or_the_names_of_its_hosts():
    for host, shown in (("0.0.0.0", "0.0.0.0"), ("::", "[::]")):
        for hosts in (None, "", " , "):
            with pytest.raises(UsageError) as caught:
                HttpServer(host, 0, None, hosts)
            assert str(caught.value) == (
                f"--http {shown}:0 can be reached from other machines and needs a token: set STREAMKIT_HTTP_TOKEN, or give "
                "--http-token-file FILE; or list the host names by which clients may address it: --http-hosts NAME,NAME"
            )
    for wrong in ("a b", "http://a", "a:80", "a/b"):
        with pytest.raises(UsageError, match=f"--http-hosts: '{wrong}' is no host name"):
            HttpServer("127.0.0.1", 0, None, f"a,{wrong}")


@pytest.mark.parametrize(
    ("host", "token", "hosts", "names", "status"),
    [
        (
            "0.0.0.0",
            None,
            "a.example, B.example,192.0.2.1",
            ["a.example", "A.example:80", "b.example", "192.0.2.1"],
            200,
        ),
        ("0.0.0.0", None, "a.example", ["localhost:80", "127.0.0.1", "own.example"], 200),
        ("0.0.0.0", None, "a.example", ["evil.example", "evil.a.example", "192.0.2.1", "a.example."], 403),
        ("0.0.0.0", "s3cret", None, ["evil.example", "192.0.2.1"], 200),
        ("0.0.0.0", "s3cret", "a.example", ["evil.example"], 403),
        ("127.0.0.1", None, None, ["evil.example", "a.example"], 403),
        ("127.0.0.1", None, "a.example", ["a.example", "localhost"], 200),
    ],
)
def test_names_that_the_server_does_not_know_are_refused(host, token, hosts, names, status, tmp_path):
    file = tmp_path / "topology.yaml"
    file.write_text(SHOP)
    log = EmbeddedTransport(tmp_path / "log")
    server = HttpServer(host, 0, token, hosts)
    overrides = {"state.dir": str(tmp_path / "state"), "application.server": "own.example:80"}
    try:
        server.start(Application(load(file, overrides=overrides), log))
        for name in names:
            answer = request(f"127.0.0.1:{server.port}", "/nodes", headers={**TOKEN, "Host": name})
            assert answer.status == status, (name, answer.text)
    finally:
        server.close()
        log.close()


@pytest.mark.parametrize("token", ["s3cret", None])
def test_probes_show_no_record(token, tmp_path):
    file = tmp_path / "topology.yaml"
    file.write_text(FAILING)
    log = EmbeddedTransport(tmp_path / "log")
    server = HttpServer("127.0.0.1", 0, token)
    application = Application(load(file, overrides={"state.dir": str(tmp_path / "state")}), log)
    try:
        server.start(application)
        admin = log.admin()
        admin.create_topics([NewTopic("in", 1), NewTopic("out", 1)])
        admin.close()
        write(log, [("in", b"4111-key", b"4111-value", 1, None, None)])
        with pytest.raises(ProcessingError, match="4111-key"):
            application.run()
        for path in ("/health", "/ready"):
            probe = request(server.address, path)
            assert (probe.status, probe.json) == (503, {"state": "ERROR", "paused": False})
        error = request(server.address, "/health", headers=TOKEN).json.get("error")
        assert error is None if token is None else "4111-value" in error
    finally:
        server.close()
        log.close()


def test_an_unknown_parameter_is_refused_with_the_known_ones(shop):
    for path, known in (("/topics", "none"), ("/nodes", "none"), ("/dead-letters", "limit")):
        refused = request(shop, path, headers=TOKEN, bogus="1")
        assert (refused.status, refused.json["error"].split(": ")[-1].startswith(known)) == (400, True), refused.json


def test_status_shows_threads_tasks_and_topics(shop):
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


def test_stores_in_memory_have_the_number_of_their_keys(tmp_path, monkeypatch):
    monkeypatch.setattr(status_model, "_SIZE_SECONDS", 0)
    log = EmbeddedTransport(tmp_path / "log")
    write_shop(log)
    in_memory = {"dsl.store.suppliers.class": "InMemoryDslStoreSuppliers", "statestore.cache.max.bytes": 0}
    try:
        with served(tmp_path, log, **in_memory) as (address, application):
            processed(address, 3 * len(USERS))
            found: dict[tuple[str, str], float] = {}
            for family in text_string_to_metric_families(request(address, "/metrics").text):
                for sample in family.samples if family.name == "kafka_streams_stream_state_metrics_num_keys" else ():
                    labels = dict(sample.labels)
                    thread, task = labels.pop("thread_id"), labels.pop("task_id")
                    assert thread.endswith("-GlobalStreamThread") == (task == "-1_-1")
                    ((scope, store),) = labels.items()
                    found[scope, store] = found.get((scope, store), 0) + sample.value
            (exported,) = (metric for metric in METRICS if metric.name == "org.apache.kafka.stream.state.num.keys")
            points = list(exported.points(application.status()))
    finally:
        log.close()
    users = len(USERS)
    assert found == {
        ("in_memory_state_id", "countries"): 2,
        ("in_memory_state_id", "counts"): users,
        ("in_memory_state_id", "by-user"): users,
        ("in_memory_window_state_id", "per-window"): 2 * users,
        ("in_memory_session_state_id", "per-session"): 2 * users,
        ("in_memory_window_state_id", "pairs-this-join-store"): 3 * users,
        ("in_memory_window_state_id", "pairs-other-join-store"): 3 * users,
    }
    assert sum(keys for keys, _ in points) == sum(found.values())


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
                value = "SELECT 1" if path == "/sql" else "user-01"
                needed = {name: value for name, each in names.items() if each["required"] and each["in"] == "query"}
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
    with pytest.raises(ConfigError, match="is not an address of this machine"):
        HttpServer("no.such.host.invalid", 0)


def test_an_address_is_a_host_and_a_port():
    assert parse_address("0.0.0.0:80") == ("0.0.0.0", 80)
    for wrong in ("host", "host:", "host:99999", "::1:80", ""):
        with pytest.raises(UsageError, match="expected HOST:PORT"):
            parse_address(wrong)
