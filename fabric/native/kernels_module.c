/* The kernels, for Python: flat contiguous buffers in, nothing allocated but what holds them. */

#include "core.h"

enum { GIL_HELD_NBYTES = 32 << 10 };

typedef struct {
    hk_kernel kernel;
    size_t count; /* elements */
} hk_task;

static bool find(hk_task *task, const char *op, PyObject *factor, const char *dtype)
{
    double number = factor == Py_None ? 0 : PyFloat_AsDouble(factor);
    if (PyErr_Occurred())
        return false;
    if (!hk_kernel_find(&task->kernel, op, number, dtype)) {
        PyErr_Format(PyExc_ValueError, "%s does not reduce by %s", dtype, op);
        return false;
    }
    return true;
}

/* Takes the buffer of one tensor or accumulator, which must hold `task->count` elements of `nbytes`. */
static bool take(PyObject *object, Py_buffer *buffer, bool writable, const hk_task *task, size_t nbytes)
{
    if (PyObject_GetBuffer(object, buffer, writable ? PyBUF_WRITABLE : PyBUF_SIMPLE) < 0)
        return false;
    if ((size_t)buffer->len == task->count * nbytes)
        return true;
    PyErr_Format(PyExc_ValueError, "%zd bytes, where %zu elements are reduced", buffer->len, task->count);
    PyBuffer_Release(buffer);
    return false;
}

/* Takes the inputs and calls `work` on them. */
typedef void hk_work(const hk_task *task, void *out, const void *const *inputs, int ninputs, int size);

static void work_reduce(const hk_task *task, void *out, const void *const *inputs, int ninputs, int size)
{
    (void)size;
    hk_reduce(&task->kernel, out, inputs, ninputs, task->count);
}

static void work_reduce_finish(const hk_task *task, void *out, const void *const *inputs, int ninputs, int size)
{
    hk_reduce_finish(&task->kernel, out, inputs, ninputs, task->count, size);
}

static void work_finish(const hk_task *task, void *out, const void *const *inputs, int ninputs, int size)
{
    (void)ninputs;
    hk_finish(&task->kernel, out, inputs[0], task->count, size);
}

static PyObject *carry_out(const hk_task *task, void *out, PyObject *inputs, size_t nbytes, int size, hk_work *work)
{
    Py_ssize_t count = PySequence_Size(inputs), taken = 0;
    if (count < 1 || count > HK_MOST_INPUTS)
        return count < 0 ? NULL : PyErr_Format(PyExc_ValueError, "%zd inputs", count);
    Py_buffer *held = PyMem_Calloc((size_t)count, sizeof *held);
    const void **memory = PyMem_Calloc((size_t)count, sizeof *memory);
    bool good = held && memory;
    if (!good)
        PyErr_NoMemory();
    for (; good && taken < count; taken += good) {
        PyObject *item = PySequence_GetItem(inputs, taken);
        good = item != NULL && take(item, &held[taken], false, task, nbytes);
        if (good)
            memory[taken] = held[taken].buf;
        Py_XDECREF(item);
    }
    if (good && task->count * nbytes <= GIL_HELD_NBYTES) {
        work(task, out, memory, (int)count, size);
    } else if (good) {
        Py_BEGIN_ALLOW_THREADS
        work(task, out, memory, (int)count, size);
        Py_END_ALLOW_THREADS
    }
    while (taken > 0)
        PyBuffer_Release(&held[--taken]);
    PyMem_Free(held);
    PyMem_Free(memory);
    if (!good)
        return NULL;
    Py_RETURN_NONE;
}

/* Parses (out, inputs, op, factor, dtype[, size]) and goes on; `out_wide` and `in_wide` tell which are accumulators. */
static PyObject *call(PyObject *args, bool sized, bool out_wide, bool in_wide, hk_work *work)
{
    PyObject *out, *inputs, *factor;
    const char *op, *dtype;
    int size = 1;
    if (!PyArg_ParseTuple(args, sized ? "OOsOsi" : "OOsOs", &out, &inputs, &op, &factor, &dtype, &size))
        return NULL;
    hk_task task;
    Py_buffer target;
    if (!find(&task, op, factor, dtype) || PyObject_GetBuffer(out, &target, PyBUF_WRITABLE) < 0)
        return NULL;
    size_t unit = out_wide ? task.kernel.wide : task.kernel.itemsize;
    task.count = (size_t)target.len / unit;
    PyObject *done = NULL;
    if ((size_t)target.len % unit)
        PyErr_SetString(PyExc_ValueError, "the output ends within an element");
    else
        done = carry_out(&task, target.buf, inputs, in_wide ? task.kernel.wide : task.kernel.itemsize, size, work);
    PyBuffer_Release(&target);
    return done;
}

static PyObject *kernels_reduce(PyObject *Py_UNUSED(module), PyObject *args)
{
    return call(args, false, true, false, work_reduce);
}

static PyObject *kernels_reduce_finish(PyObject *Py_UNUSED(module), PyObject *args)
{
    return call(args, true, false, false, work_reduce_finish);
}

static PyObject *kernels_finish(PyObject *Py_UNUSED(module), PyObject *args)
{
    return call(args, true, false, true, work_finish);
}

static PyObject *kernels_describe(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    return PyUnicode_FromString(hk_kernels_describe());
}

static PyObject *kernels_use(PyObject *Py_UNUSED(module), PyObject *args)
{
    const char *name;
    if (!PyArg_ParseTuple(args, "z", &name))
        return NULL;
    return PyBool_FromLong(hk_kernels_use(name));
}

PyMethodDef hk_kernel_methods[] = {
    {"reduce_into", kernels_reduce, METH_VARARGS, "reduce_into(acc, inputs, op, factor, dtype)"},
    {"reduce_finish", kernels_reduce_finish, METH_VARARGS, "reduce_finish(out, inputs, op, factor, dtype, size)"},
    {"finish", kernels_finish, METH_VARARGS, "finish(out, [acc], op, factor, dtype, size)"},
    {"kernels_describe", kernels_describe, METH_NOARGS, "Which instructions the loops use here."},
    {"kernels_use", kernels_use, METH_VARARGS, "kernels_use(name): for tests. False where there are no such instructions."},
    {NULL, NULL, 0, NULL},
};
