# SPDX-License-Identifier: Apache-2.0
"""Tensors in memory of the CPU, exchanged with other packages by DLPack and by NumPy's protocol."""

from __future__ import annotations

import atexit
import ctypes
import math
import operator
import struct
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Optional, Union

from ._library import Code, Error, call, tsr_named_tensor, utf8

if TYPE_CHECKING:
    import numpy.typing


class _DType:
    """A type of elements, in each of the languages that are spoken here."""

    def __init__(self, number: int, code: int, size: int, format: str, typestr: str) -> None:
        self.number = number  # tsr_dtype
        self.code = code  # DLPack's
        self.size = size  # bytes
        self.format = format  # of the module struct
        self.typestr = typestr  # NumPy's; bfloat16 has none


_DTYPES = {
    "float32": _DType(1, 2, 4, "f", "<f4"),
    "bfloat16": _DType(2, 4, 2, "H", ""),
    "float16": _DType(3, 2, 2, "e", "<f2"),
    "float64": _DType(4, 2, 8, "d", "<f8"),
    "int64": _DType(5, 0, 8, "q", "<i8"),
    "int32": _DType(6, 0, 4, "i", "<i4"),
    "uint8": _DType(7, 1, 1, "B", "|u1"),
    "bool": _DType(8, 6, 1, "?", "|b1"),
}


def dtype_number(name: Optional[str]) -> int:
    """The tsr_dtype of a name; None is the default."""
    if name is None:
        return 0
    if name not in _DTYPES:
        raise Error(
            f"dtype: '{name}' is unknown (it is one of {', '.join(_DTYPES)})",
            Code.INVALID_ARGUMENT,
        )
    return _DTYPES[name].number


