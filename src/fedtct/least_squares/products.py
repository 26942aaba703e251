"""Products with features, which may be stored in half precision or in a file, a block of them at a time."""

from collections.abc import Iterator
from functools import cache

import torch
from torch import Tensor

from fedtct.hardware.kernels import works

STRIPS, NARROWEST = 12, 400  # a symmetric matrix has at most so many strips, of at least so many rows
BLOCK, GPU_BLOCK = 2**24, 2**29  # bytes of Z that are converted to the precision of the arithmetic at a time
LARGE = 32  # on a processor, blocks that are taken at a time to multiply all pairs of rows
FEW_COLUMNS = 64  # with so few, reading Z takes longer than multiplying


def times(z: Tensor, w: Tensor) -> Tensor:
    """Z·W in the precision of W."""
    if z.dtype == w.dtype:
        return _product(z, w)
    if _suits_kernel(z, w):
        return _multiply(z, w, transposed=False)
    w = w.T.contiguous().T  # the layout that _product wants of a narrow W, made once for all blocks
    return torch.cat([_product(rows, w) for rows in _converted(z, w.dtype)])


def transposed_times(z: Tensor, r: Tensor) -> Tensor:
    """Zᵀ·R in the precision of R."""
    if z.dtype == r.dtype:
        return _product(z.T, r)
    if _suits_kernel(z, r):
        return _multiply(z, r, transposed=True)
    result = r.new_zeros(r.shape[1], z.shape[1])
    for rows, part in zip(_converted(z, r.dtype), r.split(_rows(z, r.dtype)), strict=True):
        result.addmm_(part.T, rows)
    return result.T.contiguous()


def _converted(z: Tensor, dtype: torch.dtype) -> Iterator[Tensor]:
    """Blocks of rows in another precision, all in the same memory: new memory would take longer than converting."""
    size = _rows(z, dtype)
    memory = torch.empty(min(size, len(z)), z.shape[1], dtype=dtype, device=z.device)
    for rows in z.split(size):
        yield memory[: len(rows)].copy_(rows)


def _product(a: Tensor, b: Tensor) -> Tensor:
    """A·B; on a processor with a narrow B as (Bᵀ·Aᵀ)ᵀ, because its kernels go by columns of the result."""
    if a.is_cuda or b.shape[1] > FEW_COLUMNS:
        return a @ b
    return (b.T.contiguous() @ a.T).T.contiguous()


def _suits_kernel(z: Tensor, b: Tensor) -> bool:
    """Whether the kernel for a GPU's tensor cores can do it: for halves, in rows at addresses that its copies need."""
    halves = z.is_cuda and z.dtype == torch.float16 and b.dtype == torch.float32
    return halves and z.stride(1) == 1 and z.stride(0) % 8 == 0 and z.data_ptr() % 16 == 0 and _kernel_works(z.device)


@cache
def _kernel_works(device: torch.device) -> bool:
    def cases() -> Iterator[tuple[Tensor, Tensor]]:
        draws = torch.Generator().manual_seed(0)
        z = torch.randn(140, 200, generator=draws).half().to(device)
        for columns in (10, 80):
            w = torch.randn(200, columns, generator=draws).to(device)
            found = _multiply(z, w, transposed=False)
            yield found, z.double() @ w.double()
            yield _multiply(z, found, transposed=True), z.double().T @ found.double()

    return works("products of stage 2", device, cases)


def _multiply(z: Tensor, b: Tensor, *, transposed: bool) -> Tensor:
    from fedtct.least_squares.products_triton import multiply

    with torch.cuda.device_of(z):  # kernels go to the GPU that torch works on, wherever their arrays are
        return multiply(z, b, transposed=transposed)


def _rows(z: Tensor, dtype: torch.dtype, blocks: int = 1) -> int:
    """How many rows of Z fill so many blocks."""
    return max(1, (GPU_BLOCK if z.is_cuda else blocks * BLOCK) // (dtype.itemsize * max(1, z.shape[1])))


def outer(z: Tensor, dtype: torch.dtype) -> Tensor:
    """Z·Zᵀ, a block of columns at a time."""
    result = torch.zeros(len(z), len(z), dtype=dtype, device=z.device)
    for columns in z.split(_rows(z.T, dtype, LARGE), dim=1):
        add_lower(result, columns.to(dtype))
    return _mirrored(result)


def inner(z: Tensor, dtype: torch.dtype) -> Tensor:
    """Zᵀ·Z, a block of rows at a time."""
    result = torch.zeros(z.shape[1], z.shape[1], dtype=dtype, device=z.device)
    for rows in z.split(_rows(z, dtype, LARGE)):
        add_lower(result, rows.to(dtype).T)
    return _mirrored(result)


def add_lower(result: Tensor, a: Tensor) -> None:
    """Add A·Aᵀ on and below the diagonal only, in broad strips: little more than half of the work."""
    strip = max(NARROWEST, -(-len(a) // STRIPS))
    for start in range(0, len(a), strip):
        stop = min(start + strip, len(a))
        result[start:stop, :stop].addmm_(a[start:stop], a[:stop].T)


def _mirrored(lower: Tensor) -> Tensor:
    return lower.tril_().add_(lower.tril(-1).T)
