/* `Seat`: a member's place at a board, where it carries out operations of which the plan is known.
 *
 *     seat.attempt(plan, number, before, source, target, patience_ns)     a small one, in one call
 *     seat.begin(plan, number, ...) -> Run; run.advance(patience_ns)      any, whenever there is time for it
 */

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "core.h"

enum {
    GIL_HELD_NBYTES = 64 << 10, /* up to here no other thread of the process is kept waiting for long */
    GIL_HELD_NS = 3000,
    LOCAL_MEMBERS = 64, /* in larger groups the attempt's pointers would take too much of the stack */
};

typedef struct {
    PyObject_HEAD
    hk_run run;
    PyObject *seat, *plan;
    Py_buffer *held;
    Py_ssize_t nheld;
} hk_run_object;

/* --- making a seat ----------------------------------------------------------------------------------------------- */

static bool take_bells(hk_seat *self, PyObject *wake)
{
    Py_ssize_t count = PyList_Size(wake);
    self->wake_places = PyMem_Calloc((size_t)count + 1, sizeof(int));
    self->wake_fds = PyMem_Calloc((size_t)count + 1, sizeof(int));
    if (!self->wake_places || !self->wake_fds) {
        PyErr_NoMemory();
        return false;
    }
    for (Py_ssize_t index = 0; index < count; index++) {
        int place, fd;
        if (!PyArg_ParseTuple(PyList_GetItem(wake, index), "ii", &place, &fd))
            return false;
        if (place < 0 || (size_t)place >= (size_t)self->bells.len / sizeof(hk_word)) {
            PyErr_SetString(PyExc_ValueError, "a bell's place beyond the page");
            return false;
        }
        int own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
        if (own < 0) {
            PyErr_SetFromErrno(PyExc_OSError);
            return false;
        }
        self->wake_places[self->nwake] = place;
        self->wake_fds[self->nwake++] = own;
    }
    return true;
}

/* The members' process ids, where they may try to read one another's memory; an empty list where not. */
static bool take_pids(hk_seat *self, PyObject *pids)
{
    if (PyList_Size(pids) != self->size)
        return PyList_Size(pids) == 0;
    self->pids = PyMem_Calloc((size_t)self->size, sizeof(int));
    if (self->pids == NULL) {
        PyErr_NoMemory();
        return false;
    }
    for (int member = 0; member < self->size; member++)
        self->pids[member] = (int)PyLong_AsLong(PyList_GetItem(pids, member));
    return !PyErr_Occurred();
}

/* The members on this host, of which this one is one. */
static bool take_locals(hk_seat *self, PyObject *locals)
{
    self->nlocals = (int)PyList_Size(locals);
    self->locals = PyMem_Calloc((size_t)self->nlocals + 1, sizeof(int));
    self->index = -1;
    if (self->locals == NULL) {
        PyErr_NoMemory();
        return false;
    }
    for (int index = 0; index < self->nlocals; index++) {
        self->locals[index] = (int)PyLong_AsLong(PyList_GetItem(locals, index));
        if (self->locals[index] == self->member)
            self->index = index;
    }
    if (self->index < 0 && !PyErr_Occurred())
        PyErr_SetString(PyExc_ValueError, "a seat is of a member on this host");
    return !PyErr_Occurred();
}

static void seat_dealloc(hk_seat *self)
{
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    for (int index = 0; index < self->nwake; index++)
        close(self->wake_fds[index]);
    PyMem_Free(self->wake_places);
    PyMem_Free(self->wake_fds);
    PyMem_Free(self->pids);
    PyMem_Free(self->locals);
    if (self->board.obj != NULL)
        PyBuffer_Release(&self->board);
    if (self->bells.obj != NULL)
        PyBuffer_Release(&self->bells);
    PyObject_Free(self);
    Py_DECREF(type);
}

