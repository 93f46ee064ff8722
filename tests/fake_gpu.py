"""A second device on a machine that has none: tensors that say they are on a GPU, and refuse to
meet those on the CPU.

Inside `fake_gpu()` every tensor carries whether it was moved to `cuda`. All numbers stay in main
memory; only what is said of them changes. An operation on tensors of both kinds raises, as it would
on a machine with a GPU: an index on the CPU into a tensor on the GPU is allowed, a number without
dimensions as well, and copying is what copying is for.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

GPU = torch.device("cuda", 0)
DEVICE, IS_CUDA, SET_DATA = Tensor.device.__get__, Tensor.is_cuda.__get__, Tensor.data.__set__
MEET = ("copy_", "_has_compatible_shallow_copy_type", "_parse_to")
"""Operations whose arguments may be on different devices, or that only speak of one."""
MARK = "_on_fake_gpu"


def is_there(tensor: Any) -> bool:
    """Whether a tensor is on the fake GPU."""
    return getattr(tensor, MARK, False)


@contextmanager
def fake_gpu() -> Iterator[None]:
    """While open, `cuda` is a device."""
    honest = Parameter.__deepcopy__

    # no operation of torch, so the mode does not see it
    def copied(self: Parameter, memo: Any) -> Any:
        return _marked(honest(self, memo), there=is_there(self))

    Parameter.__deepcopy__ = copied
    try:
        with _Mode():
            yield
    finally:
        Parameter.__deepcopy__ = honest


class _Mode(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func == DEVICE:
            return GPU if is_there(args[0]) else func(*args)
        if func == IS_CUDA:
            return is_there(args[0])
        if func in (Tensor.cpu, Tensor.cuda):
            return _marked(args[0].clone(), there=func is Tensor.cuda)
        if func is Tensor.to:
            return _moved(*args, **kwargs)
        if func == SET_DATA:
            _marked(args[0], there=is_there(args[1]))
        if func == SET_DATA or getattr(func, "__name__", "") in MEET:
            return func(*args, **kwargs)
        if func is Tensor.numpy and is_there(args[0]):
            raise TypeError("can't convert cuda:0 device type tensor to numpy")
        there = _where(func, args, kwargs)
        if kwargs.get("device") is not None:
            there = torch.device(kwargs["device"]).type == "cuda"
            kwargs["device"] = torch.device("cpu") if there else kwargs["device"]  # meta stays meta
        return _marked(func(*args, **kwargs), there=there)


def _where(func: Any, args: Any, kwargs: Any) -> bool:
    """Where the result of an operation is; raises where its arguments are not all there."""
    tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
    there = [is_there(tensor) for tensor in tensors]
    if not any(there):
        return False
    indexing = func in (Tensor.__getitem__, Tensor.__setitem__, Tensor.index_put, Tensor.index_put_)
    if indexing and there[0]:  # indices may be on the CPU; what is written may not
        written = args[2:] if func is not Tensor.__getitem__ else ()
        tensors, there = [tensors[0], *(t for t in written if isinstance(t, Tensor))], None
    stay = [
        tensor
        for tensor in tensors
        if not is_there(tensor) and (tensor.dim() > 0 or (indexing and not there))
    ]
    if stay and not (indexing and all(tensor.dim() == 0 for tensor in stay)):
        name = getattr(func, "__name__", func)
        raise RuntimeError(
            f"{name}: expected all tensors to be on the same device, but found cuda:0 and cpu"
        )
    return True


def _moved(tensor: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """`Tensor.to`: the device is where the mark says, all else is done."""
    there, rest = is_there(tensor), []
    for value in args:
        if isinstance(value, torch.device | str):
            there = torch.device(value).type == "cuda"
        elif isinstance(value, Tensor):
            there = is_there(value)
            rest.append(value.dtype)
        elif not isinstance(value, bool) and value is not None:
            rest.append(value)
    if kwargs.get("device") is not None:
        there = torch.device(kwargs["device"]).type == "cuda"
    dtype = kwargs.get("dtype") or next(iter(rest), None) or tensor.dtype
    if there == is_there(tensor) and dtype == tensor.dtype:
        return tensor
    return _marked(tensor.to(dtype, copy=True), there=there)


def _marked(result: Any, *, there: bool) -> Any:
    for leaf in tree_leaves(result):
        if isinstance(leaf, Tensor):
            setattr(leaf, MARK, there)
    return result


def waits(func: Any, args: Any) -> bool:
    """Whether an operation has to know numbers on the device before it goes on."""
    name = func.overloadpacket.__name__
    masks = name in {"index", "index_put", "index_put_"} and any(
        leaf.dtype == torch.bool for leaf in tree_leaves(args[1]) if isinstance(leaf, Tensor)
    )
    return masks or name in {
        "_local_scalar_dense",
        "nonzero",
        "masked_select",
        "unique_dim",
        "_unique2",
        "equal",
    }
