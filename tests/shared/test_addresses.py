"""Where outgoing calls may go: every kind of address and URL that must not be called, and those that may."""

from __future__ import annotations

from ipaddress import ip_address, ip_network

import pytest

from photocall.addresses import AddressRules, BadUrl, RefusedAddress, Unresolved, Url, parse_url, resolved

PUBLIC = ["93.184.216.34", "1.1.1.1", "2606:4700:4700::1111", "2a00:1450:4001:82b::200e"]
FORBIDDEN = [
    "0.0.0.0", "10.0.0.1", "100.64.0.1", "100.100.100.200", "127.0.0.1", "127.255.255.254", "168.63.129.16",
    "169.254.169.254", "172.16.0.1", "172.31.255.255", "192.0.0.192", "192.0.2.1", "192.88.99.1", "192.168.0.1",
    "198.18.0.1", "198.51.100.1", "203.0.113.1", "224.0.0.1", "239.255.255.250", "240.0.0.1", "255.255.255.255",
    "::", "::1", "::7f00:1", "::ffff:127.0.0.1", "::ffff:93.184.216.34", "::ffff:0:7f00:1", "64:ff9b::7f00:1",
    "64:ff9b::5db8:d822", "64:ff9b:1::1", "100::1", "2001::1", "2001:db8::1", "2002:7f00:1::1", "2002:5db8:d822::1",
    "fc00::1", "fd00:ec2::254", "fe80::1", "fec0::1", "ff02::1", "3fff::1",
]  # fmt: skip


@pytest.mark.parametrize("text", PUBLIC)
def test_public_addresses_may_be_called(text: str) -> None:
    assert AddressRules().permits(ip_address(text))


@pytest.mark.parametrize("text", FORBIDDEN)
def test_other_addresses_may_not(text: str) -> None:
    assert not AddressRules().permits(ip_address(text))


def test_allowed_networks_and_plain_http() -> None:
    rules = AddressRules((ip_network("10.1.0.0/16"),))
    assert rules.permits(ip_address("10.1.2.3"), "http")
    assert not rules.permits(ip_address("10.2.0.1"))
    assert not rules.permits(ip_address("::ffff:10.1.2.3"))
    assert not rules.permits(ip_address("1.1.1.1"), "http")
    assert rules.permits(ip_address("1.1.1.1"))


def test_one_forbidden_address_of_a_name_is_enough() -> None:
    url, rules = parse_url("https://rebound.example/x"), AddressRules()
    with pytest.raises(RefusedAddress):
        rules.address_of(url, lambda host, port: ["93.184.216.34", "127.0.0.1"])
    assert rules.address_of(url, lambda host, port: ["93.184.216.34", "1.1.1.1"]) == "93.184.216.34"
    with pytest.raises(Unresolved):
        rules.address_of(url, lambda host, port: [])


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "[::1]", "[::ffff:7f00:1]", "localhost", "127.1", "0x7f.1", "2130706433"]
)
def test_ways_to_write_loopback(host: str) -> None:
    """A number in an odd notation is a name to us; what the system's resolver makes of it is what is checked."""
    with pytest.raises((RefusedAddress, Unresolved)):
        AddressRules().address_of(parse_url(f"https://{host}/"))


def test_a_name_that_does_not_exist() -> None:
    with pytest.raises(Unresolved):
        resolved("nothing.invalid", 443)


def test_a_url_is_read() -> None:
    assert parse_url("https://Photos.Example:8443/a/b%20c?d=e#f") == Url(
        "https", "photos.example", 8443, "/a/b%20c?d=e"
    )
    assert parse_url("https://photos.example").authority == "photos.example"
    assert parse_url("https://[2606:4700::1]:444/").authority == "[2606:4700::1]:444"
    assert str(parse_url("https://photos.example:443/x?y")) == "https://photos.example/x?y"
    assert parse_url("http://intranet/x", plain_http=True).port == 80


@pytest.mark.parametrize(
    "text",
    [
        "http://photos.example/x", "ftp://photos.example/x", "file:///etc/passwd", "gopher://x/", "photos.example/x",
        "https://", "https:///x", "https://user@photos.example/", "https://photos.example@127.0.0.1/",
        "https://photos.example:99999/", "https://photos.example:0/", "https://[::1/", "https://photos.example/a b",
        "https://photos.example/\r\nHost: x", "https://photos.exam\tple/", "https://photos.example\\@127.0.0.1/",
        "https://ph\u00f6tos.example/", "https://photos.example/" + "x" * 2048,
    ],
)  # fmt: skip
def test_a_url_that_is_not_called(text: str) -> None:
    with pytest.raises(BadUrl):
        parse_url(text)
