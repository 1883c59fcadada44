"""The working state of decisions: the room that nodes will have once all orders are done.

It is kept between decisions. What has changed since the last one is compared with what that one has assumed, pod by
pod. Every change within a decision can be undone, so that a gang is placed as a whole or not at all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from elasticdl.controller.core.cluster import Node, Phase, Pod, Role, Start
from elasticdl.controller.core.entries import Entry, Leaving, Other, entry_of, is_waiting, job_of
from elasticdl.controller.core.job import Job
from elasticdl.controller.core.names import Names
from elasticdl.controller.core.placement import Constraint
from elasticdl.controller.core.queues import Quotas
from elasticdl.controller.core.resources import Amounts, Resources, Units, add, share, subtract
from elasticdl.controller.core.reversible import Reversible
from elasticdl.controller.core.rooms import Holds, Rooms
from elasticdl.controller.core.usual import Usual
from elasticdl.controller.core.view import Changes, View
from elasticdl.controller.core.waits import Waits

ROLES = tuple(Role)
_MEMO_MAX = 200_000
"""Most shares that are remembered."""


class Plan(Reversible):
    """Pods per job and room per node, as decisions want them."""

    def __init__(self, view: View) -> None:
        super().__init__()
        self.view = view
        self.jobs: dict[str, Job] = {}
        self.nodes = dict(sorted(view.nodes.items()))
        self.units = Units(self._requests())
        self._pods = Usual()
        self.requests: dict[str, dict[Role, Amounts]] = {}
        self.taken: dict[str, Amounts] = {}
        self.members: dict[str, dict[Role, dict[str, Start]]] = {}
        self.workers_on: dict[str, dict[str, Start]] = {node: {} for node in self.nodes}
        self.ps_on: dict[str, dict[str, Start]] = {node: {} for node in self.nodes}
        self.movable: dict[tuple[Amounts, Constraint], dict[str, set[str]]] = {}
        """What ps demand -> jobs with ps that cost a place for a worker -> their nodes, as ``moves`` has seen them."""
        self.costly_on: dict[str, set[tuple[tuple[Amounts, Constraint], str]]] = {}
        """The same by node."""
        self.starts: dict[str, Start] = {}
        self.drains: dict[str, str] = {}
        """Pod -> job."""
        self.leaving: Counter[tuple[str, Role]] = Counter()
        """Pods that are about to leave since an earlier decision."""
        self.waiting: dict[str, dict[str, Start]] = {}
        """Node -> members that it does not hold yet."""
        self.stuck: dict[str, Start] = {}
        self.pending: dict[str, Pod] = {}
        """Pods of others without a node."""
        self.with_surplus: set[str] = set()
        """Jobs with workers above their minimum."""
        self.alike: dict[tuple[int, str], dict[str, None]] = {}
        """Priority and queue -> jobs."""
        self.touched: set[str] = set()
        """Jobs of which something has changed since the last look."""
        self.shrunk: set[str] = set()
        """Jobs that may have lost a pod since ``sharing`` has looked last."""
        self.waits = Waits()
        self.resized = 0
        """The same number: shares are of the same cluster, and limits those of the same queues and budgets."""
        self._entries: dict[str, Entry] = {}
        self._reserved: list[tuple[str, Amounts]] = []
        self._dominants: dict[Amounts, float] = {}
        """What jobs take, together -> its share; many jobs take the same."""
        self._names = Names(view)
        self._least: dict[str, int] = {}
        """Job -> workers without which it is not admitted."""
        self.quotas = Quotas((), ())
        for job in view.jobs.values():
            self._add_job(job)
        for pod in view.pods.values():
            if pod.phase is Phase.PENDING:
                self._note_pending(pod.name)
        self._usual, self._known = self._pods.requests(self.units), self._pods.constraints()
        self.rooms = Rooms(self.nodes.values(), self.units, self._usual, self._known)
        self._holds = Holds(self.rooms)
        self._begin([*view.pods, *(name for name in view.starts if name not in view.pods)])
        self._count_quotas()

    def _begin(self, names: Iterable[str]) -> None:
        """Add all pods, as ``_reconcile`` would one by one: they take room once for each node."""
        used: dict[str, Amounts] = {}
        of_others: dict[str, Amounts] = {}
        """What pods that are no workers take of it."""
        entries, requests, zero = self._entries, self.requests, self.units.zero
        for name in names:
            entry = self._entry(name)
            if isinstance(entry, Start):
                entries[name] = entry
                self._enter(entry)
                node, is_worker, request = entry.node, entry.role is Role.WORKER, requests[entry.job][entry.role]
            elif isinstance(entry, Other):
                entries[name] = entry
                node, is_worker, request = entry.node, False, entry.request
            else:
                if entry is not None:
                    self._assert(name, entry)
                continue
            used[node] = add(used.get(node, zero), request)
            if not is_worker:
                of_others[node] = add(of_others.get(node, zero), request)
        for job, members in self.members.items():
            for role, pods in members.items():
                self.taken[job] = add(self.taken[job], requests[job][role], len(pods))
            self._count_surplus(job)
        for node, amounts in used.items():
            self.rooms.take_for_worker(node, amounts)
        for node, amounts in of_others.items():
            self.rooms.lose(node, amounts)

    def _enter(self, member: Start) -> None:
        """A member of the beginning; the rooms learn of it later."""
        name, job, role, node = member
        self.members[job][role][name] = member
        if (pod := self.view.pods.get(name)) is None or pod.phase is not Phase.RUNNING:
            self._look_at(member)
        if role is Role.WORKER:
            self.workers_on[node][name] = member
            return
        self._holds.stay(job, 1)
        if role is Role.PS:
            self.ps_on[node][name] = member

    # --- what has changed ---------------------------------------------------------------------------------------------

    def can_follow(self, changes: Changes) -> bool:
        """Whether a plan may be kept with these changes: there are no other kinds of resources."""
        known = self.units.names
        new = [node.allocatable for node in changes.nodes.values() if node]
        new += [job.group(role).request for job in changes.jobs.values() if job for role in ROLES]
        new += [pod.request for pod in changes.pods.values() if pod]
        return all(known.issuperset(request) for request in new)

    def follow(self, changes: Changes) -> None:
        """Take over what has changed. The view has changed already."""
        names = {*changes.pods, *changes.starts, *changes.drains, *self.starts, *self.drains}
        self._conclude()
        if changes.nodes:
            names |= self._replace_nodes(changes.nodes, names)
        replaced = {
            name
            for name, job in changes.jobs.items()
            if (before := self.jobs.get(name)) is None or job is None or not before.has_requests_of(job)
        }
        for name in replaced:
            names |= self.view.pods_of.get(name, set())
            names.update(member.pod for each in self.members.get(name, {}).values() for member in each.values())
        for pod in [pod for pod in names if replaced and job_of(self._entries.get(pod)) in replaced]:
            self._retract(pod)
        for name, job in changes.jobs.items():
            if (before := self.jobs.get(name)) is not None:
                if job is not None and before.ps.constraint != job.ps.constraint:
                    self.rooms.rebased.update(member.node for member in self.members[name][Role.PS].values())
                self._remove_job(name, is_gone=job is None)
            if job is not None:
                self._add_job(job)
        for pod in [*changes.pods, *(pod for name in changes.jobs for pod in self.view.pods_of.get(name, ()))]:
            self._note_pending(pod)
        usual, known = self._pods.requests(self.units), self._pods.constraints()
        if (usual, known) != (self._usual, self._known):
            self._usual, self._known = usual, known
            self.rooms.index(usual, known)
        self._reconcile(names)
        if changes.queues is not None or changes.budgets is not None:
            self.resized += 1
        if changes.queues is not None or changes.budgets is not None or self.quotas.is_limiting:
            self._count_quotas()
        self.rooms.settle()

    def _replace_nodes(self, changed: Mapping[str, Node | None], names: set[str]) -> set[str]:
        """Nodes come, go or change; returns the pods that stand there. ``names``: other pods that have changed."""
        entries = self._entries
        pods = {name for name in names if name in entries and entries[name].node in changed}
        pods.update(name for name, pod in self.view.pods.items() if pod.node in changed)
        pods.update(name for name, start in self.view.starts.items() if start.node in changed)
        for pod in pods:
            self._retract(pod)
        for name, node in changed.items():
            if self.nodes.pop(name, None) is not None:
                self.rooms.remove(name)
                del self.workers_on[name], self.ps_on[name]
            if node is not None:
                self.nodes[name] = node
                self.rooms.add(node)
                self.workers_on[name], self.ps_on[name] = {}, {}
        self.rooms.resize()
        # Shares are of the whole cluster.
        self._dominants.clear()
        self.resized += 1
        return pods

    def _conclude(self) -> None:
        """What the last decision has ordered counts as done, until the changes say otherwise."""
        for node, request in self._reserved:
            self.rooms.give(node, request)
        self._reserved.clear()
        for pod, member in self.starts.items():
            self._entries[pod] = member
            self.waiting.setdefault(member.node, {})[pod] = member
        for pod in self.drains:
            entry = self._entries[pod]
            assert isinstance(entry, Start)
            self._forget(entry)
            self._entries[pod] = Leaving(entry.job, entry.role, entry.node)
            self.leaving[entry.job, entry.role] += 1
            self._touch(entry.job)
        self.starts, self.drains = {}, {}
        if len(self._dominants) > _MEMO_MAX:
            self._dominants.clear()
        self._undo.clear()
        self._names.clear()

    def _reconcile(self, names: Iterable[str]) -> None:
        for name in names:
            entry = self._entry(name)
            if self._entries.get(name) != entry:
                self._retract(name)
                if entry is not None:
                    self._assert(name, entry)
            elif isinstance(entry, Start):
                self._look_at(entry)

    def _entry(self, name: str) -> Entry | None:
        return entry_of(name, self.view, self.jobs, self.nodes, self.units)

    def _assert(self, name: str, entry: Entry) -> None:
        self._entries[name] = entry
        match entry:
            case Start():
                self._put(entry)
                self._look_at(entry)
            case Leaving(job=job, role=role, node=node):
                self.leaving[job, role] += 1
                self._touch(job)
                if role is Role.PS and node:
                    self._holds.leave(job, node, self.requests[job][role], 1)
            case Other(node=node, request=request):
                self.rooms.take(node, request)

    def _retract(self, name: str) -> None:
        match entry := self._entries.pop(name, None):
            case Start():
                self._take(entry)
                self._forget(entry)
            case Leaving(job=job, role=role, node=node):
                self.leaving[job, role] -= 1
                self._touch(job)
                if role is Role.PS and node:
                    self._holds.leave(job, node, self.requests[job][role], -1)
            case Other(node=node, request=request):
                self.rooms.give(node, request)

    def _look_at(self, member: Start) -> None:
        """Whether a pod that stays waits for its node, or can't start."""
        name, pod = member.pod, self.view.pods.get(member.pod)
        waits, is_stuck = is_waiting(pod), pod is not None and pod.phase is Phase.STUCK
        if waits == (name in self.waiting.get(member.node, ())) and is_stuck == (name in self.stuck):
            return
        self._forget(member)
        if waits:
            self.waiting.setdefault(member.node, {})[name] = member
        elif is_stuck:
            self.stuck[name] = member
        self._touch(member.job)

    def _forget(self, member: Start) -> None:
        self.stuck.pop(member.pod, None)
        waiting = self.waiting.get(member.node, {})
        if waiting.pop(member.pod, None) and not waiting:
            del self.waiting[member.node]

    def _note_pending(self, name: str) -> None:
        if (before := self.pending.pop(name, None)) is not None:
            self._pods.count_constraint(before.constraint, -1)
        pod = self.view.pods.get(name)
        if pod is not None and pod.phase is Phase.PENDING and pod.job not in self.jobs and not pod.node:
            self.pending[name] = pod
            self._pods.count_constraint(pod.constraint, 1)

    def _add_job(self, job: Job) -> None:
        self.jobs[job.name] = job
        self._least[job.name] = job.workers_min
        self.requests[job.name] = {role: self.units.amounts(job.group(role).request) for role in ROLES}
        if job.name not in self.members:
            self.taken[job.name] = self.units.zero
            self.members[job.name] = {role: {} for role in ROLES}
        self._pods.count(job, 1)
        self.alike.setdefault((job.priority, job.queue), {})[job.name] = None
        self._count_surplus(job.name)
        self._touch(job.name)

    def _remove_job(self, name: str, *, is_gone: bool) -> None:
        job = self.jobs[name]
        self._pods.count(job, -1)
        alike = self.alike[job.priority, job.queue]
        del alike[name]
        if not alike:
            del self.alike[job.priority, job.queue]
        self._touch(name)
        if is_gone:
            del self.jobs[name], self.requests[name], self.taken[name], self.members[name], self._least[name]
            self.with_surplus.discard(name)

    def _requests(self) -> Iterator[Resources]:
        """Everything that has amounts of resources."""
        yield from (node.allocatable for node in self.view.nodes.values())
        yield from (job.group(role).request for job in self.view.jobs.values() for role in ROLES)
        yield from (pod.request for pod in self.view.pods.values())

    def _count_quotas(self) -> None:
        self.quotas = Quotas(self.view.queues, self.view.budgets)
        if self.quotas.is_limiting:
            for name, job in self.jobs.items():
                for role, members in self.members[name].items():
                    if members:
                        self.quotas.change(job, role, len(members), len(members))

    # --- questions ----------------------------------------------------------------------------------------------------

    def workers(self, job: str) -> int:
        """Number of workers."""
        return len(self.members[job][Role.WORKER])

    def ps(self, job: str) -> int:
        """Number of ps."""
        return len(self.members[job][Role.PS])

    def admitted(self, job: str) -> bool:
        """Whether the job has its master."""
        return bool(self.members[job][Role.MASTER])

    def has_pods(self, job: str) -> bool:
        """Whether the job has any pod. It keeps its place even if its master has just crashed."""
        return any(self.members[job].values())

    def surplus(self, job: str) -> int:
        """Workers above the minimum."""
        return max(0, len(self.members[job][Role.WORKER]) - self._least[job])

    def share(self, job: str, workers: int = 0) -> float:
        """Dominant share by weight, with this many workers more."""
        taken = self.taken[job]
        if workers:
            taken = add(taken, self.requests[job][Role.WORKER], workers)
        return self._share(job, taken)

    def _share(self, job: str, taken: Amounts) -> float:
        if (found := self._dominants.get(taken)) is None:
            found = self._dominants[taken] = share(taken, self.rooms.total)
        return found / self.jobs[job].weight

    def request(self, member: Start) -> Amounts:
        """What a member takes."""
        return self.requests[member.job][member.role]

    def leaves(self, job: str, role: Role, node: str) -> bool:
        """Whether a pod of the job is about to leave a node since an earlier decision."""
        if not self.leaving[job, role]:
            return False
        found = (self._entries.get(pod) for pod in self.view.pods_of.get(job, ()))
        return any(isinstance(each, Leaving) and (each.role, each.node) == (role, node) for each in found)

    def newest(self, job: str) -> list[Start]:
        """The workers of a job, those with the highest numbers first."""
        return sorted(self.members[job][Role.WORKER].values(), key=lambda each: (len(each.pod), each.pod), reverse=True)

    def by_name(self, job: str, role: Role) -> list[Start]:
        """The pods of a job by their names."""
        return sorted(self.members[job][role].values(), key=lambda each: each.pod)

    # --- changes of a decision ----------------------------------------------------------------------------------------

    def start(self, job: str, role: Role, node: str) -> Start:
        """Start a pod of a job on a node."""
        member = Start(self._names.new(job, role, self.starts), job, role, node)
        self._note(self._undo_start, member, opens=role is not Role.WORKER)
        self._put(member)
        self.starts[member.pod] = member
        return member

    def _undo_start(self, member: Start) -> None:
        del self.starts[member.pod]
        self._names.free(member.job, member.role)
        self._take(member)

    def start_workers(self, jobs: Sequence[str]) -> int:
        """Start a worker for each of these jobs, which are alike, while nodes have free room; returns how many."""
        first, role = jobs[0], Role.WORKER
        request, members, workers_on, starts = self.requests[first][role], self.members, self.workers_on, self.starts
        nodes = self.rooms.take_best(request, self.jobs[first].worker.constraint, len(jobs))
        if not nodes:
            return 0
        started, new_name = list[Start](), self._names.new
        self._note(self._undo_workers, started, opens=False)
        for job, node in zip(jobs, nodes, strict=False):
            pod = new_name(job, role, starts)
            member = members[job][role][pod] = workers_on[node][pod] = starts[pod] = Start(pod, job, role, node)
            started.append(member)
        jobs = jobs[: len(nodes)]
        self.taken.update(dict.fromkeys(jobs, add(self.taken[first], request)))
        self.touched.update(jobs)
        if self.surplus(first):
            self.with_surplus.update(jobs)
        return len(jobs)

    def _undo_workers(self, started: list[Start]) -> None:
        for member in reversed(started):
            self._undo_start(member)

    def drain(self, member: Start) -> None:
        """Let a pod go; a start of this decision is taken back."""
        if self.starts.pop(member.pod, None) is not None:
            self._names.free(member.job, member.role)
            self._note(self._undo_end, member)
        else:
            self.drains[member.pod] = member.job
            if member.role is Role.PS:
                self._holds.leave(member.job, member.node, self.request(member), 1)
            self._note(self._undo_drain, member)
        self._take(member)

    def _undo_end(self, member: Start) -> None:
        self.starts[member.pod] = member
        self._put(member)

    def _undo_drain(self, member: Start) -> None:
        del self.drains[member.pod]
        if member.role is Role.PS:
            self._holds.leave(member.job, member.node, self.request(member), -1)
        self._put(member)

    def reserve(self, node: str, request: Amounts) -> None:
        """Keep room for a pod that the plain scheduler places."""
        self._note(self._undo_reserve, node, request)
        self._reserved.append((node, request))
        self.rooms.take(node, request)

    def _undo_reserve(self, node: str, request: Amounts) -> None:
        self._reserved.remove((node, request))
        self.rooms.give(node, request)

    def _touch(self, job: str) -> None:
        self.waits.drop(job)
        self.touched.add(job)

    def _count_surplus(self, job: str) -> None:
        if len(self.members[job][Role.WORKER]) > self._least[job]:
            self.with_surplus.add(job)
        else:
            self.with_surplus.discard(job)

    def _put(self, member: Start) -> None:
        pod, name, role, node = member
        request, members = self.requests[name][role], self.members[name][role]
        members[pod] = member
        self.taken[name] = add(self.taken[name], request)
        self._touch(name)
        if self.quotas.is_limiting:
            self.quotas.change(self.jobs[name], role, 1, len(members))
        if role is Role.WORKER:
            self.workers_on[node][pod] = member
            self.rooms.take_for_worker(node, request)
            if len(members) > self._least[name]:
                self.with_surplus.add(name)
        else:
            if role is Role.PS:
                self.ps_on[node][pod] = member
            self.rooms.take(node, request)
            self._holds.stay(name, 1)

    def _take(self, member: Start) -> None:
        name, role = member.job, member.role
        request = self.requests[name][role]
        self.shrunk.add(name)
        del self.members[name][role][member.pod]
        self.taken[name] = subtract(self.taken[name], request)
        self._touch(name)
        if self.quotas.is_limiting:
            self.quotas.change(self.jobs[name], role, -1, len(self.members[name][role]))
        if role is Role.WORKER:
            del self.workers_on[member.node][member.pod]
            self.rooms.give_from_worker(member.node, request)
            self._count_surplus(name)
        else:
            if role is Role.PS:
                del self.ps_on[member.node][member.pod]
            self.rooms.give(member.node, request)
            self._holds.stay(name, -1)
