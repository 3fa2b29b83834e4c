"""Text becomes a path or an address of an object store at the door, and nothing of it is lost."""

import pickle
from pathlib import Path

import pytest
from pivot.core.errors import ConfigError
from pivot.core.storage import Url, parse_address


@pytest.mark.parametrize("text", ["runs/first", "/abs/x", ".", "a:b", "odd:name/x", "s3", "s3/bucket"])
def test_what_is_no_address_is_a_path(text: str) -> None:
    assert parse_address(text) == Path(text)


@pytest.mark.parametrize("text", ["s3://bucket/a/b", "gs://bucket", "az://container/x y/ü,*"])
def test_an_address_keeps_its_text(text: str) -> None:
    address = parse_address(text)
    assert isinstance(address, Url)
    assert str(address) == text
    assert parse_address(f"{text}/") == address == parse_address(address) == pickle.loads(pickle.dumps(address))
    assert str(address / "dataset") == f"{text}/dataset"
    assert (address / "dataset").parent == address
    assert (address / "dataset").name == "dataset"
    assert text.startswith(address.scheme)


@pytest.mark.parametrize(
    "text", ["s3:/bucket/x", "s3:bucket", "s3://", "s3:///x", "gs://b//x", "az://b/../x", "s3://b/x?y"]
)
def test_half_an_address_is_refused(text: str) -> None:
    with pytest.raises(
        ConfigError, match=r"is not an address of an object store; expected a folder, or .*s3://bucket/folder"
    ):
        parse_address(text)


@pytest.mark.parametrize("text", ["https://host/x", "hf://datasets/x", "file:///x", "S3://bucket/x"])
def test_an_address_of_something_else_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"cannot hold a store \(unknown scheme"):
        parse_address(text)
