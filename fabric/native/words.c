/* `Words`: shared memory as a sequence of 64-bit words, read with acquire and written with release. */

#include "core.h"

typedef struct {
    PyObject_HEAD
    Py_buffer buffer;
    hk_word *words;
    Py_ssize_t length;
} hk_words;

static PyObject *words_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"buffer", NULL};
    PyObject *source;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O", names, &source))
        return NULL;
    hk_words *self = PyObject_New(hk_words, type);
    if (self == NULL)
        return NULL;
    self->buffer.obj = NULL;
    if (PyObject_GetBuffer(source, &self->buffer, PyBUF_WRITABLE) < 0) {
        Py_DECREF(self);
        return NULL;
    }
    self->words = self->buffer.buf;
    self->length = self->buffer.len / (Py_ssize_t)sizeof(hk_word);
    if ((uintptr_t)self->words % sizeof(hk_word)) {
        PyErr_SetString(PyExc_ValueError, "words must be aligned");
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

static void words_release_buffer(hk_words *self)
{
    if (self->buffer.obj != NULL)
        PyBuffer_Release(&self->buffer);
    self->words = NULL;
    self->length = 0;
}

static void words_dealloc(hk_words *self)
{
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    words_release_buffer(self);
    PyObject_Free(self);
    Py_DECREF(type);
}

static Py_ssize_t words_length(hk_words *self) { return self->length; }

static PyObject *words_item(hk_words *self, Py_ssize_t index)
{
    if (index < 0 || index >= self->length) {
        PyErr_SetString(PyExc_IndexError, "no such word");
        return NULL;
    }
    return PyLong_FromUnsignedLongLong(hk_load(&self->words[index]));
}

static int words_set_item(hk_words *self, Py_ssize_t index, PyObject *value)
{
    if (index < 0 || index >= self->length || value == NULL) {
        PyErr_SetString(PyExc_IndexError, "no such word");
        return -1;
    }
    uint64_t word = PyLong_AsUnsignedLongLong(value);
    if (PyErr_Occurred())
        return -1;
    hk_store(&self->words[index], word);
    return 0;
}

static PyObject *words_release(hk_words *self, PyObject *Py_UNUSED(ignored))
{
    words_release_buffer(self);
    Py_RETURN_NONE;
}

static PyMethodDef words_methods[] = {
    {"release", (PyCFunction)words_release, METH_NOARGS, "Gives the memory up: no word can be reached any more."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot words_slots[] = {
    {Py_tp_new, words_new},
    {Py_tp_dealloc, words_dealloc},
    {Py_tp_methods, words_methods},
    {Py_sq_length, words_length},
    {Py_sq_item, words_item},
    {Py_sq_ass_item, words_set_item},
    {Py_tp_doc, "Shared 64-bit words, read with acquire and written with release."},
    {0, NULL},
};

PyType_Spec hk_words_spec = {"hocket.fabric._core.Words", sizeof(hk_words), 0, Py_TPFLAGS_DEFAULT, words_slots};
