"""The former name of `keys`, for models outside the project."""

from input_data.keys import *  # noqa: F403