class Tensor:
    """An array of numbers, the last dimension fastest. What a model returns, and what it takes.

    `shape` is a tuple, `dtype` a name such as "float32". Copies nothing when `numpy()`,
    `numpy.asarray` or another package's `from_dlpack` takes it: both then show the same memory.

    An index along the first dimensions, `logits[0, -1]`, whose last place may be a slice,
    `logits[0, :2]`, gives a tensor of the same memory, and a number where no dimension is left.
    Other parts are NumPy's: `logits.numpy()[..., 0]`.

    Example:
        logits = model.forward(input_ids=[[1, 2, 3]])["logits"]
        print(logits.shape, logits.numpy().argmax(-1))
    """

    def __init__(self, address: int, shape: tuple[int, ...], dtype: str, owner: object) -> None:
        """For this package's use: `owner` is an object that keeps the memory."""
        self._address = address
        self._owner = owner
        self.shape = shape
        self.dtype = dtype

    @property
    def nbytes(self) -> int:
        """How many bytes the elements take."""
        return math.prod(self.shape) * _DTYPES[self.dtype].size

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("a tensor without dimensions has no length")
        return self.shape[0]

    def __getitem__(self, index: Any) -> Any:
        places = index if isinstance(index, tuple) else (index,)
        if any(isinstance(place, slice) for place in places[:-1]):
            raise IndexError("a slice is the last place of an index; take numpy()")
        part = self
        for place in places:
            part = part._at(place)
        return part if part.shape or part is self else part.item()

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self)))

    def _at(self, place: Any) -> Tensor:
        if not self.shape:
            raise IndexError("an index has more places than the tensor has dimensions")
        size = self.shape[0]
        step = math.prod(self.shape[1:]) * _DTYPES[self.dtype].size
        if isinstance(place, slice):
            begin, end, stride = place.indices(size)
            if stride != 1:
                raise IndexError(f"a slice by {stride} has no memory of its own; take numpy()")
            shape = (max(end - begin, 0), *self.shape[1:])
            return Tensor(self._address + begin * step, shape, self.dtype, self)
        try:
            at = operator.index(place)
        except TypeError:
            raise IndexError(f"{place!r} is neither a number nor a slice; take numpy()") from None
        if not -size <= at < size:
            raise IndexError(f"{at} is outside of a dimension of {size}")
        return Tensor(self._address + at % size * step, self.shape[1:], self.dtype, self)

    def item(self) -> Any:
        """The only element, as a number of Python.

        Example: `model.forward(input_ids=ids, labels=ids)["loss"].item()`
        """
        if math.prod(self.shape) != 1:
            raise ValueError(f"{self!r} does not have one element")
        return self._values()[0]

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __repr__(self) -> str:
        return f"tessera.Tensor(shape={self.shape}, dtype={self.dtype!r})"

    def tobytes(self) -> bytes:
        """A copy of the elements' bytes.

        Example: `open("logits.bin", "wb").write(logits.tobytes())`
        """
        return ctypes.string_at(self._address, self.nbytes) if self.nbytes else b""

    def tolist(self) -> Any:
        """The elements as nested lists; a number for a tensor without dimensions.

        Example: `model.embed("Hello").tolist()[:3]`
        """
        values = self._values()
        for size in reversed(self.shape[1:]):
            if size == 0:
                return _empty(self.shape)
            values = [values[i : i + size] for i in range(0, len(values), size)]
        return values if self.shape else values[0]

    def _values(self) -> list[Any]:
        """All elements, one by one."""
        values: list[Any] = list(
            struct.unpack(f"<{math.prod(self.shape)}{_DTYPES[self.dtype].format}", self.tobytes())
        )
        if self.dtype == "bfloat16":
            values = [struct.unpack("<f", struct.pack("<I", value << 16))[0] for value in values]
        return values

    def numpy(self) -> numpy.typing.NDArray[Any]:
        """A NumPy array of the same memory; of bfloat16, which NumPy lacks, a float32 copy.

        Example: `logits.numpy().argmax(-1)`
        """
        import numpy

        dtype = _DTYPES[self.dtype]
        if self.nbytes == 0:
            return numpy.empty(self.shape, dtype.typestr or "<f4")
        buffer: Any = (ctypes.c_char * self.nbytes).from_address(self._address)
        buffer.owner = self  # the array keeps the buffer
        array: numpy.typing.NDArray[Any] = numpy.frombuffer(buffer, dtype.typestr or "<u2")
        if self.dtype == "bfloat16":
            array = (array.astype("<u4") << 16).view("<f4")
        return array.reshape(self.shape)

    def __array__(self, dtype: Any = None, copy: Optional[bool] = None) -> Any:
        array = self.numpy()
        converts = dtype is not None and array.dtype != dtype
        if copy is False and (converts or self.dtype == "bfloat16"):
            raise ValueError(f"an array of {array.dtype if dtype is None else dtype} needs a copy")
        if converts:
            return array.astype(dtype)
        return array.copy() if copy else array

    def __dlpack_device__(self) -> tuple[int, int]:
        """The CPU, as DLPack numbers it."""
        return (_DL_CPU, 0)

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: Optional[tuple[int, int]] = None,
        dl_device: Optional[tuple[int, int]] = None,
        copy: Optional[bool] = None,
    ) -> Any:
        """A capsule of the same memory, for another package's from_dlpack.

        Example: `torch.from_dlpack(logits)`
        """
        if dl_device is not None and tuple(dl_device) != self.__dlpack_device__():
            raise BufferError("a tensor of Tessera is in memory of the CPU")
        versioned = max_version is not None and max_version[0] >= 1
        return _export(copied(self) if copy else self, versioned, copy is True)


def _empty(shape: tuple[int, ...]) -> list[Any]:
    if shape[0] == 0 or len(shape) == 1:
        return []
    return [_empty(shape[1:]) for _ in range(shape[0])]


def _of_bytes(data: bytes, shape: tuple[int, ...], dtype: str) -> Tensor:
    # A ctypes buffer, as it may be written to.
    buffer = ctypes.create_string_buffer(data, max(len(data), 1))
    return Tensor(ctypes.addressof(buffer), shape, dtype, buffer)


def copied(tensor: Tensor) -> Tensor:
    """A tensor of memory of its own."""
    return _of_bytes(tensor.tobytes(), tensor.shape, tensor.dtype)


# ---- DLPack --------------------------------------------------------------------------------------

