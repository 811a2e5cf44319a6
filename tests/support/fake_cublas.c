/* A fake libcublas.so.12 over the memory of fake_cuda.c: real products, in the plainest way.
 *
 * FAKE_CUBLAS plants a fault: `wrong|COUNT` (one number of the COUNTth product), `nan|COUNT`,
 * `always_wrong` (of every product the same), `error|CODE`.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int products, handle_of_all;

static int planted(const char *kind, int *number)
{
    const char *told = getenv("FAKE_CUBLAS");
    size_t length = strlen(kind);

    if (!told || strncmp(told, kind, length) || (told[length] && told[length] != '|'))
        return 0;
    *number = told[length] ? atoi(told + length + 1) : 0;
    return 1;
}

int cublasCreate_v2(void **handle)
{
    *handle = &handle_of_all;
    return 0;
}

int cublasSgemm_v2(void *handle, int ta, int tb, int m, int n, int k, const float *alpha,
                   const float *a, int lda, const float *b, int ldb, const float *beta, float *c,
                   int ldc)
{
    int i, j, l, number = 0;

    (void)beta;
    if (planted("error", &number))
        return number;
    if (handle != &handle_of_all || ta || tb)
        return 7; /* CUBLAS_STATUS_INVALID_VALUE */
    for (j = 0; j < n; j++)
        for (i = 0; i < m; i++) {
            float sum = 0.0f;

            for (l = 0; l < k; l++)
                sum += a[i + l * lda] * b[l + j * ldb];
            c[i + j * ldc] = *alpha * sum;
        }
    products++;
    if (planted("always_wrong", &number))
        c[0] *= 1.5f;
    if (planted("wrong", &number) && number == products)
        c[m * n / 2] *= 1.5f;
    if (planted("nan", &number) && number == products)
        c[m * n / 2] = NAN;
    return 0;
}

int cublasSaxpy_v2(void *handle, int n, const float *alpha, const float *x, int incx, float *y,
                   int incy)
{
    int i;

    for (i = 0; i < n; i++)
        y[i * incy] += *alpha * x[i * incx];
    return handle != &handle_of_all;
}

int cublasSnrm2_v2(void *handle, int n, const float *x, int incx, float *result)
{
    double sum = 0.0;
    int i;

    for (i = 0; i < n; i++)
        sum += (double)x[i * incx] * x[i * incx];
    *result = (float)sqrt(sum);
    return handle != &handle_of_all;
}
