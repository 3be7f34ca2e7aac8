/* What one member does on the board for one operation of a group that lives on this host: see `hocket.fabric.program`.
 *
 *     enter -> all have signed the same -> for each block: post mine, reduce my segment, read what I need
 *
 * The rules that keep the memory right are that module's. Here each is one function with the same name. What is done
 * better than there, and needs no other member to know: a rank's own segment of a reduction, and its own piece of what
 * moves, go from the caller's array to the result and never through a slot.
 */

#include <errno.h>
#include <sched.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "core.h"

enum { SPINS_BEFORE_YIELD = 256, BLOCKS_PER_CLOCK = 8, CUT_ELEMENTS = 64 };

uint64_t hk_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static inline void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* --- what others have done --------------------------------------------------------------------------------------- */

bool hk_locals_at_least(const hk_run *run, int word, uint64_t needed)
{
    const hk_seat *seat = run->seat;
    for (int index = 0; index < seat->nlocals; index++)
        if (hk_load(&hk_line(seat, seat->locals[index])[word]) < needed)
            return false;
    return true;
}

static uint64_t head(const hk_run *run, int word) { return hk_load((const hk_word *)run->seat->base + word); }

/* Whether nobody needs the slot any more that `block` goes into. */
static bool may_write(const hk_run *run, uint32_t block)
{
    uint64_t needed;
    if (block >= 2)
        needed = hk_stage(run->number, block - 1);
    else if (block == 0 && run->before >= 0 && run->before <= 1)
        needed = hk_stage(run->number - 1, 0);
    else
        needed = hk_stage(run->number, 0);
    if (run->seat->bridged && head(run, HK_BRIDGE_READ) < needed)
        return false;
    return hk_locals_at_least(run, HK_READ, needed);
}

static bool has_posted(const hk_run *run, int member, uint32_t block)
{
    uint32_t owed = run->plan->from[member].owed;
    uint32_t due = block + 1 < owed ? block + 1 : owed;
    return due == 0 || hk_load(&hk_line(run->seat, member)[HK_POSTED]) >= hk_stage(run->number, due);
}

static bool locals_posted(const hk_run *run, uint32_t block)
{
    for (int index = 0; index < run->seat->nlocals; index++)
        if (!has_posted(run, run->seat->locals[index], block))
            return false;
    return true;
}

static bool all_posted(const hk_run *run, uint32_t block)
{
    for (int member = 0; member < run->seat->size; member++)
        if (!has_posted(run, member, block))
            return false;
    return true;
}

bool hk_may_complete(const hk_run *run)
{
    atomic_thread_fence(memory_order_seq_cst);
    return head(run, HK_CONTESTED) < run->number || run->sealed >= run->number;
}

/* Wakes those that sleep and may wait for this member. They look at the board after they have said that they sleep, we
 * look for sleepers after we have written: one of the two sees the other. */
static void ring(const hk_seat *seat)
{
    static const uint64_t one = 1;
    atomic_thread_fence(memory_order_seq_cst);
    for (int index = 0; index < seat->nwake; index++)
        if (hk_load(&seat->asleep[seat->wake_places[index]]))
            while (write(seat->wake_fds[index], &one, sizeof one) < 0 && errno == EINTR)
                continue; /* a counter that is full wakes just as well */
}

/* --- posting ----------------------------------------------------------------------------------------------------- */

/* Where segment `index` of `count` begins in `elements` elements: `program.cut`. */
static size_t cut(size_t elements, int index, int count)
{
    if (index >= count)
        return elements;
    size_t at = elements * (size_t)index / (size_t)count;
    return elements >= (size_t)CUT_ELEMENTS * (size_t)count ? at - at % CUT_ELEMENTS : at - at % 2;
}

/* Offset and nbytes of segment `index` of `count` of a block of `nbytes`. */
size_t hk_segment(const hk_plan *plan, size_t nbytes, int index, int count, size_t *start)
{
    size_t elements = nbytes / plan->itemsize;
    *start = cut(elements, index, count) * plan->itemsize;
    return cut(elements, index + 1, count) * plan->itemsize - *start;
}

