"""Whether a contested operation may complete: one look at the board, by the only one who may raise its hand there.

The rule, for one host. A member completes an operation once it has seen all posts and after that no hand raised. The
worker raises its hand (`Board.contest`), then looks for all posts. If a member completed without seeing the hand, its
look at the posts came before the hand went up, so the worker sees all of them as well and says *sealed*; if the worker
does not see all posts, no member has completed, and none will without asking. Hence one outcome.
"""

from hocket.fabric.bells import fence
from hocket.fabric.board import Board, stage
from hocket.fabric.plan import Plan, plan_for
from hocket.fabric.program import has_posted
from hocket.protocol.errors import HocketError
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


def _sealed(board: Board, plan: Plan, number: int, locals_: tuple[int, ...], bridged: bool) -> bool:
    posted = all(has_posted(board, plan, member, number, plan.nblocks - 1) for member in range(plan.size))
    if plan.nblocks == 0 or not plan.shapes[0].reduces:
        return posted
    end = stage(number, plan.nblocks)
    if bridged:
        return board.result >= end
    if plan.family is Family.REDUCE and not plan.small:
        return posted and all(board.reduced(m) >= end for m in locals_)
    return posted
