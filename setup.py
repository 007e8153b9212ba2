"""Leaves the tests out of the package; all else is in pyproject.toml."""

from setuptools import setup
from setuptools.command.build_py import build_py


class _WithoutTests(build_py):
    def find_package_modules(self, package, package_dir):
        modules = super().find_package_modules(package, package_dir)
        return [found for found in modules if not found[1].endswith("_test")]


setup(cmdclass={"build_py": _WithoutTests})