/* This member's segment among those of the host. */
static size_t own_segment(const hk_run *run, size_t nbytes, size_t *start)
{
    return hk_segment(run->plan, nbytes, run->seat->index, run->seat->nlocals, start);
}

static void post_block(hk_run *run, uint32_t block)
{
    const hk_plan *plan = run->plan;
    char *slot = hk_slot(run->seat, plan->member, run->number + block);
    for (int reader = 0; reader < plan->parts; reader++) {
        size_t start = hk_smaller((size_t)block * plan->unit, plan->to[reader]);
        size_t nbytes = hk_smaller(plan->unit, plan->to[reader] - start);
        const char *source = run->send[reader] + start;
        if (plan->parts > 1 && reader == plan->member)
            continue; /* nobody else reads what we send to ourselves */
        char *target = slot + (plan->parts > 1 ? (size_t)reader * plan->unit : 0);
        if (plan->manner == HK_SHARED) {
            size_t own, own_nbytes = own_segment(run, nbytes, &own);
            memcpy(target, source, own);
            memcpy(target + own + own_nbytes, source + own + own_nbytes, nbytes - own - own_nbytes);
        } else if (nbytes) {
            memcpy(target, source, nbytes);
        }
    }
}

static bool post(hk_run *run, uint32_t limit)
{
    uint32_t owed = run->plan->from[run->plan->member].owed;
    if (run->posted >= (owed < limit ? owed : limit) || !may_write(run, run->posted))
        return false;
    post_block(run, run->posted);
    run->posted++;
    hk_store(&hk_line(run->seat, run->plan->member)[HK_POSTED], hk_stage(run->number, run->posted));
    return true;
}

/* --- entering ---------------------------------------------------------------------------------------------------- */

void hk_enter(hk_run *run)
{
    const hk_plan *plan = run->plan;
    const hk_seat *seat = run->seat;
    hk_word *line = hk_line(seat, plan->member);
    char *text = seat->base + seat->texts + ((size_t)plan->member * 2 + (run->number & 1)) * seat->text_room;
    if (!run->offer)
        post(run, 1);
    hk_store((hk_word *)text, 0); /* whoever still reads the signature that stood here must notice */
    atomic_thread_fence(memory_order_release);
    memcpy(text + sizeof(hk_word), plan->text, plan->text_nbytes);
    hk_store((hk_word *)text, hk_stage(run->number, plan->text_nbytes));
    hk_store(&line[HK_CALL_EVEN + (run->number & 1)], plan->expected[plan->member]);
    hk_store(&line[HK_OFFER_EVEN + (run->number & 1)], run->offer);
    hk_store(&line[HK_SIGNED_AT], hk_now_ns());
    hk_store(&line[HK_SIGNED], run->number);
    ring(seat);
}

/* HK_DONE once all have signed what the plan was agreed on; HK_DIFFERENT as soon as one has signed something else. Who has
 * signed the next operation already has left this one; its word for this one still stands. */
static hk_outcome look_at_calls(const hk_run *run)
{
    hk_outcome found = HK_DONE;
    for (int member = 0; member < run->seat->size; member++) {
        const hk_word *line = hk_line(run->seat, member);
        uint64_t at = hk_load(&line[HK_SIGNED]);
        if (at < run->number)
            found = HK_WAIT;
        else if (at > run->number + 1 || hk_load(&line[HK_CALL_EVEN + (run->number & 1)]) != run->plan->expected[member])
            return HK_DIFFERENT;
    }
    return found;
}

/* --- reducing ---------------------------------------------------------------------------------------------------- */

/* Folds what the members on this host contribute, beginning `offset` bytes into their slots, into `out`; ours comes from
 * `own`. With other hosts to come, into an accumulator. */
