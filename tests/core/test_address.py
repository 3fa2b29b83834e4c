"""Text becomes a path or an address of an object store at the door, and nothing of it is lost."""

import pickle
import traceback
from pathlib import Path

import pytest
from pivot.core.errors import ConfigError, masked, printable
from pivot.core.storage import Url, parse_address
from pivot.models.service import Service


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


SECRET = "Hush4Secret9Hush4Secret9"


@pytest.mark.parametrize(
    "text",
    [
        f"s3://AKIAID:{SECRET}@bucket/x",
        f"az://container/x?sv=1&sig={SECRET}",
        f"tcp://me:{SECRET}@scheduler:8786",
        f"ray://me:{SECRET}@head:10001",
        f"http://me:{SECRET}@127.0.0.1:9000",
        f"https://{SECRET}@host/v1",
        f"https://host/v1?api-key={SECRET}",
        f"https://host/v1?a=1&access_token={SECRET}&b=2",
        f"https://host/v1?X-Amz-Signature={SECRET}",
        f"https://host/v1/sk-{SECRET}/chat",
        f"sk-proj-{SECRET}",
        f"hf_{SECRET}",
        f"gsk_{SECRET}",
        f"ghp_{SECRET}",
        f"nvapi-{SECRET}",
        f"redirects to 'https://me:{SECRET}@other/v1'",
        f"postgresql://me:{SECRET}@db/prefect (refused)",
        f"redis://:{SECRET}@cache:6379/0",
        f"one http://a:{SECRET}@x and another http://b:{SECRET}@y",
        f"https://host/x?password={SECRET}#part",
    ],
)
def test_no_secret_of_an_address_is_in_a_message_or_on_a_terminal(text: str) -> None:
    error = ConfigError(f"found {text}, expected something else")
    assert SECRET not in str(error) + repr(error) + str(pickle.loads(pickle.dumps(error)))
    assert SECRET not in printable(f"reading {text} ...")
    with pytest.raises(ConfigError) as refused:
        parse_address(text if "://" in text else f"https://{text}")
    assert SECRET not in "".join(traceback.format_exception(refused.value))
    with pytest.raises(ConfigError) as not_served:
        Service(base_url=f"{text}?key={SECRET}" if "://" in text else f"https://host/{text}")
    assert SECRET not in "".join(traceback.format_exception(not_served.value))


@pytest.mark.parametrize(
    "text",
    ["me@host", "s3://bucket/a@b", "hf-internal-testing/tiny-random", "?token_count=3", "task-1234567890123456789"],
)
def test_other_texts_stay(text: str) -> None:
    assert masked(text) == text
