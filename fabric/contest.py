"""Whether a contested operation may complete: one look at the board, by the only one who may raise its hand there.

The rule, for one host. A member completes an operation once it has seen all posts and after that no hand raised. The
worker raises its hand (`Board.contest`), then looks for all posts. If a member completed without seeing the hand, its
look at the posts came before the hand went up, so the worker sees all of them as well and says *sealed*; if the worker
does not see all posts, no member has completed, and none will without asking. Hence one outcome.
"""

from hocket.fabric.board import DIRECT_DONE, Board, stage
from hocket.fabric.plan import Plan, plan_for
from hocket.fabric.program import has_posted
from hocket.fabric.words import fence
from hocket.protocol.errors import HocketError, Ranks
from hocket.protocol.signature import Family


def judge(board: Board, number: int, locals_: tuple[int, ...], bridged: bool) -> HocketError | bool:
    """Raises the hand on operation ``number`` and looks.

    Returns:
        True: sealed, it completes everywhere. False: it is not, and nobody has completed it; or its signatures are gone
        (then the worker looked before they were written over). An error: the members' calls do not match, which all of
        them find by themselves.
    """
    board.contest(number)
    fence()
    if not board.all_signed(number):
        return False
    texts = [board.signature(member, number) for member in range(board.size)]
    known = tuple(text for text in texts if text is not None)
    if len(known) < board.size:
        return False
    plan = plan_for(known, board.block_nbytes)
    if isinstance(plan, HocketError):
        return plan
    return _sealed(board, plan, number, locals_, bridged)


def behind(board: Board, number: int, locals_: tuple[int, ...], bridged: bool) -> Ranks:
    """Members of this host that hold operation ``number`` up: those who have not come, else those who have done less.

    Slots are few, so that whoever stands still soon holds up all the others, who then are equally far.
    """
    absent = tuple(member for member in locals_ if board.signed(member) < number)
    texts = [board.signature(member, number) for member in range(board.size)]
    known = tuple(text for text in texts if text is not None)
    if absent or len(known) < board.size:
        return absent
    plan = plan_for(known, board.block_nbytes)
    if isinstance(plan, HocketError):
        return ()
    found: set[int] = set()
    posted = {m: board.posted(m) for m in locals_ if plan.shapes[m].owed == plan.nblocks}
    for words in (posted, {m: board.reduced(m) for m in locals_}, {m: board.read(m) for m in locals_}):
        done = {member: max(word, stage(number, 0)) for member, word in words.items()}
        found |= {member for member, word in done.items() if word < max(done.values())}
    if not found and bridged:  # all are equally far; the bridge to other hosts may wait for them
        block = max(board.bridge_read, stage(number, 0)) - stage(number, 0)
        found = {member for member in locals_ if _is_awaited(board, plan, member, number, block)}
    return tuple(sorted(found))


def _is_awaited(board: Board, plan: Plan, member: int, number: int, block: int) -> bool:
    if block >= plan.nblocks:
        return False
    done = has_posted(board, plan, member, number, block)
    if plan.shapes[0].reduces and not plan.eager:
        done = board.reduced(member) >= stage(number, block + 1)
    return not done or (block >= 2 and board.read(member) < stage(number, block - 1))


def _sealed(board: Board, plan: Plan, number: int, locals_: tuple[int, ...], bridged: bool) -> bool:
    if board.is_direct(number):
        return all(board.reduced(member) >= stage(number, DIRECT_DONE) for member in locals_)
    posted = all(has_posted(board, plan, member, number, plan.nblocks - 1) for member in range(plan.size))
    if plan.nblocks == 0 or not plan.shapes[0].reduces:
        return posted
    end = stage(number, plan.nblocks)
    if bridged:
        return board.result >= end
    if plan.family is Family.REDUCE and not plan.small:
        return posted and all(board.reduced(m) >= end for m in locals_)
    return posted