static void fold(const hk_run *run, char *out, uint32_t block, size_t offset, const char *own, size_t nbytes)
{
    const hk_plan *plan = run->plan;
    const hk_seat *seat = run->seat;
    const void *inputs[HK_MEMBERS];
    for (int index = 0; index < seat->nlocals; index++)
        inputs[index] = hk_slot(seat, seat->locals[index], run->number + block) + offset;
    inputs[seat->index] = own;
    if (seat->bridged)
        hk_reduce(&plan->kernel, out, inputs, seat->nlocals, nbytes / plan->itemsize);
    else
        hk_reduce_finish(&plan->kernel, out, inputs, seat->nlocals, nbytes / plan->itemsize, plan->size);
}

static bool reduce_segment(hk_run *run)
{
    const hk_plan *plan = run->plan;
    uint32_t block = run->reduced;
    if (block >= plan->nblocks || run->posted <= block || !locals_posted(run, block) || !may_write(run, block))
        return false;
    size_t at = (size_t)block * plan->unit, nbytes = hk_smaller(plan->unit, plan->to[0] - at), own;
    size_t own_nbytes = own_segment(run, nbytes, &own);
    if (own_nbytes) {
        char *result = hk_result(run->seat, run->number + block);
        result += run->seat->bridged ? own / plan->itemsize * plan->kernel.wide : own;
        /* Nothing is written to the caller's array here that may be aborted as a whole: neither the last block, nor any
         * of an operation that a hand has been raised on, perhaps before we came. */
        bool straight = plan->reads && block + 1 < plan->nblocks && !run->seat->bridged && hk_may_complete(run);
        run->straight[block & 1] = straight;
        char *out = straight ? run->recv[0] + at + own : result;
        fold(run, out, block, own, run->send[0] + at + own, own_nbytes);
        if (straight) {
            run->wrote = true;
            memcpy(result, out, own_nbytes);
        }
    }
    run->reduced++;
    hk_store(&hk_line(run->seat, plan->member)[HK_REDUCED], hk_stage(run->number, run->reduced));
    return true;
}

/* --- reading ----------------------------------------------------------------------------------------------------- */

static void read_result(hk_run *run, uint32_t block)
{
    const hk_plan *plan = run->plan;
    size_t at = (size_t)block * plan->unit, nbytes = hk_smaller(plan->unit, plan->to[0] - at), own;
    size_t own_nbytes = own_segment(run, nbytes, &own);
    const char *result = hk_result(run->seat, run->number + block);
    char *out = run->recv[0] + at;
    if (run->seat->bridged) {
        hk_finish(&plan->kernel, out, result, nbytes / plan->itemsize, plan->size);
    } else if (!run->straight[block & 1]) {
        memcpy(out, result, nbytes);
    } else {
        memcpy(out, result, own);
        memcpy(out + own + own_nbytes, result + own + own_nbytes, nbytes - own - own_nbytes);
    }
}

static void read_own(hk_run *run, uint32_t block)
{
    const hk_plan *plan = run->plan;
    const hk_inflow *mine = &plan->from[plan->member];
    size_t at = hk_smaller((size_t)block * mine->unit, mine->whole), nbytes = hk_smaller(mine->unit, mine->whole - at);
    const char *own = run->send[plan->parts > 1 ? plan->member : 0] + at;
    if (nbytes)
        fold(run, run->recv[0] + at, block, mine->place, own, nbytes);
}

static void read_pieces(hk_run *run, uint32_t block)
{
    const hk_plan *plan = run->plan;
    for (int turn = 0; turn < plan->size; turn++) {
        int sender = (plan->member + turn) % plan->size; /* our own first: it may lie where others' go */
        const hk_inflow *from = &plan->from[sender];
        size_t at = hk_smaller((size_t)block * from->unit, from->whole), nbytes = hk_smaller(from->unit, from->whole - at);
        if (nbytes == 0)
            continue;
        char *out = run->recv[sender] + at;
        if (sender != plan->member)
            memcpy(out, hk_slot(run->seat, sender, run->number + block) + from->place, nbytes);
        else if (out != run->send[plan->parts > 1 ? sender : 0] + at)
            memmove(out, run->send[plan->parts > 1 ? sender : 0] + at, nbytes);
    }
}

