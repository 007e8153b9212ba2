"""`use_full_float32`, under the name by which users import it."""

from .backends import use_full_float32 as use_full_float32
