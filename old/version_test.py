import subprocess

from old import version


def test_the_commit_of_a_repository_around_the_program(tmp_path, monkeypatch):
    program = tmp_path / "program" / "common"
    program.mkdir(parents=True)
    name = ("-c", "user.name=a", "-c", "user.email=a@b")
    for arguments in (
        ("init", "--quiet"),
        (*name, "commit", "--quiet", "--allow-empty", "--message=first"),
    ):
        subprocess.run(["git", *arguments], cwd=tmp_path, check=True)
    monkeypatch.setattr(version, "__file__", str(program / "version.py"))
    assert version.commit() is None
    inside = tmp_path / "common"
    inside.mkdir()
    monkeypatch.setattr(version, "__file__", str(inside / "version.py"))
    head = version.commit()
    assert len(head) == 40
    changed = tmp_path / "file"
    changed.touch()
    subprocess.run(["git", "add", "file"], cwd=tmp_path, check=True)
    assert version.commit() == f"{head}+"
