"""The leader of a group and its assignor: assignments from subscriptions (StreamsPartitionAssignor, KIP-441)."""

from __future__ import annotations

import heapq
import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from streamkit.config import Config
from streamkit.errors import TransportError
from streamkit.record import TaskId, TopicPartition
from streamkit.runtime.local.internal_topics import TopicsOnLog
from streamkit.runtime.local.local_task import RUNNING
from streamkit.runtime.local.subscription_codec import (
    Assignment,
    InstanceMetadata,
    Subscription,
    decode_subscription,
    encode_assignment,
)
from streamkit.transport.log_interface import Member, MemberAssignment

log = logging.getLogger(__name__)

Ends = Callable[[Sequence[TopicPartition]], Mapping[TopicPartition, int]]
"""Returns the end offsets of partitions; raises TransportError."""


class Leader:
    """Decides for a group; every member has one, and the group uses the one of its leader."""

    def __init__(
        self, topics: TopicsOnLog, changelogs: Mapping[TaskId, Collection[TopicPartition]], rules: Rules, ends: Ends
    ):
        """`changelogs`: of the tasks that have state."""
        self._topics = topics
        self._changelogs = changelogs
        self._rules = rules
        self._ends = ends

    def decide(self, members: Mapping[str, Member]) -> dict[str, MemberAssignment]:
        """Return the encoded assignment of each member, which contains the complete decision."""
        tasks = self._topics.tasks()
        subscriptions = {name: decode_subscription(member.metadata) for name, member in sorted(members.items())}
        totals = self._totals()
        instances = {
            name: self._instance(members[name], subscription, tasks, totals)
            for name, subscription in subscriptions.items()
        }
        decision = decide(instances, tasks, totals or dict.fromkeys(self._changelogs, FAR), self._rules)
        if decision.missing_standbys:
            log.info("there is no instance left for %d standbys", decision.missing_standbys)
        # Without the end offsets, only the instance that runs a task counts as caught up; a probing rebalance follows.
        return self._assignments(
            subscriptions, decision, probe=decision.probe or (totals is None and len(subscriptions) > 1)
        )

    def _assignments(
        self, subscriptions: Mapping[str, Subscription], decision: Decision, probe: bool
    ) -> dict[str, MemberAssignment]:
        parts = {
            name: InstanceMetadata(subscription.server, tuple(decision.active[name]), tuple(decision.standby[name]))
            for name, subscription in subscriptions.items()
        }
        # Only instances with an address can be queried, so the tasks of the others are not listed (as in Java).
        known = [name for name, subscription in subscriptions.items() if subscription.server]
        requests = [subscription.end for subscription in subscriptions.values()]
        end = any(requests), requests.count(False)
        assignments = {}
        for number, name in enumerate(subscriptions):
            partitions = tuple(tp for task in decision.active[name] for tp in self._topics.partitions_of(task))
            # One member that requests the probing rebalance is enough.
            interval = self._rules.probing_ms if probe and number == 0 else None
            shown = known if subscriptions[name].server else [*known, name]
            instances = tuple(parts[owner] for owner in shown)
            data = Assignment(instances, shown.index(name), interval, *end)
            assignments[name] = MemberAssignment(partitions, encode_assignment(data))
        return assignments

    def _totals(self) -> dict[TaskId, int] | None:
        """Return the length of the changelogs of each stateful task; None if the log does not respond."""
        partitions = [partition for of_task in self._changelogs.values() for partition in of_task]
        try:
            ends = self._ends(partitions) if partitions else {}
        except TransportError as error:
            log.warning("%s; tasks stay where they are for now", error)
            return None
        return {task: sum(ends[partition] for partition in changelogs) for task, changelogs in self._changelogs.items()}

    def _instance(
        self, member: Member, subscription: Subscription, tasks: Sequence[TaskId], totals: Mapping[TaskId, int] | None
    ) -> Instance:
        # A member whose last thread was removed would keep its tasks, and not run them.
        candidates = tasks if subscription.threads else ()
        owned = {task for task in candidates if member.owned.issuperset(self._topics.partitions_of(task))}
        able = {task for task in candidates if member.topics.issuperset(self._topics.inputs[task.sub_topology])}
        lags = {task: _lag(offset, totals, task) for task, offset in subscription.offset_sums.items()}
        known = {task: lag for task, lag in lags.items() if lag is not None and task in self._changelogs}
        return Instance(
            max(1, subscription.threads),
            frozenset(owned),
            known,
            subscription.tags,
            None if len(able) == len(tasks) else frozenset(able),
        )


