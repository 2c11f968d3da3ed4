"""P4Runtime's action profiles: members, groups, and action sets within an entry ("one shot")."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from finsy.proto import p4i, p4r, rpc_code

from fanin.sim.switch.embedded import Switch
from fanin.sim.switch.embedded.profiles import Group, Member, Profile, Share, Target
from fanin.sim.switch.service.data import number_in, shortest
from fanin.sim.switch.service.faults import Fault, invalid, missing, unknown
from fanin.sim.switch.service.names import Names

_INSERT, _DELETE = p4r.Update.INSERT, p4r.Update.DELETE
_PORT_BITS = 9
_MAX_WEIGHT = 1 << 16  # maximum weight of a group, whatever its selector allows
_Set = p4r.ActionProfileActionSet


class Profiles:
    """The profiles of ``switch``, by the ids of ``names``. Failed calls raise Fault and change nothing."""

    def __init__(self, switch: Switch, names: Names):
        self._switch = switch
        self._names = names
        self._written: dict[Group, Any] = {}  # the controller's messages, for reads

    def watch(self, down: frozenset[int]) -> None:
        """Set the ports that are down now."""
        for profile in self._switch.profiles.values():
            profile.watch(down)

    # what entries point to

    def target(self, table: p4i.Table, action: p4r.TableAction, before: Target | None) -> Target:
        """Return the new target of an entry of ``table``; an action set becomes a group.

        ``before``: the entry's old target, which the caller still has to release.
        """
        info, profile = self._profile(table.implementation_id)
        kind = action.WhichOneof("type")
        number = getattr(action, kind) if kind else 0
        if kind == "action_profile_member_id":
            return _found(profile.members, number, f"{profile.name}: member")
        if not profile.selects or kind in (None, "action"):
            raise invalid(
                f"table {table.preamble.name}: its entries point to {profile.name}, they have no {kind}"
            )
        if kind == "action_profile_group_id":
            return _found(profile.groups, number, f"{profile.name}: group")
        return self._shot(table, info, profile, action.action_profile_action_set, before)

    def _shot(
        self, table: p4i.Table, info: p4i.ActionProfile, profile: Profile, given: Any, before: Target | None
    ) -> Group:
        if profile.members or profile.groups:
            raise invalid(f"{profile.name} has members or groups: entries bring no action sets then")
        if given.action_selection_mode != _Set.DEFAULT_MODE_DETERMINED_BY_ACTION_SELECTOR or (
            given.size_semantics != _Set.DEFAULT_SIZE_DETERMINED_BY_ACTION_SELECTOR
        ):
            raise missing(f"{profile.name}: a group's own mode or size semantics")
        weights = [item.weight for item in given.action_profile_actions]
        _check_weights(info, weights, 0)
        self._check_room(info, profile, weights, before if isinstance(before, Group) else None)
        shares = [
            Share(Member(*self._names.call(table, item.action)), item.weight, self._port(item))
            for item in given.action_profile_actions
        ]
        group = profile.shot(shares)
        self._written[group] = stored = p4r.ActionProfileActionSet.FromString(given.SerializeToString())
        for item in stored.action_profile_actions:
            _shorten_watch(item)
            for param in item.action.params:
                param.value = shortest(param.value)
        return group

    def release(self, table: p4i.Table, target: Target | None) -> None:
        """Release the old target of an entry."""
        if isinstance(target, Group):
            _, profile = self._profile(table.implementation_id)
            if target in profile.shots:
                profile.unshot(target)
                del self._written[target]

    def encoded(self, table: p4i.Table, target: Target) -> p4r.TableAction:
        """Return the action of an entry that points to ``target``."""
        _, profile = self._profile(table.implementation_id)
        if isinstance(target, Member):
            return p4r.TableAction(action_profile_member_id=target.number)
        assert isinstance(target, Group)
        if target in profile.shots:
            return p4r.TableAction(action_profile_action_set=self._written[target])
        return p4r.TableAction(action_profile_group_id=target.number)

    # members

    def write_member(self, kind: int, message: p4r.ActionProfileMember) -> None:
        """Insert, modify or delete a member."""
        info, profile = self._profile(message.action_profile_id)
        what, member = f"{profile.name}: member", profile.members.get(message.member_id)
        _check_presence(kind, message.member_id, member, what)
        if kind == _DELETE:
            assert member is not None
            if member.entries or member.weights:
                raise _in_use(f"{what} {message.member_id}")
            profile.drop(member)
            return
        if not message.HasField("action"):
            raise invalid(f"{what} {message.member_id} without an action")
        if not info.table_ids:
            raise invalid(f"{profile.name}: no table has it")
        call = self._names.call(self._names.table(info.table_ids[0]), message.action)
        if member is not None:
            profile.rewrite(member, *call)
            return
        self._check_style(profile)
        if len(profile.members) >= profile.size:
            raise Fault(rpc_code.RESOURCE_EXHAUSTED, f"{profile.name} is full: {profile.size} members")
        profile.add(Member(*call, number=message.member_id))

    def read_members(self, wanted: p4r.ActionProfileMember) -> Iterator[p4r.Entity]:
        """Yield one member, all of one profile, or all."""
        for info, profile in self._wanted(wanted.action_profile_id):
            for number, member in list(profile.members.items()):
                if wanted.member_id in (0, number):
                    message = p4r.ActionProfileMember(
                        action_profile_id=info.preamble.id,
                        member_id=number,
                        action=self._names.encoded_call(member.action, member.parameters),
                    )
                    yield p4r.Entity(action_profile_member=message)

    # groups

    def write_group(self, kind: int, message: p4r.ActionProfileGroup) -> None:
        """Insert, modify or delete a group."""
        info, profile = self._profile(message.action_profile_id)
        if not profile.selects:
            raise invalid(f"{profile.name} is no selector: it has no groups")
        what, group = f"{profile.name}: group", profile.groups.get(message.group_id)
        _check_presence(kind, message.group_id, group, what)
        if kind == _DELETE:
            assert group is not None
            if group.entries:
                raise _in_use(f"{what} {message.group_id}")
            del profile.groups[message.group_id]
            del self._written[group]
            profile.regroup(group, ())
            return
        if group is not None and self._written[group].max_size != message.max_size:
            raise invalid(
                f"{what} {message.group_id}: its max_size is {self._written[group].max_size} for good"
            )
        shares = self._shares(info, profile, message, group)
        if group is None:
            self._check_style(profile)
            group = profile.groups[message.group_id] = Group(message.group_id)
        profile.regroup(group, shares)
        self._written[group] = stored = p4r.ActionProfileGroup.FromString(message.SerializeToString())
        for item in stored.members:
            _shorten_watch(item)

    def _shares(
        self, info: p4i.ActionProfile, profile: Profile, message: p4r.ActionProfileGroup, group: Group | None
    ) -> list[Share]:
        """Return the shares of a group by ascending member id, which is the order in BMv2's server."""
        what = f"{profile.name}: group {message.group_id}"
        given = {item.member_id: item for item in message.members}
        if len(given) < len(message.members):
            raise invalid(f"{what}: a member appears twice; use its weight instead")
        if not 0 <= message.max_size <= (info.max_group_size or message.max_size):
            raise invalid(f"{what}: max_size {message.max_size}, of {info.max_group_size}")
        if info.max_group_size and not message.max_size:
            raise invalid(f"{what}: max_size is 1 to {info.max_group_size}")
        weights = [item.weight for item in given.values()]
        _check_weights(info, weights, message.max_size)
        self._check_room(info, profile, weights, group)
        return [
            Share(
                _found(profile.members, number, f"{profile.name}: member"),
                given[number].weight,
                self._port(given[number]),
            )
            for number in sorted(given)
        ]

    def read_groups(self, wanted: p4r.ActionProfileGroup) -> Iterator[p4r.Entity]:
        """Yield one group, all of one selector, or all."""
        for _, profile in self._wanted(wanted.action_profile_id):
            for number, group in list(profile.groups.items()):
                if wanted.group_id in (0, number) and group in self._written:
                    yield p4r.Entity(action_profile_group=self._written[group])

    # checks

    def _profile(self, number: int) -> tuple[p4i.ActionProfile, Profile]:
        info = self._names.other("action_profiles", number)
        return info, self._switch.profiles[info.preamble.name]

    def _wanted(self, number: int) -> list[tuple[p4i.ActionProfile, Profile]]:
        infos = (
            [self._names.other("action_profiles", number)] if number else self._names.all_of("action_profiles")
        )
        return [(info, self._switch.profiles[info.preamble.name]) for info in infos]

    @staticmethod
    def _check_style(profile: Profile) -> None:
        if profile.shots:
            raise invalid(f"{profile.name}: its entries bring action sets; it has no members and groups then")

    @staticmethod
    def _check_room(
        info: p4i.ActionProfile, profile: Profile, weights: list[int], replaced: Group | None
    ) -> None:
        """Raise Fault if all groups together exceed the selector's size."""
        if info.HasField("sum_of_members"):
            size = profile.shares + len(weights) - (len(replaced.shares) if replaced else 0)
        else:
            size = profile.weight + sum(weights) - (replaced.weight if replaced else 0)
        if size > profile.size:
            raise Fault(rpc_code.RESOURCE_EXHAUSTED, f"{profile.name} is full: {profile.size}")

    def _port(self, item: Any) -> int | None:
        """Return the port that a member of a group depends on."""
        kind = item.WhichOneof("watch_kind")
        if kind is None or not getattr(item, kind):
            return None
        port = item.watch if kind == "watch" else number_in(item.watch_port, _PORT_BITS, "watch_port")
        if port not in self._switch.ports:
            raise invalid(f"watch_port: there is no port {port}")
        return port


