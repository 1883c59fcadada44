"""Addresses of servers: what is read, and that no secret is shown."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticdl.shared.addresses import Address, authority, host_and_port, redacted
from elasticdl.shared.bus.nats_bus.connection import addresses_of, redact_url
from elasticdl.shared.errors import UserError

SECRET = "pA5s"
HOSTS = st.sampled_from(["nats", "nats.jobs.svc.cluster.local", "10.0.0.7", "::1", "fd00::a"])
PORTS = st.none() | st.integers(1, 65535)
PASSWORDS = st.text(st.characters(codec="utf-8", exclude_characters=",", exclude_categories=["Cc", "Zs", "Zl", "Zp"]))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"me:{SECRET}@nats:4222", "nats://nats:4222"),
        (f"nats://me:{SECRET}@a:4222, {SECRET}@b:4222,c:1", "nats://a:4222, nats://b:4222, nats://c:1"),
        (f"nats://me:{SECRET}/x@nats:4222", "nats://nats:4222"),
        (f"tls://me:{SECRET}@{SECRET}@nats", "tls://nats"),
        (f"nats://me:{SECRET}%2F@[::1]:4222", "nats://[::1]:4222"),
        (f"nats://me:a,{SECRET}@nats", "(not an address), nats://nats"),
        (f"nats://me:{SECRET}", "(not an address)"),
        (f"me:x://{SECRET}@nats", "nats://nats"),
    ],
)
def test_no_secret_is_shown(text: str, shown: str) -> None:
    assert redact_url(text) == shown
    assert SECRET not in shown


@given(HOSTS, PORTS, PASSWORDS, st.booleans(), st.sampled_from(["", "nats://", "tls://"]))
def test_a_password_may_have_any_characters(
    host: str, port: int | None, password: str, has_user: bool, scheme: str
) -> None:
    secret = f"{SECRET}{password}{SECRET}"
    text = f"{scheme}{'me:' if has_user else ''}{secret}@{authority(host, port)}"
    address = Address.parse(text, scheme="nats")
    assert (address.host, address.port) == (host, port)
    assert SECRET not in str(address) + repr(address) + redacted(f"{text},{text}", scheme="nats")
    assert Address.parse(address.url, scheme="") == address


@given(HOSTS, PORTS)
def test_a_place_is_read_as_it_is_written(host: str, port: int | None) -> None:
    assert host_and_port(authority(host, port)) == (host, port)


@given(st.text())
def test_any_text_is_an_address_or_refused(text: str) -> None:
    try:
        address = Address.parse(text, scheme="nats")
    except ValueError:
        return
    assert address.host and str(address)


@pytest.mark.parametrize("text", ["", "nats://", "a:b", "a:0", "a:65536", "[::1", "::1", "a b", "x:1:2", "[a]:1", "a:"])
def test_what_is_no_address_is_refused_without_showing_it(text: str) -> None:
    with pytest.raises(UserError) as refused:
        addresses_of(f"nats://{SECRET}@{text}")
    assert SECRET not in str(refused.value)


def test_credentials_are_decoded_and_the_same_for_all_servers() -> None:
    first, second = addresses_of("nats://me:p%40ss@a,b:1")
    assert (first.user, first.password, second.user) == ("me", "p@ss", None)
    assert Address.parse("t0ken@a", scheme="nats").password is None
    with pytest.raises(UserError, match="different credentials"):
        addresses_of("nats://me:1@a,nats://me:2@b")
