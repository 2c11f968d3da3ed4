"""P4Runtime's action profiles: members, groups, and action sets within an entry ("one shot")."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from finsy.proto import p4i, p4r, rpc_code

from fanin.sim.switch.embedded import Switch
from fanin.sim.switch.embedded.profiles import Group, Member, Profile, Share, Target
from fanin.sim.switch.service.data import number_in, shortest
from fanin.sim.switch.service.faults import Fault, invalid, unimplemented, unknown
from fanin.sim.switch.service.names import Names

_INSERT, _DELETE = p4r.Update.INSERT, p4r.Update.DELETE
_PORT_BITS = 9
_MAX_WEIGHT = 1 << 16  # maximum weight of a group, whatever its selector allows
MIN_GROUPS = 1024  #: groups that every selector may have; a larger one may have as many as its size
_Set = p4r.ActionProfileActionSet


class Profiles:
    """The profiles of ``switch``, by the ids of ``names``. Failed calls raise Fault and change nothing."""

    def __init__(self, switch: Switch, names: Names):
        self._switch = switch
        self._names = names
        self._messages: dict[Group, Any] = {}  # the controller's messages, for reads

    def watch(self, down: frozenset[int]) -> None:
        """Set the ports that are down now."""
        for profile in self._switch.profiles.values():
            profile.watch(down)

    # what entries point to

    def target(self, table: p4i.Table, action: p4r.TableAction, old_target: Target | None) -> Target:
        """Return the new target of an entry of ``table``; an action set becomes a group.

        ``old_target``: the entry's target before the change, which the caller still has to release.
        """
        info, profile = self._profile(table.implementation_id)
        kind = action.WhichOneof("type")
        number = getattr(action, kind) if kind else 0
        if kind == "action_profile_member_id":
            return _look_up(profile.members, number, f"{profile.name}: member")
        if not profile.selects or kind in (None, "action"):
            raise invalid(
                f"table {table.preamble.name}: its entries point to {profile.name}, they have no {kind}"
            )
        if kind == "action_profile_group_id":
            return _look_up(profile.groups, number, f"{profile.name}: group")
        return self._one_shot(table, info, profile, action.action_profile_action_set, old_target)

    def _one_shot(
        self,
        table: p4i.Table,
        info: p4i.ActionProfile,
        profile: Profile,
        action_set: Any,
        old_target: Target | None,
    ) -> Group:
        if profile.members or profile.groups:
            raise invalid(f"{profile.name} has members or groups: entries bring no action sets then")
        if action_set.action_selection_mode != _Set.DEFAULT_MODE_DETERMINED_BY_ACTION_SELECTOR or (
            action_set.size_semantics != _Set.DEFAULT_SIZE_DETERMINED_BY_ACTION_SELECTOR
        ):
            raise unimplemented(f"{profile.name}: a group's own mode or size semantics")
        weights = [entry.weight for entry in action_set.action_profile_actions]
        _check_weights(info, weights, 0)
        self._check_room(info, profile, weights, old_target if isinstance(old_target, Group) else None)
        shares = [
            Share(Member(*self._names.decode_call(table, entry.action)), entry.weight, self._port(entry))
            for entry in action_set.action_profile_actions
        ]
        group = profile.add_one_shot(shares)
        self._messages[group] = stored = p4r.ActionProfileActionSet.FromString(action_set.SerializeToString())
        for entry in stored.action_profile_actions:
            _shorten_watch(entry)
            for param in entry.action.params:
                param.value = shortest(param.value)
        return group

    def release(self, table: p4i.Table, target: Target | None) -> None:
        """Release the old target of an entry."""
        if isinstance(target, Group):
            _, profile = self._profile(table.implementation_id)
            if target in profile.one_shots:
                profile.remove_one_shot(target)
                del self._messages[target]

    def encode_target(self, table: p4i.Table, target: Target) -> p4r.TableAction:
        """Return the action of an entry that points to ``target``."""
        _, profile = self._profile(table.implementation_id)
        if isinstance(target, Member):
            return p4r.TableAction(action_profile_member_id=target.number)
        assert isinstance(target, Group)
        if target in profile.one_shots:
            return p4r.TableAction(action_profile_action_set=self._messages[target])
        return p4r.TableAction(action_profile_group_id=target.number)

    # members

    def write_member(self, kind: int, message: p4r.ActionProfileMember) -> None:
        """Insert, modify or delete a member."""
        info, profile = self._profile(message.action_profile_id)
        subject, member = f"{profile.name}: member", profile.members.get(message.member_id)
        _check_presence(kind, message.member_id, member, subject)
        if kind == _DELETE:
            assert member is not None
            if member.entries or member.weights:
                raise _in_use_fault(f"{subject} {message.member_id}")
            profile.drop(member)
            return
        if not message.HasField("action"):
            raise invalid(f"{subject} {message.member_id} without an action")
        if not info.table_ids:
            raise invalid(f"{profile.name}: no table has it")
        call = self._names.decode_call(self._names.table(info.table_ids[0]), message.action)
        if member is not None:
            profile.rewrite(member, *call)
            return
        self._check_style(profile)
        if len(profile.members) >= profile.size:
            raise Fault(rpc_code.RESOURCE_EXHAUSTED, f"{profile.name} is full: {profile.size} members")
        profile.add(Member(*call, number=message.member_id))

    def read_members(self, query: p4r.ActionProfileMember) -> Iterator[p4r.Entity]:
        """Yield one member, all of one profile, or all."""
        for info, profile in self._select_profiles(query.action_profile_id):
            for number, member in list(profile.members.items()):
                if query.member_id in (0, number):
                    message = p4r.ActionProfileMember(
                        action_profile_id=info.preamble.id,
                        member_id=number,
                        action=self._names.encode_call(member.action, member.parameters),
                    )
                    yield p4r.Entity(action_profile_member=message)

    # groups

    def write_group(self, kind: int, message: p4r.ActionProfileGroup) -> None:
        """Insert, modify or delete a group."""
        info, profile = self._profile(message.action_profile_id)
        if not profile.selects:
            raise invalid(f"{profile.name} is no selector: it has no groups")
        subject, group = f"{profile.name}: group", profile.groups.get(message.group_id)
        _check_presence(kind, message.group_id, group, subject)
        if kind == _DELETE:
            assert group is not None
            if group.entries:
                raise _in_use_fault(f"{subject} {message.group_id}")
            del profile.groups[message.group_id]
            del self._messages[group]
            profile.regroup(group, ())
            return
        if group is not None and self._messages[group].max_size != message.max_size:
            raise invalid(
                f"{subject} {message.group_id}: its max_size is {self._messages[group].max_size} for good"
            )
        shares = self._shares(info, profile, message, group)
        if group is None:
            self._check_style(profile)
            limit = max(profile.size, MIN_GROUPS)  # groups without members count for no size
            if len(profile.groups) >= limit:
                raise Fault(rpc_code.RESOURCE_EXHAUSTED, f"{profile.name} is full: {limit} groups")
            group = profile.groups[message.group_id] = Group(message.group_id)
        profile.regroup(group, shares)
        self._messages[group] = stored = p4r.ActionProfileGroup.FromString(message.SerializeToString())
        for member in stored.members:
            _shorten_watch(member)

    def _shares(
        self, info: p4i.ActionProfile, profile: Profile, message: p4r.ActionProfileGroup, group: Group | None
    ) -> list[Share]:
        """Return the shares of a group by ascending member id, which is the order in BMv2's server."""
        subject = f"{profile.name}: group {message.group_id}"
        members = {member.member_id: member for member in message.members}
        if len(members) < len(message.members):
            raise invalid(f"{subject}: a member appears twice; use its weight instead")
        if not 0 <= message.max_size <= (info.max_group_size or message.max_size):
            raise invalid(f"{subject}: max_size {message.max_size}, of {info.max_group_size}")
        if info.max_group_size and not message.max_size:
            raise invalid(f"{subject}: max_size is 1 to {info.max_group_size}")
        weights = [member.weight for member in members.values()]
        _check_weights(info, weights, message.max_size)
        self._check_room(info, profile, weights, group)
        return [
            Share(
                _look_up(profile.members, number, f"{profile.name}: member"),
                members[number].weight,
                self._port(members[number]),
            )
            for number in sorted(members)
        ]

    def read_groups(self, query: p4r.ActionProfileGroup) -> Iterator[p4r.Entity]:
        """Yield one group, all of one selector, or all."""
        for _, profile in self._select_profiles(query.action_profile_id):
            for number, group in list(profile.groups.items()):
                if query.group_id in (0, number) and group in self._messages:
                    yield p4r.Entity(action_profile_group=self._messages[group])

    # checks

    def _profile(self, number: int) -> tuple[p4i.ActionProfile, Profile]:
        info = self._names.extern("action_profiles", number)
        return info, self._switch.profiles[info.preamble.name]

    def _select_profiles(self, number: int) -> list[tuple[p4i.ActionProfile, Profile]]:
        infos = (
            [self._names.extern("action_profiles", number)]
            if number
            else self._names.externs("action_profiles")
        )
        return [(info, self._switch.profiles[info.preamble.name]) for info in infos]

    @staticmethod
    def _check_style(profile: Profile) -> None:
        if profile.one_shots:
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

    def _port(self, member: Any) -> int | None:
        """Return the port that a member of a group depends on."""
        kind = member.WhichOneof("watch_kind")
        if kind is None or not getattr(member, kind):
            return None
        port = member.watch if kind == "watch" else number_in(member.watch_port, _PORT_BITS, "watch_port")
        if port not in self._switch.ports:
            raise invalid(f"watch_port: there is no port {port}")
        return port