static PyObject *seat_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"board", "bells", "size",    "member", "texts", "text_room", "slots", "results",
                            "room",  "wake",  "crowded", "pids",   "bridged", "locals", NULL};
    PyObject *board, *bells, *wake, *pids, *locals;
    int size, member, crowded, bridged;
    Py_ssize_t texts, text_room, slots, results, room;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OOiinnnnnOpOpO", names, &board, &bells, &size, &member, &texts,
                                     &text_room, &slots, &results, &room, &wake, &crowded, &pids,
                                     &bridged, &locals))
        return NULL;
    hk_seat *self = PyObject_New(hk_seat, type);
    if (self == NULL)
        return NULL;
    memset((char *)self + sizeof(PyObject), 0, sizeof *self - sizeof(PyObject));
    self->size = size;
    self->member = member;
    self->texts = (size_t)texts;
    self->text_room = (size_t)text_room;
    self->slots = (size_t)slots;
    self->results = (size_t)results;
    self->room = (size_t)room;
    self->crowded = crowded != 0;
    self->bridged = bridged != 0;
    if (PyObject_GetBuffer(board, &self->board, PyBUF_WRITABLE) < 0 ||
        PyObject_GetBuffer(bells, &self->bells, PyBUF_WRITABLE) < 0 || !take_bells(self, wake) || !take_pids(self, pids) ||
        !take_locals(self, locals)) {
        Py_DECREF(self);
        return NULL;
    }
    self->base = self->board.buf;
    self->asleep = self->bells.buf;
    if (self->board.len < results + 2 * room || member < 0 || member >= size) {
        PyErr_SetString(PyExc_ValueError, "not the layout of this board");
        Py_DECREF(self);
        return NULL;
    }
    if (self->pids)
        hk_introduce(self);
    return (PyObject *)self;
}

/* --- a small operation, in one call ------------------------------------------------------------------------------ */

/* Points the run at the caller's two arrays, in which pieces stand one after the other. False where the operation needs
 * the long way: an array is of another kind, or is written where it is still to be read. */
static bool take_arrays(hk_run *run, PyObject *source, PyObject *target)
{
    const hk_plan *plan = run->plan;
    size_t given = 0, taken = 0;
    const char *from = plan->parts ? hk_array_data(source, false, &given) : "";
    char *into = plan->reads ? hk_array_data(target, true, &taken) : (char *)"";
    if (from == NULL || into == NULL || given < plan->sends_nbytes || taken < plan->recvs_nbytes)
        return false;
    size_t at = 0;
    for (int part = 0; part < plan->parts; at += plan->to[part++])
        run->send[part] = from + at;
    run->recv[0] = into;
    at = 0;
    for (int sender = 0; plan->manner == HK_MOVE && sender < plan->size; at += plan->from[sender++].whole)
        run->recv[sender] = into + at;
    bool apart = from + given <= into || into + taken <= from;
    if (apart || !plan->reads || !plan->parts)
        return true;
    if (plan->manner == HK_MOVE && plan->nblocks > 1)
        return false;
    int own = plan->parts > 1 ? plan->member : 0;
    return run->recv[plan->manner == HK_MOVE ? plan->member : 0] == run->send[own];
}

static hk_outcome attempt(hk_run *run, uint64_t patience_ns)
{
    size_t moved = run->plan->sends_nbytes + run->plan->recvs_nbytes;
    hk_outcome outcome = HK_WAIT;
    if (moved <= GIL_HELD_NBYTES) {
        hk_enter(run);
        outcome = hk_advance(run, patience_ns < GIL_HELD_NS ? patience_ns : GIL_HELD_NS);
        if (outcome != HK_WAIT || patience_ns <= GIL_HELD_NS)
            return outcome;
    }
    Py_BEGIN_ALLOW_THREADS
    if (moved > GIL_HELD_NBYTES)
        hk_enter(run);
    do
        outcome = hk_advance(run, patience_ns);
    while (outcome == HK_MORE);
    Py_END_ALLOW_THREADS
    return outcome;
}

/* attempt(plan, number, before, source, target, patience_ns) carries out one operation, if it can begin at
 * once. Returns None if it has not begun; True if it is done and left; else
 * (posted, reduced, read, wrote, differs): the operation has been entered, is so many blocks far, and is to be gone on
 * with. `wrote` tells whether outputs have been written, `differs` that the plan does not hold. */
