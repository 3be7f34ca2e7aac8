/* `Plan`: an agreed operation as one member carries it out, made once for each call site by `hocket.fabric.quick`. */

#include <string.h>

#include "core.h"

static void plan_dealloc(hk_plan *self)
{
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    PyMem_Free(self->expected);
    PyMem_Free(self->from);
    PyMem_Free(self->to);
    PyMem_Free(self->text);
    PyObject_Free(self);
    Py_DECREF(type);
}

/* Reads entry `index` of a list of whole numbers. */
static bool number_at(PyObject *list, Py_ssize_t index, uint64_t *value)
{
    PyObject *item = PyList_GetItem(list, index);
    if (item == NULL)
        return false;
    *value = PyLong_AsUnsignedLongLong(item);
    return !PyErr_Occurred();
}

static bool fill_flows(hk_plan *self, PyObject *calls, PyObject *wholes, PyObject *units, PyObject *places,
                       PyObject *owed, PyObject *origins)
{
    for (int member = 0; member < self->size; member++) {
        hk_inflow *from = &self->from[member];
        uint64_t whole, unit, place, blocks, origin;
        if (!number_at(calls, member, &self->expected[member]) || !number_at(wholes, member, &whole) ||
            !number_at(units, member, &unit) || !number_at(places, member, &place) || !number_at(owed, member, &blocks) ||
            !number_at(origins, member, &origin))
            return false;
        *from = (hk_inflow){whole, unit, place, origin, (uint32_t)blocks};
        if (blocks > self->nblocks)
            self->nblocks = (uint32_t)blocks;
        if (self->manner == HK_MOVE)
            self->recvs_nbytes += whole;
    }
    if (self->manner == HK_OWN)
        self->recvs_nbytes = self->from[self->member].whole;
    if (self->manner == HK_SHARED || self->manner == HK_BROUGHT)
        self->recvs_nbytes = self->to[0];
    return true;
}

static bool fill(hk_plan *self, const char *text, Py_ssize_t text_nbytes, PyObject *to, PyObject *calls,
                 PyObject *wholes, PyObject *units, PyObject *places, PyObject *owed, PyObject *origins)
{
    self->expected = PyMem_Calloc((size_t)self->size, sizeof *self->expected);
    self->from = PyMem_Calloc((size_t)self->size, sizeof *self->from);
    self->to = PyMem_Calloc((size_t)self->size + 1, sizeof *self->to);
    self->text = PyMem_Malloc((size_t)text_nbytes);
    if (!self->expected || !self->from || !self->to || !self->text) {
        PyErr_NoMemory();
        return false;
    }
    memcpy(self->text, text, (size_t)text_nbytes);
    self->text_nbytes = (size_t)text_nbytes;
    self->parts = (int)PyList_Size(to);
    for (int part = 0; part < self->parts; part++) {
        uint64_t nbytes;
        if (!number_at(to, part, &nbytes))
            return false;
        self->to[part] = nbytes;
        self->sends_nbytes += nbytes;
    }
    return fill_flows(self, calls, wholes, units, places, owed, origins);
}

static PyObject *plan_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"manner", "member", "text",   "reads", "kernel", "itemsize", "unit",
                            "to",     "calls",  "wholes", "units", "places", "owed",   "origins", NULL};
    int manner, member, reads;
    const char *text, *op, *dtype;
    double factor;
    Py_ssize_t text_nbytes, itemsize, unit;
    PyObject *to, *calls, *wholes, *units, *places, *owed, *origins, *kernel;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "iiy#pOnnOOOOOOO", names, &manner, &member, &text, &text_nbytes,
                                     &reads, &kernel, &itemsize, &unit, &to, &calls, &wholes, &units, &places, &owed, &origins))
        return NULL;
    hk_kernel found = {0};
    if (kernel != Py_None) {
        if (!PyArg_ParseTuple(kernel, "sds", &op, &factor, &dtype))
            return NULL;
        if (!hk_kernel_find(&found, op, factor, dtype))
            return PyErr_Format(PyExc_ValueError, "no kernel for %s of %s", op, dtype);
    }
    hk_plan *self = PyObject_New(hk_plan, type);
    if (self == NULL)
        return NULL;
    memset((char *)self + sizeof(PyObject), 0, sizeof *self - sizeof(PyObject));
    self->manner = (hk_manner)manner;
    self->member = member;
    self->size = (int)PyList_Size(calls);
    self->reads = reads != 0;
    self->kernel = found;
    self->itemsize = (size_t)itemsize;
    self->unit = (size_t)unit;
    if (!fill(self, text, text_nbytes, to, calls, wholes, units, places, owed, origins)) {
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

static PyType_Slot plan_slots[] = {
    {Py_tp_new, plan_new},
    {Py_tp_dealloc, plan_dealloc},
    {Py_tp_doc, "An agreed operation, as one member carries it out."},
    {0, NULL},
};

PyType_Spec hk_plan_spec = {"hocket.fabric._core.Plan", sizeof(hk_plan), 0, Py_TPFLAGS_DEFAULT, plan_slots};