/* Whether everything stands on the board that this member reads of a block. */
static bool is_there(const hk_run *run, uint32_t block)
{
    if (run->plan->manner != HK_SHARED && run->plan->manner != HK_BROUGHT)
        return all_posted(run, block);
    if (run->seat->bridged)
        return head(run, HK_RESULT) >= hk_stage(run->number, block + 1);
    return hk_locals_at_least(run, HK_REDUCED, hk_stage(run->number, block + 1));
}

static bool read_block(hk_run *run)
{
    const hk_plan *plan = run->plan;
    uint32_t block = run->read, owed = plan->from[plan->member].owed;
    if (block >= plan->nblocks || run->posted < (block + 1 < owed ? block + 1 : owed))
        return false;
    if (!is_there(run, block))
        return false;
    if (block + 1 == plan->nblocks && !hk_may_complete(run))
        return false;
    if (plan->reads) {
        run->wrote = true;
        if (plan->manner == HK_SHARED || plan->manner == HK_BROUGHT)
            read_result(run, block);
        else if (plan->manner == HK_OWN)
            read_own(run, block);
        else
            read_pieces(run, block);
    }
    run->read++;
    if (run->read < plan->nblocks) /* else whoever leaves says so, in one word with it */
        hk_store(&hk_line(run->seat, plan->member)[HK_READ], hk_stage(run->number, run->read));
    return true;
}

/* --- the program ------------------------------------------------------------------------------------------------- */

static bool step(hk_run *run)
{
    if (run->direct)
        return hk_direct_step(run);
    bool moved = post(run, run->plan->nblocks);
    if (run->plan->manner == HK_SHARED)
        moved = reduce_segment(run) || moved;
    return read_block(run) || moved;
}

static bool is_done(const hk_run *run)
{
    if (run->direct)
        return hk_direct_is_done(run);
    return run->agreed && run->read == run->plan->nblocks && (run->plan->nblocks > 0 || hk_may_complete(run));
}

/* One look at everything. Whether anything moved; `outcome` tells what there is to say. */
static bool look(hk_run *run, hk_outcome *outcome)
{
    bool moved = false;
    *outcome = HK_WAIT;
    if (!run->agreed) {
        hk_outcome calls = look_at_calls(run);
        if (calls == HK_DIFFERENT) {
            *outcome = HK_DIFFERENT;
            return false;
        }
        run->agreed = calls == HK_DONE;
        run->direct = run->agreed && hk_direct_offered(run);
        moved = run->agreed || (!run->offer && post(run, 1));
    }
    if (run->agreed && step(run))
        moved = true;
    if (is_done(run))
        *outcome = HK_DONE;
    return moved;
}

/* Nothing moved: spins, then gives way. False once it has done so for `patience_ns`. */
static bool wait_for_others(const hk_run *run, uint64_t patience_ns, unsigned idle, uint64_t *until)
{
    if (idle < SPINS_BEFORE_YIELD && !run->seat->crowded) {
        relax();
        return true;
    }
    uint64_t now = hk_now_ns();
    if (*until == 0)
        *until = now + patience_ns;
    if (now >= *until)
        return false;
    sched_yield();
    return true;
}

hk_outcome hk_advance(hk_run *run, uint64_t patience_ns)
{
    uint64_t until = 0, started = 0;
    hk_outcome outcome;
    for (unsigned idle = 0, blocks = 0;; idle++) {
        bool moved = look(run, &outcome);
        if (outcome != HK_WAIT)
            return outcome;
        if (!moved) {
            if (!wait_for_others(run, patience_ns, idle, &until))
                return HK_WAIT;
            continue;
        }
        ring(run->seat);
        until = 0;
        idle = 0;
        if (++blocks % BLOCKS_PER_CLOCK == 0) {
            uint64_t now = hk_now_ns();
            started = started ? started : now;
            if (now - started > HK_TURN_NS)
                return HK_MORE;
        }
    }
}

void hk_leave(hk_run *run)
{
    hk_store(&hk_line(run->seat, run->plan->member)[HK_READ], hk_stage(run->number + 1, 0));
    ring(run->seat);
}