static PyObject *seat_attempt(hk_seat *self, PyObject *args)
{
    hk_plan *plan;
    unsigned long long number, patience_ns;
    long before;
    PyObject *source, *target;
    if (!PyArg_ParseTuple(args, "OKlOOK", &plan, &number, &before, &source, &target, &patience_ns))
        return NULL;
    const char *send[LOCAL_MEMBERS];
    char *recv[LOCAL_MEMBERS];
    if (before < 0 || plan->size > LOCAL_MEMBERS || plan->size != self->size)
        Py_RETURN_NONE;
    hk_run run = {.seat = self, .plan = plan, .number = number, .before = before, .send = send, .recv = recv};
    if (!take_arrays(&run, source, target))
        Py_RETURN_NONE;
    hk_outcome outcome = attempt(&run, patience_ns);
    if (outcome == HK_DONE) {
        hk_leave(&run);
        Py_RETURN_TRUE;
    }
    return Py_BuildValue("(kkkOO)", (unsigned long)run.posted, (unsigned long)run.reduced, (unsigned long)run.read,
                         run.wrote ? Py_True : Py_False, outcome == HK_DIFFERENT ? Py_True : Py_False);
}

/* --- any operation ----------------------------------------------------------------------------------------------- */

/* Nbytes that piece `index` must have room for. */
static size_t needed(const hk_plan *plan, Py_ssize_t index, bool writable)
{
    if (!writable)
        return plan->to[index];
    if (!plan->reads)
        return 0;
    return plan->manner == HK_MOVE ? plan->from[index].whole : plan->recvs_nbytes;
}

/* Holds the memory of the pieces. Of those to read there must be `plan->parts`. */
static bool hold(hk_run_object *self, PyObject *list, bool writable, char **found)
{
    const hk_plan *plan = self->run.plan;
    Py_ssize_t count = PyList_Size(list);
    Py_ssize_t expected = !writable ? plan->parts : !plan->reads ? count : plan->manner == HK_MOVE ? plan->size : 1;
    if (count != expected || count > plan->size) {
        PyErr_Format(PyExc_ValueError, "%zd pieces, where the plan has %zd", count, expected);
        return false;
    }
    for (Py_ssize_t index = 0; index < count; index++) {
        Py_buffer *buffer = &self->held[self->nheld];
        PyObject *item = PyList_GetItem(list, index);
        if (item == NULL || PyObject_GetBuffer(item, buffer, writable ? PyBUF_WRITABLE : PyBUF_SIMPLE) < 0)
            return false;
        self->nheld++;
        found[index] = buffer->buf;
        if ((size_t)buffer->len < needed(plan, index, writable)) {
            PyErr_Format(PyExc_ValueError, "piece %zd has %zd bytes, too few for the plan", index, buffer->len);
            return false;
        }
    }
    return true;
}

/* begin(type, plan, number, before, sends, recvs, posted, reduced, read, offer): the agreed operation, which is so many
 * blocks far; `type` is `Run`, `offer` what this member has let others read. */
static PyObject *seat_begin(hk_seat *self, PyObject *args)
{
    hk_plan *plan;
    unsigned long long number;
    long before;
    unsigned long posted, reduced, read;
    unsigned long long offer;
    PyObject *type, *sends, *recvs;
    if (!PyArg_ParseTuple(args, "OOKlOOkkkK", &type, &plan, &number, &before, &sends, &recvs, &posted, &reduced, &read,
                          &offer))
        return NULL;
    Py_ssize_t count = PyList_Size(sends) + PyList_Size(recvs);
    hk_run_object *made = PyObject_New(hk_run_object, (PyTypeObject *)type);
    if (made == NULL)
        return NULL;
    memset((char *)made + sizeof(PyObject), 0, sizeof *made - sizeof(PyObject));
    made->seat = (PyObject *)self;
    made->plan = (PyObject *)plan;
    Py_INCREF(made->seat);
    Py_INCREF(made->plan);
    made->held = PyMem_Calloc((size_t)count + 1, sizeof(Py_buffer));
    made->run.send = PyMem_Calloc((size_t)plan->size + 1, sizeof(char *));
    made->run.recv = PyMem_Calloc((size_t)plan->size + 1, sizeof(char *));
    made->run.seat = self;
    made->run.plan = plan;
    made->run.number = number;
    made->run.before = before;
    made->run.posted = (uint32_t)posted;
    made->run.reduced = (uint32_t)reduced;
    made->run.read = (uint32_t)read;
    made->run.agreed = true;
    made->run.offer = offer;
    made->run.direct = hk_direct_offered(&made->run);
    if (made->run.direct && plan->manner == HK_SHARED)
        made->run.scratch = PyMem_Malloc((size_t)plan->size * HK_PIECE_NBYTES);
    if (!made->held || !made->run.send || !made->run.recv ||
        (made->run.direct && plan->manner == HK_SHARED && !made->run.scratch))
        PyErr_NoMemory();
    else if (hold(made, sends, false, (char **)made->run.send) && hold(made, recvs, true, made->run.recv))
        return (PyObject *)made;
    Py_DECREF(made);
    return NULL;
}

