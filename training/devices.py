"""Old modules under their new names, until they are replaced."""

# ruff: noqa: F401
from devices import use
from devices.machine import machine, peak_megabytes
from devices.parallel import OneDevice
