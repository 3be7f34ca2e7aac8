/* The memory behind numpy's arrays, by `__array_struct__`: the one protocol that is cheap, part of no other library's
 * binary interface, and serves dtypes that the buffer protocol has no letter for.
 *
 * Source: numpy's documentation, "The array interface protocol", version 3.
 */

#include "core.h"

typedef struct {
    int two; /* as a check that this is such a struct */
    int nd;
    char typekind;
    int itemsize;
    int flags;
    Py_intptr_t *shape, *strides;
    void *data;
    PyObject *descr;
} array_interface;

enum { C_CONTIGUOUS = 0x1, ALIGNED = 0x100, NATIVE = 0x200, WRITEABLE = 0x400 };

char *hk_array_data(PyObject *array, bool writable, size_t *nbytes)
{
    static PyObject *name; /* interned once, for the life of the process */
    if (name == NULL && (name = PyUnicode_InternFromString("__array_struct__")) == NULL) {
        PyErr_Clear();
        return NULL;
    }
    PyObject *capsule = PyObject_GetAttr(array, name);
    const array_interface *found = capsule ? PyCapsule_GetPointer(capsule, NULL) : NULL;
    if (found == NULL || found->two != 2) {
        PyErr_Clear();
        Py_XDECREF(capsule);
        return NULL;
    }
    int needed = C_CONTIGUOUS | NATIVE | ALIGNED | (writable ? WRITEABLE : 0);
    char *data = (found->flags & needed) == needed ? found->data : NULL;
    size_t total = (size_t)found->itemsize;
    for (int axis = 0; axis < found->nd; axis++)
        total *= (size_t)found->shape[axis];
    *nbytes = total;
    Py_DECREF(capsule); /* the array itself, which the caller holds, keeps the memory */
    return data;
}
