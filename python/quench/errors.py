"""Errors, with the message of the C API."""

from __future__ import annotations


class QuenchError(Exception):
    """Any of the errors below."""


class LibraryError(QuenchError):
    """A library cannot be opened: no such file, no model, one of a newer version, or for another CPU."""


class EncryptedError(LibraryError):
    """An encrypted library: no key, a wrong password or key, or damaged bytes."""


class InputError(QuenchError, ValueError):
    """An input that the model does not take: its name, dtype, shape, byte order, device, or its absence."""


class OutputExistsError(InputError, FileExistsError):
    """A file that would be replaced exists, and nobody said that it may be: a FileExistsError and a ValueError."""


class CheckError(QuenchError):
    """The data broke a rule of the model: an index out of range, say."""


class DeviceError(QuenchError):
    """There is no such device, no driver or one that is too old, or the device failed."""


class OutOfMemoryError(QuenchError, MemoryError):
    """There is no memory for a run."""


class ClosedError(QuenchError):
    """The engine was closed."""


class BusyError(QuenchError):
    """Another thread is running this engine; each thread needs an engine of its own."""


class GatewayError(QuenchError):
    """A gateway refuses, or a step fails: `code` is gRPC's, `reason` Quench's, `fields` those of the request that are wrong."""

    def __init__(self, text: str, code: str = "UNKNOWN", reason: str = "", fields: dict[str, str] | None = None) -> None:
        super().__init__(text)
        self.code, self.reason, self.fields = code, reason, fields or {}


class ArgumentError(GatewayError, InputError):
    """A gateway says that an argument is wrong: a ValueError, like those that are found here."""


class UnavailableError(GatewayError):
    """There is no gateway, it went away and did not come back, or the program that would be one is missing."""


class AuthenticationError(GatewayError):
    """The gateway wants a token, or another one."""


class CancelledError(GatewayError):
    """Somebody cancelled the work."""


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
    13: DeviceError,
}
