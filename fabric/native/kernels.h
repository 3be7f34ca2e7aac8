/* Reductions of flat contiguous memory: the same bits as `hocket.fabric.numpy_kernels` gives, at memory speed.
 *
 * Elements may stand at any address. Every function works piece by piece, so that what it holds in between stays in the
 * first-level cache.
 */
#ifndef HOCKET_KERNELS_H
#define HOCKET_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { HK_MOST_INPUTS = 4096 }; /* a group has no more members */

/* out[i] = inputs[0][first + i] (op) inputs[1][first + i] (op) ..., in this order, for i below `count`; these elements of
 * any one input may be the very memory of `out`. */
typedef void hk_fold(void *out, const void *const *inputs, int ninputs, size_t first, size_t count, double factor,
                     int64_t twist);
/* out[i] = acc[i] as it is to be in the tensor; `out` may be the very memory of `acc` where both are of one dtype. */
typedef void hk_finisher(void *out, const void *acc, size_t count, int size, int64_t twist);

/* How an op reduces tensors of a dtype. */
typedef struct {
    hk_fold *fold;         /* into an accumulator */
    hk_finisher *finisher; /* NULL: the accumulator is the result */
    size_t itemsize;       /* nbytes of an element of the tensor */
    size_t wide;           /* nbytes of an element of the accumulator */
    size_t reals;          /* 2 where a complex element is folded as two reals, else 1 */
    double factor;         /* PREMUL_SUM's */
    int64_t twist;         /* how the fold differs from others that share its loops, see kernel_table.h */
} hk_kernel;

/* Finds the kernel for tensors of `dtype` (a name of hocket.protocol.dtypes) under `op` (one of reduce_ops). False where
 * they do not reduce. */
bool hk_kernel_find(hk_kernel *kernel, const char *op, double factor, const char *dtype);

/* Folds `count` elements of `ninputs` tensors into `acc`, an accumulator, which may be the very memory of one of the
 * tensors where both are of one dtype. AVG is not divided yet. */
void hk_reduce(const hk_kernel *kernel, void *acc, const void *const *inputs, int ninputs, size_t count);

/* Writes the reduction over `size` ranks to `out`, a tensor; may be in place where both are of one dtype. */
void hk_finish(const hk_kernel *kernel, void *out, const void *acc, size_t count, int size);

/* Both in one pass over memory. `out` may be the very memory of any one of the inputs. */
void hk_reduce_finish(const hk_kernel *kernel, void *out, const void *const *inputs, int ninputs, size_t count, int size);

/* What the loops use on this machine: "avx512", "avx2" or "baseline". */
const char *hk_kernels_describe(void);

/* Makes the kernels that are found from now on use this instruction set, or the best one (NULL). False where it is not
 * known or not there. Results are the same: it is for tests. */
bool hk_kernels_use(const char *name);

#endif