_DL_CPU = 1
_DL_HOST_MEMORY = (_DL_CPU, 3, 11)  # and that which CUDA or ROCm has pinned


class _DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


_deleter_type = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class _DLManagedTensor(ctypes.Structure):
    _fields_ = [
        ("tensor", _DLTensor),
        ("manager", ctypes.c_void_p),
        ("deleter", _deleter_type),
    ]


class _DLManagedTensorVersioned(ctypes.Structure):
    """DLPack 1: what takes it may write, which the older struct does not say."""

    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("manager", ctypes.c_void_p),
        ("deleter", _deleter_type),
        ("flags", ctypes.c_uint64),
        ("tensor", _DLTensor),
    ]


_IS_COPIED = 2
_NEW_VERSIONED = b"dltensor_versioned"
_NEW = b"dltensor"
_USED = b"used_dltensor"
_python = ctypes.pythonapi
_new_capsule = ctypes.PYFUNCTYPE(
    ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p
)(("PyCapsule_New", _python))
_is_capsule = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_IsValid", _python)
)
_of_capsule = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", _python)
)
_name_capsule = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_SetName", _python)
)
# Of a capsule that is going: a reference to it may not be taken any more.
_is_dying_capsule = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_IsValid", _python)
)
_of_dying_capsule = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", _python)
)

# What other packages hold of ours: the structs by their address, and the tensors behind them.
_Exported = Union[_DLManagedTensor, _DLManagedTensorVersioned]
_exported: dict[int, tuple[_Exported, object, Tensor]] = {}


def _forget(address: Optional[int]) -> None:
    _exported.pop(address or 0, None)


def _forget_capsule(capsule: Optional[int]) -> None:
    for name in (_NEW, _NEW_VERSIONED):
        if _is_dying_capsule(capsule, name):  # nobody has taken what is in it
            _forget(_of_dying_capsule(capsule, name))


_on_delete = _deleter_type(_forget)
_on_capsule = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(_forget_capsule)


def _leave_exported() -> None:
    """Other packages may delete their tensors after the interpreter's end, and call nothing then."""
    for managed, _, _ in _exported.values():
        managed.deleter = _deleter_type()
    for kept in (_exported, _on_capsule):
        _python.Py_IncRef(ctypes.py_object(kept))


atexit.register(_leave_exported)


def _export(tensor: Tensor, versioned: bool, is_copy: bool) -> Any:
    shape = (ctypes.c_int64 * max(len(tensor.shape), 1))(*tensor.shape)
    dtype = _DTYPES[tensor.dtype]
    managed: _Exported
    if versioned:
        managed = _DLManagedTensorVersioned(major=1, flags=_IS_COPIED if is_copy else 0)
    else:
        managed = _DLManagedTensor()
    managed.tensor.data = tensor._address
    managed.tensor.device_type = _DL_CPU
    managed.tensor.ndim = len(tensor.shape)
    managed.tensor.code = dtype.code
    managed.tensor.bits = dtype.size * 8
    managed.tensor.lanes = 1
    managed.tensor.shape = ctypes.cast(shape, ctypes.POINTER(ctypes.c_int64))
    managed.deleter = _on_delete
    address = ctypes.addressof(managed)
    _exported[address] = (managed, shape, tensor)
    name = _NEW_VERSIONED if versioned else _NEW
    return _new_capsule(address, name, ctypes.cast(_on_capsule, ctypes.c_void_p))


class _Imported:
    """Another package's memory, until nothing here needs it."""

    def __init__(self, address: int) -> None:
        self._managed = _DLManagedTensor.from_address(address)
        self._address = address
        self.tensor: _DLTensor = self._managed.tensor

    def __del__(self) -> None:
        if self._managed.deleter:
            self._managed.deleter(self._address)