def _shorten_watch(item: Any) -> None:
    """Shorten the watched port of a member to its canonical form."""
    if item.WhichOneof("watch_kind") == "watch_port" and item.watch_port:
        item.watch_port = shortest(item.watch_port)


def _check_weights(info: p4i.ActionProfile, weights: list[int], max_size: int) -> None:
    """Raise Fault if a group is too large, or a weight is not in its range."""
    name = info.preamble.name
    if any(weight < 1 for weight in weights):
        raise invalid(f"{name}: weights are 1 or more")
    members = info.HasField("sum_of_members")
    most = info.sum_of_members.max_member_weight if members else 0
    if most and any(weight > most for weight in weights):
        raise invalid(f"{name}: weights are at most {most}")
    size = len(weights) if members else sum(weights)
    if sum(weights) > _MAX_WEIGHT:
        raise Fault(rpc_code.RESOURCE_EXHAUSTED, f"{name}: a group's weights are {_MAX_WEIGHT} at most")
    limit = max_size or info.max_group_size
    if limit and size > limit:
        code = rpc_code.RESOURCE_EXHAUSTED if max_size else rpc_code.INVALID_ARGUMENT
        raise Fault(code, f"{name}: a group of {size}; it may have {limit}")


def _check_presence(kind: int, number: int, present: Target | None, what: str) -> None:
    if not number:
        raise invalid(f"{what}: 0 means none")
    if kind == _INSERT and present is not None:
        raise Fault(rpc_code.ALREADY_EXISTS, f"{what} {number} exists")
    if kind != _INSERT and present is None:
        raise unknown(f"there is no {what} {number}")


def _in_use(what: str) -> Fault:
    return Fault(rpc_code.FAILED_PRECONDITION, f"{what} is in use")


def _found(known: dict[int, Any], number: int, what: str) -> Any:
    if number not in known:
        raise unknown(f"there is no {what} {number}")
    return known[number]
