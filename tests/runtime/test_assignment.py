"""The assignor: balance, stickiness, standbys, and convergence while state moves, for groups of all sizes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from streamkit.errors import UnreachableError
from streamkit.record import TaskId, TopicPartition
from streamkit.runtime.local.internal_topics import TopicsOnLog
from streamkit.runtime.local.local_task import RUNNING
from streamkit.runtime.local.subscription_codec import (
    Assignment,
    InstanceMetadata,
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from streamkit.runtime.local.task_assignor import Decision, Instance, Leader, Rules, decide
from streamkit.transport.log_interface import Member

MANY = 100_000
"""Records of a changelog: far more than the acceptable lag."""


def choose(
    instances: dict[str, Instance], tasks: list[TaskId], stateful: Collection[TaskId], rules: Rules, length: int = MANY
) -> Decision:
    return decide(instances, tasks, dict.fromkeys(stateful, length), rules)


def ids(subs: int, partitions: int) -> list[TaskId]:
    return [TaskId(sub, partition) for sub in range(subs) for partition in range(partitions)]


def fresh(count: int, threads: int = 1) -> dict[str, Instance]:
    return {f"i{number:02}": Instance(threads) for number in range(count)}


def after(
    instances: dict[str, Instance], decision: Decision, stateful: set[TaskId], progress: int = MANY
) -> dict[str, Instance]:
    """The group once it has done what was decided and standbys have got on by so many records; old state stays on disk."""
    found = {}
    for name, each in instances.items():
        lags = {task: lag for task, lag in each.lags.items() if lag > 0} | {
            task: MANY for task, lag in each.lags.items() if lag == 0
        }
        for task in decision.standby[name]:
            lags[task] = max(1, each.lags.get(task, MANY) - progress)
        for task in decision.active[name]:
            if task in stateful:
                lags[task] = 0
        found[name] = replace(each, running=frozenset(decision.active[name]), lags=lags)
    return found


def settled(
    instances: dict[str, Instance], tasks: list[TaskId], stateful: set[TaskId], rules: Rules
) -> dict[str, Instance]:
    """The group after as many rounds as it asks for; one round is enough for max.warmup.replicas tasks to move."""
    for _ in range(2 + len(tasks) // rules.warmups + len(tasks)):
        decision = choose(instances, tasks, stateful, rules)
        instances = after(instances, decision, stateful)
        if not decision.probe:
            return instances
    raise AssertionError("the group does not come to rest")


def assert_complete(decision: Decision, tasks: list[TaskId]) -> None:
    assert sorted(task for share in decision.active.values() for task in share) == sorted(tasks)


def assert_balanced(instances: dict[str, Instance], decision: Decision, tasks: list[TaskId]) -> None:
    threads = sum(each.threads for each in instances.values())
    low, high = len(tasks) // threads, -(-len(tasks) // threads)
    for name, each in instances.items():
        assert low * each.threads <= len(decision.active[name]) <= high * each.threads


def assert_standbys(instances: dict[str, Instance], decision: Decision, stateful: set[TaskId], rules: Rules) -> None:
    holders = Counter(task for share in decision.standby.values() for task in share)
    for name, share in decision.standby.items():
        assert not set(share) & set(decision.active[name])
        assert len(share) == len(set(share))
    wanted = min(rules.standbys, len(instances) - 1)
    assert [task for task in stateful if holders[task] < wanted] == []
    assert sum(holders.values()) <= wanted * len(stateful) + rules.warmups


groups = st.lists(st.integers(1, 4), min_size=1, max_size=8)
layouts = st.lists(st.tuples(st.integers(1, 12), st.booleans()), min_size=1, max_size=4)


@st.composite
def situations(draw: st.DrawFn) -> tuple[dict[str, Instance], list[TaskId], set[TaskId], Rules]:
    layout = draw(layouts)
    tasks = [TaskId(sub, partition) for sub, (count, _) in enumerate(layout) for partition in range(count)]
    stateful = {task for task in tasks if layout[task.sub_topology][1]}
    instances = {f"i{number:02}": Instance(threads) for number, threads in enumerate(draw(groups))}
    rules = Rules(warmups=draw(st.integers(1, 3)), standbys=draw(st.integers(0, 2)))
    return instances, tasks, stateful, rules


@given(situations())
@settings(max_examples=150, deadline=None)
def test_a_new_group_is_balanced_at_once(situation):
    instances, tasks, stateful, rules = situation
    decision = choose(instances, tasks, stateful, rules)
    assert_complete(decision, tasks)
    assert_balanced(instances, decision, tasks)
    assert_standbys(instances, decision, stateful, rules)
    assert not decision.probe


@given(situations())
@settings(max_examples=100, deadline=None)
def test_nothing_moves_without_a_reason(situation):
    instances, tasks, stateful, rules = situation
    settled_group = settled(instances, tasks, stateful, rules)
    decision = choose(settled_group, tasks, stateful, rules)
    again = choose(after(settled_group, decision, stateful), tasks, stateful, rules)
    assert again.active == decision.active
    assert again.standby == decision.standby


@given(situations(), st.data())
@settings(max_examples=150, deadline=None)
def test_after_any_change_the_group_comes_to_rest_balanced(situation, data):
    instances, tasks, stateful, rules = situation
    instances = settled(instances, tasks, stateful, rules)
    for name in data.draw(st.lists(st.sampled_from(sorted(instances)), max_size=len(instances) - 1, unique=True)):
        del instances[name]
    for number in range(data.draw(st.integers(0, 3))):
        instances[f"new{number}"] = Instance(data.draw(st.integers(1, 3)))
    instances = settled(instances, tasks, stateful, rules)
    decision = choose(instances, tasks, stateful, rules)
    assert_complete(decision, tasks)
    assert_balanced(instances, decision, tasks)
    assert_standbys(instances, decision, stateful, rules)


@given(situations())
@settings(max_examples=100, deadline=None)
def test_tasks_with_state_never_move_to_members_without_it(situation):
    instances, tasks, stateful, rules = situation
    instances = settled(instances, tasks, stateful, rules)
    instances["new"] = Instance(2)
    for _ in range(3):
        decision = choose(instances, tasks, stateful, rules)
        owner = {task: name for name, each in instances.items() for task in each.running}
        for name, share in decision.active.items():
            for task in set(share) & stateful:
                assert owner[task] == name or instances[name].lags.get(task, MANY) <= rules.acceptable_lag
        warming = sum(len(share) for share in decision.standby.values()) - sum(
            len(share) for share in choose(instances, tasks, stateful, replace(rules, warmups=0)).standby.values()
        )
        assert warming <= rules.warmups
        instances = after(instances, decision, stateful, progress=MANY // 2)


def test_the_tasks_of_one_sub_topology_are_spread():
    tasks = ids(3, 8)
    decision = choose(fresh(4), tasks, set(tasks), Rules())
    for share in decision.active.values():
        assert Counter(sub for sub, _ in share) == {0: 2, 1: 2, 2: 2}


def test_a_second_instance_takes_half_of_each_sub_topology_in_probing_rounds():
    tasks, rules = ids(2, 4), Rules(warmups=2)
    stateful = {task for task in tasks if task[0] == 1}
    group = settled(fresh(1), tasks, stateful, rules)
    group["i01"] = Instance()
    moved = []
    while True:
        decision = choose(group, tasks, stateful, rules)
        moved.append(sorted(decision.active["i01"]))
        group = after(group, decision, stateful)
        if not decision.probe:
            break
    # What has no state evens it out at once; what has some follows when it is warm, and the other goes back for it.
    assert moved == [[(0, 0), (0, 1), (0, 2), (0, 3)], [(0, 0), (0, 1), (1, 2), (1, 3)]]


def test_state_that_is_soon_restored_moves_at_once():
    tasks = ids(1, 4)
    group = {**settled(fresh(1), tasks, set(tasks), Rules()), "new": Instance()}
    decision = choose(group, tasks, tasks, Rules(), length=10_000)
    assert (len(decision.active["new"]), decision.probe) == (2, False)


def test_excess_instances_are_idle_but_keep_standbys():
    tasks = ids(1, 2)
    decision = choose(fresh(4), tasks, set(tasks), Rules(standbys=1))
    assert sorted(len(share) for share in decision.active.values()) == [0, 0, 1, 1]
    assert_standbys(fresh(4), decision, set(tasks), Rules(standbys=1))


def test_more_threads_more_tasks():
    tasks = ids(1, 12)
    decision = choose({"a": Instance(1), "b": Instance(3)}, tasks, (), Rules())
    assert {name: len(share) for name, share in decision.active.items()} == {"a": 3, "b": 9}


def test_standbys_are_spread_over_racks():
    tasks = ids(1, 12)
    group = {f"{zone}{number}": Instance(tags={"zone": zone}) for zone in "xyz" for number in range(2)}
    decision = choose(group, tasks, tasks, Rules(standbys=2, rack_tags=("zone",)))
    holders: dict[TaskId, list[str]] = {}
    for shares in (decision.active, decision.standby):
        for name, share in shares.items():
            for task in share:
                holders.setdefault(task, []).append(name[0])
    assert [zones for zones in holders.values() if sorted(zones) != ["x", "y", "z"]] == []


def test_missing_standbys_are_counted():
    assert choose(fresh(1), ids(1, 3), ids(1, 3), Rules(standbys=2)).missing_standbys == 6


def test_a_dead_owners_tasks_go_to_their_standbys():
    tasks, rules = ids(1, 12), Rules(standbys=1)
    group = settled(fresh(4), tasks, set(tasks), rules)
    decision = choose(group, tasks, tasks, rules)
    lost = group.pop("i00").running
    standbys = {task for name in group for task in decision.standby[name]}
    assert lost <= standbys
    again = choose(group, tasks, tasks, rules)
    for name, share in again.active.items():
        for task in set(share) & lost:
            assert task in decision.standby[name]


def test_fifty_instances_and_a_thousand_tasks():
    tasks, rules = ids(10, 100), Rules(standbys=1)
    group = fresh(50, threads=4)
    decision = choose(group, tasks, tasks, rules)
    assert_balanced(group, decision, tasks)
    group = after(group, decision, set(tasks))
    assert choose(group, tasks, tasks, rules).active == decision.active
    del group["i07"]
    assert_complete(choose(group, tasks, tasks, rules), tasks)


# -- The leader -------------------------------------------------------------------------------------------------------

TOPICS = TopicsOnLog({"in": 4, "again": 4}, {0: ("in",), 1: ("again",)})
CHANGELOGS = {(1, partition): [TopicPartition("log", partition)] for partition in range(4)}


def leader(ends: int | None = 50_000, **rules: int) -> Leader:
    def ask(partitions):
        if ends is None:
            raise UnreachableError("no broker answers")
        return dict.fromkeys(partitions, ends)

    return Leader(TOPICS, CHANGELOGS, Rules(**rules), ask)


def member(said: Subscription, owned: Sequence[TaskId] = (), topics: tuple[str, ...] = ("in", "again")) -> Member:
    partitions = frozenset(partition for task in owned for partition in TOPICS.partitions_of(task))
    return Member(encode_subscription(said), frozenset(topics), partitions)


def decided(leader: Leader, members: dict[str, Member]) -> dict[str, Assignment]:
    found = leader.decide(members)
    said = {name: decode_assignment(each.data) for name, each in found.items()}
    for name, each in found.items():
        wanted = {partition for task in said[name].mine.active for partition in TOPICS.partitions_of(task)}
        assert set(each.partitions) == wanted
    return said


def test_every_member_hears_of_all():
    said = decided(
        leader(standbys=1), {"a": member(Subscription(server="a:1")), "b": member(Subscription(server="b:1"))}
    )
    assert said["a"].instances == said["b"].instances
    assert [each.server for each in said["a"].instances] == ["a:1", "b:1"]
    assert set(said["a"].mine.standby) == {task for task in said["b"].mine.active if task[0] == 1}


def test_only_instances_with_an_address_are_announced():
    members = {"a": member(Subscription()), "b": member(Subscription(server="b:1")), "c": member(Subscription())}
    said = decided(leader(), members)
    assert [[each.server for each in said[name].instances] for name in "abc"] == [["b:1", ""], ["b:1"], ["b:1", ""]]
    assert said["b"].mine == said["a"].instances[0] == said["c"].instances[0]
    assert sorted(task for each in said.values() for task in each.mine.active) == sorted(TOPICS.tasks())


def test_the_owner_of_the_state_keeps_the_task_until_the_other_is_warm():
    all_tasks = TOPICS.tasks()
    owner = member(Subscription(offset_sums=dict.fromkeys(CHANGELOGS, RUNNING)), all_tasks)
    said = decided(leader(warmups=1, probing_ms=7), {"a": owner, "b": member(Subscription())})
    assert {task for task in said["a"].mine.active if task[0] == 1} == set(CHANGELOGS)
    (warming,) = said["b"].mine.standby
    assert [each.probe_ms for each in said.values()] == [7, None]
    caught_up = member(Subscription(offset_sums={warming: 45_000}), list(said["b"].mine.active))
    said = decided(leader(warmups=1), {"a": owner, "b": caught_up})
    assert warming in said["b"].mine.active


def test_without_the_ends_tasks_stay_and_another_look_follows():
    owner = member(Subscription(offset_sums=dict.fromkeys(CHANGELOGS, RUNNING)), TOPICS.tasks())
    said = decided(leader(ends=None), {"a": owner, "b": member(Subscription(offset_sums={TaskId(1, 0): 50_000}))})
    assert {task for task in said["a"].mine.active if task[0] == 1} == set(CHANGELOGS)
    assert said["a"].probe_ms is not None


def test_state_that_is_ahead_of_its_changelog_counts_for_nothing():
    ahead, behind = Subscription(offset_sums={TaskId(1, 0): 99_999}), Subscription(offset_sums={TaskId(1, 0): 30_000})
    said = decided(leader(), {"a": member(ahead), "b": member(behind)})
    assert (1, 0) in said["b"].mine.active


def test_a_member_of_another_version_gets_only_what_it_reads():
    said = decided(leader(), {"new": member(Subscription()), "old": member(Subscription(), topics=("in",))})
    assert {task[0] for task in said["old"].mine.active} == {0}
    assert {task for task in said["new"].mine.active if task[0] == 1} == set(CHANGELOGS)


def test_a_member_without_threads_gives_its_tasks_up():
    idle = member(Subscription(threads=0, offset_sums=dict.fromkeys(CHANGELOGS, RUNNING)), TOPICS.tasks())
    said = decided(leader(standbys=1), {"idle": idle, "running": member(Subscription())})
    assert said["idle"].mine == InstanceMetadata("")
    assert sorted(said["running"].mine.active) == sorted(TOPICS.tasks())
    assert decided(leader(), {"idle": idle})["idle"].mine == InstanceMetadata("")


def test_members_that_say_nothing_are_members():
    assert decode_subscription(b"") == Subscription()
    assert decode_assignment(b"").mine == InstanceMetadata("")
    assert len(decided(leader(), {"a": Member(b"", frozenset(("in", "again")), frozenset())})["a"].mine.active) == 8


@given(
    st.builds(
        Subscription,
        st.text(),
        st.integers(0, 9),
        st.text(),
        st.dictionaries(st.text(), st.text()),
        st.dictionaries(st.builds(TaskId, st.integers(0, 9), st.integers(0, 99)), st.integers(-2, 2**62)),
    )
)
def test_what_members_say_survives(said):
    assert decode_subscription(encode_subscription(said)) == said


@given(
    st.lists(st.tuples(st.text(), st.sets(st.builds(TaskId, st.integers(0, 9), st.integers(0, 99)))), min_size=1),
    st.one_of(st.none(), st.integers(0, 2**40)),
)
def test_the_leaders_assignment_survives(parts, probe):
    instances = tuple(InstanceMetadata(server, tuple(sorted(tasks)), tuple(sorted(tasks))) for server, tasks in parts)
    said = Assignment(instances, len(parts) - 1, probe)
    assert decode_assignment(encode_assignment(said)) == said
