"""The module from which users import `use_full_float32`."""

from .backends import use_full_float32 as use_full_float32