def _lag(offset: int, totals: Mapping[TaskId, int] | None, task: TaskId) -> int | None:
    """Return the lag of a task's state; None if it is unknown (ClientState.computeTaskLags)."""
    if offset == RUNNING:
        return 0
    if totals is None or task not in totals:
        return None
    # State that is ahead of its changelog can't be used.
    return totals[task] - offset if offset <= totals[task] else totals[task]


# The assignor: balanced, sticky, and aware of the lag of state (HighAvailabilityTaskAssignor, KIP-441).
#
# A pure function: the same input gives the same decision on every instance. Balance and stickiness select the target
# instance of a task; lag selects the instance that runs it until the target has its state.

FAR = 2**62
"""The lag of an instance without state while the size of the state is unknown: higher than any other."""


def decide(
    instances: Mapping[str, Instance], tasks: Sequence[TaskId], stateful: Mapping[TaskId, int], rules: Rules
) -> Decision:
    """Return the active tasks and standbys of each instance.

    stateful: the tasks with state, each with the lag of an instance without it, in changelog records. A task that no
    instance can run is not assigned.
    """
    with_state = _target(instances, [task for task in tasks if task in stateful])
    standby: dict[str, list[TaskId]] = {name: [] for name in instances}
    active, probe = _where_state_is(instances, stateful, with_state, standby, rules)
    _spread_stateless(instances, active, [task for task in tasks if task not in stateful])
    decision = Decision(active, standby, probe)
    place_standbys(instances, decision, sorted(stateful), rules)
    for share in (*active.values(), *standby.values()):
        share.sort()
    return decision


def _able(instances: Mapping[str, Instance], task: TaskId) -> list[str]:
    return [name for name, instance in instances.items() if _is_able(instance, task)]


def _is_able(instance: Instance, task: TaskId) -> bool:
    return instance.able is None or task in instance.able


def _target(instances: Mapping[str, Instance], tasks: list[TaskId]) -> dict[str, list[TaskId]]:
    """Return the target instances of stateful tasks: running tasks stay, within the fair share of their instance."""
    shares = Shares({name: instance.threads for name, instance in instances.items()}, tasks)
    owners = _owners(instances)
    left = dict.fromkeys(sorted(tasks))
    for name in shares.owned:
        mine = instances[name].running
        # Tasks that already warm up elsewhere come first, so that successive rebalances move the same tasks; then in turn
        # from each sub-topology.
        for task in sorted(
            (task for task in mine if task in left),
            key=lambda task: (len(owners.get(task, ())) > 1, task.partition, task.sub_topology),
        ):
            if shares.has_room(name, task):
                shares.give(name, task)
                del left[task]
    # Tasks with state on an instance come before tasks without.
    for task in sorted(task for task in left if task in owners):
        _give_to_best(instances, shares, task)
    emptiest = Emptiest(shares, spreads=True)
    alike = all(instance.able is None for instance in instances.values())
    for task in sorted(task for task in left if task not in owners):
        if not (alike and emptiest.give(task)):
            _give_to_best(instances, shares, task)
    return shares.owned


def _owners(instances: Mapping[str, Instance]) -> dict[TaskId, list[str]]:
    """Return the instances that have state of a task, running or on disk."""
    owners: dict[TaskId, list[str]] = {}
    for name, instance in instances.items():
        for task in instance.lags:
            owners.setdefault(task, []).append(name)
    return owners


def _give_to_best(instances: Mapping[str, Instance], shares: Shares, task: TaskId) -> None:
    able = _able(instances, task)
    room = [name for name in able if shares.has_room(name)] or able
    if room:
        shares.give(min(room, key=lambda name: _preference(instances[name], shares, name, task)), task)


def _preference(
    instance: Instance, shares: Shares, name: str, task: TaskId
) -> tuple[bool, bool, int, float, float, str]:
    return (
        not shares.has_room(name, task),
        task not in instance.running,
        instance.lags.get(task, FAR),
        shares.load(name),
        shares.load_of(name, task),
        name,
    )


