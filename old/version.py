"""Which version of this program runs."""

import pathlib
import subprocess


def commit():
    """The commit of this program, with + if files differ; None if unknown."""
    root = pathlib.Path(__file__).parents[1]

    def git(*arguments):
        return subprocess.run(
            ["git", *arguments],
            cwd=root,
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()

    try:
        if pathlib.Path(git("rev-parse", "--show-toplevel")) != root:
            return None  # the repository is another's, around this program
        changed = git("status", "--porcelain", "--untracked-files=no")
        return git("rev-parse", "HEAD") + ("+" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return None
