/* The module `hocket.fabric._core`. What it holds is described in core.h. */

#include "core.h"

extern PyType_Spec hk_run_spec;

static PyObject *core_fence(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    atomic_thread_fence(memory_order_seq_cst);
    Py_RETURN_NONE;
}

static PyMethodDef core_methods[] = {
    {"fence", core_fence, METH_NOARGS, "Orders this thread's earlier loads and stores before its later ones."},
    {NULL, NULL, 0, NULL},
};

static int add_type(PyObject *module, PyType_Spec *spec, const char *name)
{
    PyObject *type = PyType_FromModuleAndSpec(module, spec, NULL);
    int failed = type == NULL || PyModule_AddObjectRef(module, name, type) < 0;
    Py_XDECREF(type);
    return failed ? -1 : 0;
}

static int core_exec(PyObject *module)
{
    if (add_type(module, &hk_words_spec, "Words") < 0 || add_type(module, &hk_plan_spec, "Plan") < 0 ||
        add_type(module, &hk_seat_spec, "Seat") < 0 || add_type(module, &hk_run_spec, "Run") < 0 ||
        PyModule_AddFunctions(module, hk_kernel_methods) < 0)
        return -1;
    static const struct { const char *name; long value; } facts[] = {
        {"MOVE", HK_MOVE},         {"OWN", HK_OWN},           {"SHARED", HK_SHARED},     {"BROUGHT", HK_BROUGHT},
        {"DONE", HK_DONE},         {"WAIT", HK_WAIT},         {"MORE", HK_MORE},
        {"CONTESTED", HK_CONTESTED}, {"RESULT", HK_RESULT}, {"BRIDGE_READ", HK_BRIDGE_READ},
        {"LINE_WORDS", HK_LINE_WORDS}, {"COUNT_BITS", HK_COUNT_BITS},
        {"PAGE_NBYTES", HK_PAGE_NBYTES}, {"SIGNED", HK_SIGNED}, {"POSTED", HK_POSTED}, {"READ", HK_READ},
        {"REDUCED", HK_REDUCED},   {"SIGNED_AT", HK_SIGNED_AT}, {"CALL", HK_CALL_EVEN},
        {"OFFER", HK_OFFER_EVEN},  {"NOTHING", HK_NOTHING},   {"DIRECT_DONE", HK_DIRECT_DONE},
        {"MEMBERS", HK_MEMBERS},
    };
    for (size_t index = 0; index < sizeof facts / sizeof *facts; index++)
        if (PyModule_AddIntConstant(module, facts[index].name, facts[index].value) < 0)
            return -1;
    return 0;
}

static PyModuleDef_Slot core_slots[] = {{Py_mod_exec, core_exec}, {0, NULL}};

static struct PyModuleDef core_module = {
    PyModuleDef_HEAD_INIT, "_core", "The native core of hocket.fabric: optional, and never imported but by `core`.",
    0, core_methods, core_slots, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__core(void) { return PyModuleDef_Init(&core_module); }
