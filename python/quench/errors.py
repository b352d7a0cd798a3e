"""What can go wrong, with the sentence of the C API."""

from __future__ import annotations


class QuenchError(Exception):
    """Any of the errors below."""


class LibraryError(QuenchError):
    """A library cannot be opened: no such file, no model, one of a newer version, or for another CPU."""


class EncryptedError(LibraryError):
    """An encrypted library: no key, a wrong password or key, or damaged bytes."""


class InputError(QuenchError, ValueError):
    """An input that the model does not take: its name, dtype, shape, byte order, device, or its absence."""


class CheckError(QuenchError):
    """The data broke a rule of the model: an index out of range, say."""


class OutOfMemoryError(QuenchError, MemoryError):
    """There is no memory for a run."""


class ClosedError(QuenchError):
    """The engine was closed."""


class BusyError(QuenchError):
    """Another thread is running this engine; each thread needs an engine of its own."""


# By the codes of quench_rt.h.
BY_CODE: dict[int, type[QuenchError]] = {
    1: LibraryError,
    2: LibraryError,
    3: LibraryError,
    4: LibraryError,
    5: InputError,
    6: OutOfMemoryError,
    7: CheckError,
    10: EncryptedError,
    11: EncryptedError,
    12: EncryptedError,
}
