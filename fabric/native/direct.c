/* Large operations whose members read one another's memory (process_vm_readv): one copy instead of two.
 *
 * A member that can do so *offers* its input when it signs. Where all have, nobody posts anything:
 *
 *     moving        read all that is mine -> say so
 *     all_reduce    reduce my segment, reading the others' piece by piece, in place -> say so -> once all have: read
 *                   their finished segments -> say so
 *
 * Everybody waits until all have said that they are done, for until then their memory is read; only then is the operation
 * sealed: `contest` knows. Whether members may read one another's memory (same user, no seccomp filter, one process
 * namespace) is tried on a cookie before anything is offered.
 */

#define _GNU_SOURCE /* process_vm_readv */
#include <errno.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "core.h"

enum { CHUNK_NBYTES = 4 << 20 }; /* read at a time, so that the caller can look at other things in between */

static uint64_t cookie;

static bool read_memory(int pid, void *into, uint64_t address, size_t nbytes)
{
    while (nbytes > 0) {
        struct iovec local = {into, nbytes}, remote = {(void *)(uintptr_t)address, nbytes};
        ssize_t got = process_vm_readv(pid, &local, 1, &remote, 1, 0);
        if (got <= 0) {
            errno = got < 0 ? errno : EFAULT;
            return false;
        }
        into = (char *)into + got;
        address += (uint64_t)got;
        nbytes -= (size_t)got;
    }
    return true;
}

void hk_introduce(const hk_seat *seat)
{
    hk_word *line = hk_line(seat, seat->member);
    while (cookie == 0)
        cookie = hk_now_ns() * 0x9e3779b97f4a7c15u ^ (uint64_t)getpid() << 40;
    hk_store(&line[HK_COOKIE], cookie);
    hk_store(&line[HK_COOKIE_AT], (uint64_t)(uintptr_t)&cookie);
}

bool hk_prove(hk_seat *seat)
{
    for (int member = 0; !seat->proved && member < seat->size; member++) {
        const hk_word *line = hk_line(seat, member);
        uint64_t at = hk_load(&line[HK_COOKIE_AT]), found = 0;
        if (at == 0 || !read_memory(seat->pids[member], &found, at, sizeof found) || found != hk_load(&line[HK_COOKIE]))
            return false;
    }
    seat->proved = true;
    return true;
}

static uint64_t offer_of(const hk_run *run, int member)
{
    return hk_load(&hk_line(run->seat, member)[HK_OFFER_EVEN + (run->number & 1)]);
}

bool hk_direct_offered(const hk_run *run)
{
    for (int member = 0; member < run->seat->size; member++)
        if (offer_of(run, member) == 0)
            return false;
    return run->offer != 0;
}

/* Reads from a member. What fails is tried again: if its process has ended, the worker is about to say so. */
static bool read_from(hk_run *run, int member, void *into, uint64_t offset, size_t nbytes)
{
    run->failed = 0;
    if (nbytes && !read_memory(run->seat->pids[member], into, offer_of(run, member) + offset, nbytes))
        run->failed = errno;
    return run->failed == 0;
}

static void done(hk_run *run, uint32_t phase)
{
    run->reduced = phase;
    run->turn = 0;
    run->got = 0;
    hk_store(&hk_line(run->seat, run->plan->member)[HK_REDUCED], hk_stage(run->number, phase));
}

/* --- moving ------------------------------------------------------------------------------------------------------ */

static bool move_chunk(hk_run *run)
{
    const hk_plan *plan = run->plan;
    if (run->turn == plan->size || !plan->reads) {
        done(run, HK_DIRECT_DONE);
        return true;
    }
    int sender = (plan->member + run->turn) % plan->size; /* our own first: it may lie where others' go */
    const hk_inflow *from = &plan->from[sender];
    size_t nbytes = hk_smaller(CHUNK_NBYTES, from->whole - run->got);
    char *out = run->recv[sender] + run->got;
    run->wrote = true;
    if (sender == plan->member) {
        const char *own = run->send[plan->parts > 1 ? sender : 0] + run->got;
        if (nbytes && own != out)
            memmove(out, own, nbytes);
    } else if (!read_from(run, sender, out, from->origin + run->got, nbytes)) {
        return false;
    }
    run->got += nbytes;
    if (run->got == from->whole) {
        run->turn++;
        run->got = 0;
    }
    return true;
}

/* --- all_reduce -------------------------------------------------------------------------------------------------- */

static bool reduce_piece(hk_run *run)
{
    const hk_plan *plan = run->plan;
    size_t start, whole = hk_segment(plan, plan->to[0], plan->member, plan->size, &start);
    size_t nbytes = hk_smaller(HK_PIECE_NBYTES, whole - run->got);
    const void *inputs[HK_MEMBERS];
    char *scratch = run->scratch, *out = run->recv[0] + start + run->got;
    if (nbytes == 0) {
        done(run, 1);
        return true;
    }
    for (int member = 0; member < plan->size; member++) {
        inputs[member] = out;
        if (member == plan->member)
            continue;
        if (!read_from(run, member, scratch, start + run->got, nbytes))
            return false;
        inputs[member] = scratch;
        scratch += HK_PIECE_NBYTES;
    }
    run->wrote = true;
    hk_reduce_finish(&plan->kernel, out, inputs, plan->size, nbytes / plan->itemsize, plan->size);
    run->got += nbytes;
    return true;
}

static bool gather_chunk(hk_run *run)
{
    const hk_plan *plan = run->plan;
    if (run->turn == plan->size - 1) {
        done(run, HK_DIRECT_DONE);
        return true;
    }
    int owner = (plan->member + 1 + run->turn) % plan->size;
    size_t start, whole = hk_segment(plan, plan->to[0], owner, plan->size, &start);
    size_t nbytes = hk_smaller(CHUNK_NBYTES, whole - run->got);
    if (!read_from(run, owner, run->recv[0] + start + run->got, start + run->got, nbytes))
        return false;
    run->got += nbytes;
    if (run->got == whole) {
        run->turn++;
        run->got = 0;
    }
    return true;
}

/* --- the program ------------------------------------------------------------------------------------------------- */

bool hk_direct_step(hk_run *run)
{
    if (run->reduced >= HK_DIRECT_DONE || !hk_may_complete(run))
        return false; /* what has been aborted before we came is not written */
    if (run->plan->manner == HK_MOVE)
        return move_chunk(run);
    if (run->reduced == 0)
        return reduce_piece(run);
    return hk_locals_at_least(run, HK_REDUCED, hk_stage(run->number, 1)) && gather_chunk(run);
}

bool hk_direct_is_done(const hk_run *run)
{
    return run->reduced >= HK_DIRECT_DONE && hk_locals_at_least(run, HK_REDUCED, hk_stage(run->number, HK_DIRECT_DONE)) &&
           hk_may_complete(run);
}