def _where_state_is(
    instances: Mapping[str, Instance],
    stateful: Mapping[TaskId, int],
    target: Mapping[str, list[TaskId]],
    standby: dict[str, list[TaskId]],
    rules: Rules,
) -> tuple[dict[str, list[TaskId]], bool]:
    """Keep tasks on caught-up instances until their target has caught up, and warm the target up (assignTaskMovements)."""
    active: dict[str, list[TaskId]] = {name: [] for name in instances}
    warmups, probe = rules.warmups, False
    owners = _owners(instances)
    for task, name in sorted((task, name) for name, tasks in target.items() for task in tasks):
        lag = instances[name].lags.get(task, stateful[task])
        # An instance without state of a task has the largest lag, so only instances with state are compared.
        known = {
            other: instances[other].lags[task] for other in owners.get(task, ()) if _is_able(instances[other], task)
        }
        nearest = min(known.values(), default=lag)
        if lag <= rules.acceptable_lag or lag <= nearest:
            active[name].append(task)
            continue
        limit = max(nearest, rules.acceptable_lag)
        keeper = min(
            (other for other, behind in known.items() if behind <= limit),
            key=lambda other: (task not in instances[other].running, known[other], len(active[other]), other),
        )
        active[keeper].append(task)
        probe = True
        if warmups:
            standby[name].append(task)
            warmups -= 1
    return active, probe


def _spread_stateless(instances: Mapping[str, Instance], active: dict[str, list[TaskId]], tasks: list[TaskId]) -> None:
    """Assign stateless tasks: they balance the instances, and stay on their instance where possible."""
    every = [*tasks, *(task for share in active.values() for task in share)]
    shares = Shares({name: instance.threads for name, instance in instances.items()}, every)
    for name, share in active.items():
        for task in share:
            shares.give(name, task)
    left = dict.fromkeys(sorted(tasks))
    for name in shares.owned:
        for task in sorted(
            (task for task in instances[name].running if task in left),
            key=lambda task: (task.partition, task.sub_topology),
        ):
            if shares.has_room(name, task):
                shares.give(name, task)
                active[name].append(task)
                del left[task]
    emptiest = Emptiest(shares, spreads=False)
    alike = all(instance.able is None for instance in instances.values())
    for task in left:
        if alike and (taker := emptiest.give(task)):
            active[taker].append(task)
            continue
        able = _able(instances, task)
        room = [name for name in able if shares.has_room(name)] or able
        if room:
            name = min(room, key=lambda name: (shares.load(name), shares.load_of(name, task), name))
            shares.give(name, task)
            active[name].append(task)


# Balanced shares of instances with different numbers of threads.