static void run_dealloc(hk_run_object *self)
{
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    for (Py_ssize_t index = 0; index < self->nheld; index++)
        PyBuffer_Release(&self->held[index]);
    PyMem_Free(self->held);
    PyMem_Free(self->run.send);
    PyMem_Free(self->run.recv);
    PyMem_Free(self->run.scratch);
    Py_XDECREF(self->seat);
    Py_XDECREF(self->plan);
    PyObject_Free(self);
    Py_DECREF(type);
}

/* advance(sealed, patience_ns) -> DONE, WAIT or MORE; without the GIL. */
static PyObject *run_advance(hk_run_object *self, PyObject *args)
{
    unsigned long long sealed, patience_ns;
    if (!PyArg_ParseTuple(args, "KK", &sealed, &patience_ns))
        return NULL;
    hk_outcome outcome;
    self->run.sealed = sealed;
    Py_BEGIN_ALLOW_THREADS
    outcome = hk_advance(&self->run, patience_ns);
    Py_END_ALLOW_THREADS
    return PyLong_FromLong(outcome);
}

static PyObject *run_wrote(hk_run_object *self, void *Py_UNUSED(closure)) { return PyBool_FromLong(self->run.wrote); }

static PyObject *run_failed(hk_run_object *self, void *Py_UNUSED(closure)) { return PyLong_FromLong(self->run.failed); }

static PyMethodDef run_methods[] = {
    {"advance", (PyCFunction)run_advance, METH_VARARGS, "Goes on for a while, without the GIL. Returns DONE, WAIT or MORE."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef run_facts[] = {
    {"wrote", (getter)run_wrote, NULL, "Whether an output has been written.", NULL},
    {"failed", (getter)run_failed, NULL, "Errno of the last attempt to read another member's memory; 0: it went well.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot run_slots[] = {
    {Py_tp_dealloc, run_dealloc},
    {Py_tp_methods, run_methods},
    {Py_tp_getset, run_facts},
    {Py_tp_doc, "An operation under way."},
    {0, NULL},
};

PyType_Spec hk_run_spec = {"hocket.fabric._core.Run", sizeof(hk_run_object), 0,
                           Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, run_slots};

/* can_read() -> whether this member can read the memory of all others. */
static PyObject *seat_can_read(hk_seat *self, PyObject *Py_UNUSED(ignored))
{
    return PyBool_FromLong(self->pids && hk_prove(self));
}

static PyMethodDef seat_methods[] = {
    {"can_read", (PyCFunction)seat_can_read, METH_NOARGS, "Whether this member can read the memory of all others."},
    {"attempt", (PyCFunction)seat_attempt, METH_VARARGS, "Carries out a small operation, if it can begin at once."},
    {"begin", (PyCFunction)seat_begin, METH_VARARGS, "Takes up an agreed operation."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot seat_slots[] = {
    {Py_tp_new, seat_new},
    {Py_tp_dealloc, seat_dealloc},
    {Py_tp_methods, seat_methods},
    {Py_tp_doc, "A member's place at a board."},
    {0, NULL},
};

PyType_Spec hk_seat_spec = {"hocket.fabric._core.Seat", sizeof(hk_seat), 0, Py_TPFLAGS_DEFAULT, seat_slots};
