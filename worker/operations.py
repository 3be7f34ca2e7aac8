"""What is under way on this host, for people who ask: read off the boards, which costs the ranks nothing."""

from collections.abc import Iterator

from hocket.protocol.errors import HocketError
from hocket.protocol.messages import OperationInfo
from hocket.protocol.signature import decode_signature
from hocket.worker.group import HostChannel, HostGroup


def operations_of(group: HostGroup, now_ns: int) -> Iterator[OperationInfo]:
    """The operation that each channel of a group is in, if one is under way."""
    if group.ended is not None:
        return
    for channel in group.channels.values():
        found = _under_way(group, channel, now_ns)
        if found is not None:
            yield found


def _under_way(group: HostGroup, channel: HostChannel, now_ns: int) -> OperationInfo | None:
    board = channel.board
    signed = {member: board.signed(member) for member in range(board.size)}
    number = max(signed.values())
    arrived = tuple(member for member, at in signed.items() if at == number and number > 0)
    missing = tuple(member for member, at in signed.items() if at < number)
    # an operation is over once all its members here have gone past it: their read word says so
    busy = [member for member in group.locals if signed[member] == number and board.read(member) >> 24 <= number]
    if not arrived or (not missing and not busy) or group.verdicts(channel.name).decided.get(number, 0) != 0:
        return None
    ages = tuple(max(0.0, (now_ns - board.signed_at_ns(member)) / 1e9) for member in arrived)
    text = board.signature(arrived[0], number)
    try:
        operation = decode_signature(text).kind if text else "?"
    except HocketError:
        operation = "?"
    info = group.info
    return OperationInfo(
        info.job,
        info.group,
        info.name,
        info.epoch,
        channel.name,
        number,
        operation,
        arrived,
        missing,
        max(ages),
        ages,
    )