def from_dlpack(source: Any) -> Tensor:
    """A tensor of the memory of another package's, which must be the CPU's. Nothing is copied,
    unless the elements do not lie one by one.

    Example: `tessera.from_dlpack(torch.tensor([[1, 2, 3]]))`
    """
    device = tuple(source.__dlpack_device__())
    if device[0] not in _DL_HOST_MEMORY:
        raise Error(
            f"from_dlpack: the tensor is on device {device[0]} of DLPack; move it to the CPU",
            Code.INVALID_ARGUMENT,
        )
    try:
        capsule = source.__dlpack__()
    except (BufferError, TypeError) as error:
        raise Error(f"from_dlpack: {error}", Code.INVALID_ARGUMENT) from None
    if not _is_capsule(capsule, _NEW):
        raise Error("from_dlpack: the capsule is used, or of another kind", Code.INVALID_ARGUMENT)
    imported = _Imported(_of_capsule(capsule, _NEW))
    _name_capsule(capsule, _USED)
    there = imported.tensor
    for name, dtype in _DTYPES.items():
        if (dtype.code, dtype.size * 8, 1) == (there.code, there.bits, there.lanes):
            break
    else:
        raise Error(
            f"from_dlpack: type {there.code} of {there.bits} bits is none that models take",
            Code.INVALID_ARGUMENT,
        )
    shape = tuple(there.shape[i] for i in range(there.ndim))
    address = (there.data or 0) + there.byte_offset
    strides = None
    if there.strides:
        strides = tuple(there.strides[i] * dtype.size for i in range(there.ndim))
    return _dense(address, shape, strides, name, imported)


# ---- Other memory --------------------------------------------------------------------------------


def _dense(
    address: int,
    shape: tuple[int, ...],
    strides: Optional[tuple[int, ...]],
    dtype: str,
    owner: object,
) -> Tensor:
    """The tensor of elements that are `strides` bytes apart: as they lie, or a copy."""
    size = _DTYPES[dtype].size
    step = size
    dense = True
    for length, stride in zip(reversed(shape), reversed(strides or ())):
        dense = dense and (length <= 1 or stride == step)
        step *= length
    if dense or strides is None or math.prod(shape) == 0:
        return Tensor(address, shape, dtype, owner)
    pieces: list[bytes] = []

    def gather(place: int, at: int) -> None:
        if at == len(shape):
            pieces.append(ctypes.string_at(place, size))
        elif at == len(shape) - 1 and strides[at] == size:
            pieces.append(ctypes.string_at(place, size * shape[at]))
        else:
            for i in range(shape[at]):
                gather(place + i * strides[at], at + 1)

    gather(address, 0)
    return _of_bytes(b"".join(pieces), shape, dtype)


_SWAPPED = (("i", 8), ("f", 2), ("f", 4), ("f", 8))  # in the other order of bytes


def _of_interface(interface: Mapping[str, Any], owner: object) -> Optional[Tensor]:
    """By NumPy's __array_interface__, which also shows arrays that may not be written to."""
    data = interface.get("data")
    if not isinstance(data, tuple):
        return None
    for name, dtype in _DTYPES.items():
        if dtype.typestr and dtype.typestr == interface["typestr"]:
            strides = interface.get("strides")
            return _dense(
                data[0],
                tuple(interface["shape"]),
                None if strides is None else tuple(strides),
                name,
                owner,
            )
    # Other whole numbers and orders of bytes, as the nearest that there is.
    kind, digits = interface["typestr"][1], interface["typestr"][2:]
    size = int(digits) if digits.isdecimal() else 0  # "|O" and "<M8[ns]" are no numbers
    if hasattr(owner, "astype") and (kind in "iu" and 0 < size < 8 or (kind, size) in _SWAPPED):
        nearest = owner.astype("<i8" if kind in "iu" else f"<f{size}")
        return _of_interface(nearest.__array_interface__, nearest)
    raise Error(
        f"as_tensor: elements of NumPy's type '{interface['typestr']}' are none that models take",
        Code.INVALID_ARGUMENT,
    )


def _plain(values: Any) -> Any:
    """Nested lists of Python's numbers; NumPy's numbers and arrays within lists become such."""
    if isinstance(values, (list, tuple)):
        return [_plain(value) for value in values]
    return values.tolist() if hasattr(values, "tolist") else values