class Shares:
    """The tasks of one kind by instance: if possible, no two instances differ by more than one task per thread."""

    def __init__(self, threads: Mapping[str, int], tasks: Iterable[TaskId]):
        self.owned: dict[str, list[TaskId]] = {name: [] for name in sorted(threads)}
        self._threads = threads
        self._of_sub: dict[str, Counter[int]] = {name: Counter() for name in self.owned}
        total = sum(threads.values())
        counts = Counter(task.sub_topology for task in tasks)
        self._floor, self._extra = divmod(counts.total(), total) if total else (0, 0)
        # The most tasks of one sub-topology: an instance with most of one sub-topology is a bottleneck for the topology.
        self._sub_limit = {
            name: {sub: -(-count * threads[name] // total) for sub, count in counts.items()} for name in self.owned
        }

    def has_room(self, name: str, task: TaskId | None = None) -> bool:
        """Whether an instance may take one more task; if a task is given, one of its sub-topology."""
        if task is not None and self._of_sub[name][task.sub_topology] >= self._sub_limit[name][task.sub_topology]:
            return False
        above = len(self.owned[name]) - self._floor * self._threads[name]
        # An instance may have one extra task for each of its threads, as long as extra tasks are left.
        return above < 0 or (above < self._threads[name] and self._extra > 0)

    def give(self, name: str, task: TaskId) -> None:
        """Give a task to an instance."""
        if len(self.owned[name]) >= self._floor * self._threads[name]:
            self._extra -= 1
        self.owned[name].append(task)
        self._of_sub[name][task.sub_topology] += 1

    def load(self, name: str) -> float:
        """Tasks per thread."""
        return len(self.owned[name]) / self._threads[name]

    def load_of(self, name: str, task: TaskId) -> float:
        """Tasks of one sub-topology per thread."""
        return self._of_sub[name][task.sub_topology] / self._threads[name]


class Emptiest:
    """Assigns tasks without a preferred instance to the one with the lowest load; a heap, for groups of a thousand instances."""

    def __init__(self, shares: Shares, spreads: bool):
        """`spreads`: whether instances that have their fair share of the task's sub-topology come last."""
        self._shares = shares
        self._spreads = spreads
        self._heaps: dict[int, list[tuple[bool, float, float, str]]] = {}

    def give(self, task: TaskId) -> str:
        """Assign a task to the instance with the lowest load, then with the fewest of its sub-topology; return its name, or ""."""
        shares = self._shares
        if task.sub_topology not in self._heaps:
            self._heaps[task.sub_topology] = sorted(self._place(name, task) for name in shares.owned)
        heap = self._heaps[task.sub_topology]
        while heap:
            name = heap[0][-1]
            place = self._place(name, task)
            if not shares.has_room(name):
                heapq.heappop(heap)  # a full instance stays full
            elif place != heap[0]:
                heapq.heapreplace(heap, place)  # loads only grow, so the first entry that is up to date is the lowest
            else:
                shares.give(name, task)
                return name
        return ""

    def _place(self, name: str, task: TaskId) -> tuple[bool, float, float, str]:
        shares = self._shares
        is_full = self._spreads and not shares.has_room(name, task)
        return (is_full, shares.load(name), shares.load_of(name, task), name)


# Standbys: on other instances than the active task, on different racks, where state exists, and balanced.


def place_standbys(
    instances: Mapping[str, Instance], decision: Decision, stateful: Sequence[TaskId], rules: Rules
) -> None:
    """Add num.standby.replicas standbys of each task to a decision (ClientTagAwareStandbyTaskAssignor, KIP-708)."""
    if not rules.standbys:
        return
    active = {task: name for name, tasks in decision.active.items() for task in tasks}
    warming: dict[TaskId, set[str]] = {}
    for name, tasks in decision.standby.items():
        for task in tasks:
            warming.setdefault(task, set()).add(name)
    threads = sum(instance.threads for instance in instances.values())
    fair = {
        name: -(-len(stateful) * rules.standbys * instance.threads // threads) for name, instance in instances.items()
    }
    counts = dict.fromkeys(instances, 0)
    # The standbys of one instance's tasks are distributed, so that its failure adds load to several instances.
    beside: Counter[tuple[str, str]] = Counter()
    for task in stateful:
        if task not in active:
            continue
        chosen = [active[task]]
        for _ in range(rules.standbys):
            free = [
                name
                for name, instance in instances.items()
                if name not in chosen
                and name not in warming.get(task, ())
                and (instance.able is None or task in instance.able)
            ]
            if not free:
                decision.missing_standbys += rules.standbys + 1 - len(chosen)
                break
            best = min(
                free,
                key=lambda name: (
                    _alike(instances, name, chosen, rules.rack_tags),
                    counts[name] >= fair[name],
                    instances[name].lags.get(task, float("inf")),
                    beside[active[task], name],
                    counts[name] / instances[name].threads,
                    name,
                ),
            )
            chosen.append(best)
            decision.standby[best].append(task)
            counts[best] += 1
            beside[active[task], best] += 1


def _alike(instances: Mapping[str, Instance], name: str, chosen: Sequence[str], keys: Sequence[str]) -> int:
    """Return how many rack tags an instance shares with the instances that already have the task."""
    tags = instances[name].tags
    return sum(key in tags and any(instances[other].tags.get(key) == tags[key] for other in chosen) for key in keys)


# Input and output of the assignor; plain data.


@dataclass(frozen=True)
class Instance:
    """A member of the group: a process with its threads."""

    threads: int = 1
    running: frozenset[TaskId] = frozenset()
    """The tasks that it owns now."""
    lags: Mapping[TaskId, int] = field(default_factory=dict)
    """For each stateful task of which the instance has state: its lag in changelog records; 0 for tasks that it runs."""
    tags: Mapping[str, str] = field(default_factory=dict)
    able: frozenset[TaskId] | None = None
    """The tasks that it can run; None: all. Instances of another version may not have all of them."""


@dataclass(frozen=True)
class Rules:
    """The settings of the assignor, by Kafka Streams' names."""

    acceptable_lag: int = Config.acceptable_recovery_lag.default
    warmups: int = Config.max_warmup_replicas.default
    standbys: int = Config.num_standby_replicas.default
    rack_tags: tuple[str, ...] = Config.rack_aware_assignment_tags.default
    probing_ms: int = Config.probing_rebalance_interval_ms.default

    @classmethod
    def of(cls, config: Config) -> Rules:
        """Read the rules of a Config."""
        return cls(
            acceptable_lag=config.acceptable_recovery_lag,
            warmups=config.max_warmup_replicas,
            standbys=config.num_standby_replicas,
            rack_tags=config.rack_aware_assignment_tags,
            probing_ms=config.probing_rebalance_interval_ms,
        )


@dataclass
class Decision:
    """Tasks by instance; warm-ups are among the standbys."""

    active: dict[str, list[TaskId]]
    standby: dict[str, list[TaskId]]
    probe: bool = False
    """Whether tasks are still warming up on their target instance: a probing rebalance is due after the probing interval."""
    missing_standbys: int = 0
    """Standbys for which there is no instance."""