def _shorten_watch(member: Any) -> None:
    """Shorten the watched port of a member to its canonical form."""
    if member.WhichOneof("watch_kind") == "watch_port" and member.watch_port:
        member.watch_port = shortest(member.watch_port)


def _check_weights(info: p4i.ActionProfile, weights: list[int], max_size: int) -> None:
    """Raise Fault if a group is too large, or a weight is not in its range."""
    name = info.preamble.name
    if any(weight < 1 for weight in weights):
        raise invalid(f"{name}: weights are 1 or more")
    counts_members = info.HasField("sum_of_members")
    max_weight = info.sum_of_members.max_member_weight if counts_members else 0
    if max_weight and any(weight > max_weight for weight in weights):
        raise invalid(f"{name}: weights are at most {max_weight}")
    size = len(weights) if counts_members else sum(weights)
    if sum(weights) > _MAX_WEIGHT:
        raise Fault(rpc_code.RESOURCE_EXHAUSTED, f"{name}: a group's weights are {_MAX_WEIGHT} at most")
    limit = max_size or info.max_group_size
    if limit and size > limit:
        code = rpc_code.RESOURCE_EXHAUSTED if max_size else rpc_code.INVALID_ARGUMENT
        raise Fault(code, f"{name}: a group of {size}; it may have {limit}")


def _check_presence(kind: int, number: int, present: Target | None, subject: str) -> None:
    if not number:
        raise invalid(f"{subject}: 0 means none")
    if kind == _INSERT and present is not None:
        raise Fault(rpc_code.ALREADY_EXISTS, f"{subject} {number} exists")
    if kind != _INSERT and present is None:
        raise unknown(f"there is no {subject} {number}")


def _in_use_fault(subject: str) -> Fault:
    return Fault(rpc_code.FAILED_PRECONDITION, f"{subject} is in use")


def _look_up(objects: dict[int, Any], number: int, subject: str) -> Any:
    if number not in objects:
        raise unknown(f"there is no {subject} {number}")
    return objects[number]