def _of_lists(values: Any, dtype: Optional[str]) -> Tensor:
    values = _plain(values)
    shape: list[int] = []
    inner = values
    while isinstance(inner, (list, tuple)):
        shape.append(len(inner))
        if not inner:
            break
        inner = inner[0]
    flat: list[Any] = []

    def collect(value: Any, at: int) -> None:
        if at == len(shape):
            if not isinstance(value, (bool, int, float)):
                raise Error(
                    f"as_tensor: {type(value).__name__} is not a number", Code.INVALID_ARGUMENT
                )
            flat.append(value)
            return
        if not isinstance(value, (list, tuple)) or len(value) != shape[at]:
            raise Error("as_tensor: lists of unequal lengths", Code.INVALID_ARGUMENT)
        for one in value:
            collect(one, at + 1)

    collect(values, 0)
    if dtype is None:
        if any(isinstance(value, float) for value in flat):
            dtype = "float32"
        elif flat and all(isinstance(value, bool) for value in flat):
            dtype = "bool"
        else:
            dtype = "int64"
    if dtype == "bfloat16":
        raise Error("as_tensor: lists become float32, not bfloat16", Code.UNIMPLEMENTED)
    dtype_number(dtype)
    try:
        data = struct.pack(f"<{len(flat)}{_DTYPES[dtype].format}", *flat)
    except (struct.error, OverflowError) as error:
        raise Error(f"as_tensor: {dtype}: {error}", Code.INVALID_ARGUMENT) from None
    return _of_bytes(data, tuple(shape), dtype)


def as_tensor(value: Any, dtype: Optional[str] = None) -> Tensor:
    """A tensor of nested lists, a NumPy array, or what knows DLPack; `dtype` is of lists alone.

    Arrays are not copied. Lists of whole numbers are int64, those with fractions float32.

    Example: `tessera.as_tensor([[1, 2, 3]])`
    """
    if isinstance(value, Tensor):
        return value
    interface = getattr(value, "__array_interface__", None)
    if isinstance(interface, dict):
        tensor = _of_interface(interface, value)
        if tensor is not None:
            return tensor
    if hasattr(value, "__dlpack__"):
        return from_dlpack(value)
    return _of_lists(value, dtype)


# ---- Across the border ---------------------------------------------------------------------------


class Results:
    """The block of memory that holds all results of a call; the library sets both members."""

    def __init__(self) -> None:
        self.tensors = ctypes.POINTER(tsr_named_tensor)()
        self.count = ctypes.c_size_t()

    def __del__(self) -> None:
        call("tsr_tensors_release", self.tensors)


def named_tensors(tensors: Mapping[str, Any]) -> tuple[Any, list[object]]:
    """The array that the library takes, and what must live until it has taken it."""
    kept: list[object] = []
    array = (tsr_named_tensor * max(len(tensors), 1))()
    for entry, (name, value) in zip(array, tensors.items()):
        tensor = as_tensor(value)
        shape = (ctypes.c_int64 * max(len(tensor.shape), 1))(*tensor.shape)
        kept += [tensor, shape]
        entry.name = utf8(name)
        entry.dtype = _DTYPES[tensor.dtype].number
        entry.rank = len(tensor.shape)
        entry.shape = ctypes.cast(shape, ctypes.POINTER(ctypes.c_int64))
        entry.data = tensor._address
        entry.bytes = tensor.nbytes
    return array, kept


def tensors_of(results: Results) -> dict[str, Tensor]:
    """The results by their names. The block is released with the last of them."""
    names = {dtype.number: name for name, dtype in _DTYPES.items()}
    found: dict[str, Tensor] = {}
    for i in range(results.count.value):
        entry = results.tensors[i]
        shape = tuple(entry.shape[d] for d in range(entry.rank))
        found[entry.name.decode()] = Tensor(entry.data or 0, shape, names[entry.dtype], results)
    return found


def floats(shape: tuple[int, ...]) -> Tensor:
    """A float32 tensor of zeros, for the library to write to."""
    return _of_bytes(bytes(4 * math.prod(shape)), shape, "float32")
