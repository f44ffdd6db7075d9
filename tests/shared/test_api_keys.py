"""The file of API keys, and the command that changes it."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from photocall.api_keys import ApiKey, KeyFile, KeyFileError, digest_of
from photocall.cli import main


def test_a_key_is_seen_once_and_kept_as_its_hash(tmp_path: Path) -> None:
    file = KeyFile(tmp_path / "state" / "keys")
    made = file.create("ann", ["ask"])
    other = file.create("bob")
    assert made != other
    assert made not in file.path.read_text()
    assert stat.S_IMODE(file.path.stat().st_mode) == 0o600
    assert file.read() == (ApiKey("ann", digest_of(made), frozenset({"ask"})), ApiKey("bob", digest_of(other)))
    file.revoke("ann")
    assert [key.id for key in file.read()] == ["bob"]
    assert [path.name for path in file.path.parent.iterdir()] == ["keys"]


def test_what_people_wrote_stays(tmp_path: Path) -> None:
    file = KeyFile(tmp_path / "keys")
    file.path.write_text(f"# people\nann:{'a' * 64}  # until May\n")
    file.create("bob")
    file.revoke("bob")
    assert file.path.read_text() == f"# people\nann:{'a' * 64}  # until May\n"


def test_who_could_read_the_file_can_read_it_still(tmp_path: Path) -> None:
    """Its mode stays, and a link to it stays a link."""
    there = tmp_path / "there"
    there.mkdir()
    (there / "keys").write_text(f"ann:{'a' * 64}\n")
    (there / "keys").chmod(0o640)
    (tmp_path / "keys").symlink_to(there / "keys")
    KeyFile(tmp_path / "keys").create("bob")
    assert (tmp_path / "keys").is_symlink()
    assert stat.S_IMODE((there / "keys").stat().st_mode) == 0o640
    assert [key.id for key in KeyFile(there / "keys").read()] == ["ann", "bob"]


@pytest.mark.parametrize(
    ("owner", "scopes"), [("", ["ask"]), ("a:b", ["ask"]), ("a b", ["ask"]), ("c", ["root"]), ("c", [])]
)
def test_what_cannot_be_made_changes_nothing(tmp_path: Path, owner: str, scopes: list[str]) -> None:
    file = KeyFile(tmp_path / "keys")
    with pytest.raises(KeyFileError):
        file.create(owner, scopes)
    assert not file.path.exists()


def test_an_id_has_one_key(tmp_path: Path) -> None:
    file = KeyFile(tmp_path / "keys")
    file.create("ann")
    with pytest.raises(KeyFileError, match="revoke it first"):
        file.create("ann")
    with pytest.raises(KeyFileError, match="no key 'bob'"):
        file.revoke("bob")


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PHOTOCALL_API_KEYS", raising=False)
    assert main(["keys", "list"]) == 2
    assert "PHOTOCALL_API_KEYS" in capsys.readouterr().err
    monkeypatch.setenv("PHOTOCALL_API_KEYS", str(tmp_path / "keys"))
    assert main(["keys", "create", "ann", "--scopes", "batch"]) == 0
    made = capsys.readouterr().out.strip()
    assert KeyFile(tmp_path / "keys").read()[0].digest == digest_of(made)
    assert main(["keys", "list"]) == 0
    assert capsys.readouterr().out == "ann batch\n"
    assert main(["keys", "revoke", "ann"]) == 0
    assert main(["keys", "revoke", "ann"]) == 2
