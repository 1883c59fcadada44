"""Addresses of servers as users write them: the one place that takes them apart and says them without their secrets.

``[SCHEME://][USER[:PASSWORD]@]HOST[:PORT][/PATH]``. The last ``@`` ends the credentials, so a password may have any
characters, percent-encoded or not. An IPv6 address as HOST stands in brackets.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from urllib.parse import quote, unquote

PORT_MAX = 65535


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """One server. ``str()`` gives it without credentials.

    Attributes:
        scheme: in lower case.
        host: a name or an IP address, without brackets.
        port: None: not given.
        path: from the first slash behind the host on.
        user: decoded; None: no credentials are given.
        password: decoded; None: ``user`` is a token.
    """

    scheme: str
    host: str
    port: int | None = None
    path: str = ""
    user: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)

    @classmethod
    def parse(cls, text: str, *, scheme: str) -> Address:
        """Read an address; ``scheme``: what it has if it names none.

        Raises:
            ValueError: it is not valid. The message has no part of the text, which may be secret.
        """
        given, separator, rest = text.strip().partition("://")
        if not given.isalnum():  # The password has ``://``.
            given, separator, rest = "", "", text.strip()
        credentials, at, place = rest.rpartition("@")
        server, slash, path = place.partition("/")
        host, port = host_and_port(server)
        user, colon, password = credentials.partition(":")
        return cls(
            scheme=(given if separator else scheme).lower(),
            host=host,
            port=port,
            path=slash + path,
            user=unquote(user) if at else None,
            password=unquote(password) if at and colon else None,
        )

    def __str__(self) -> str:
        return f"{self.scheme}://{self.place}{self.path}"

    @property
    def place(self) -> str:
        """``host:port``, or the host alone if no port is given."""
        return authority(self.host, self.port)

    @property
    def url(self) -> str:
        """The address with its credentials, percent-encoded."""
        if self.user is None:
            return str(self)
        password = "" if self.password is None else f":{quote(self.password, safe='')}"
        return f"{self.scheme}://{quote(self.user, safe='')}{password}@{self.place}{self.path}"

    def at(self, host: str, port: int) -> Address:
        """The same with another place, for a forwarded port."""
        return replace(self, host=host, port=port)


def authority(host: str, port: int | None) -> str:
    """``host:port`` with brackets around an IPv6 address."""
    bracketed = f"[{host}]" if ":" in host else host
    return bracketed if port is None else f"{bracketed}:{port}"


def redacted(text: str, *, scheme: str) -> str:
    """Addresses separated by commas, for people to read: without credentials, and without what is no address."""

    def shown(each: str) -> str:
        try:
            return str(Address.parse(each, scheme=scheme))
        except ValueError:
            return "(not an address)"

    return ", ".join(shown(each) for each in text.split(","))


def host_and_port(authority: str) -> tuple[str, int | None]:
    """The inverse of ``authority``."""
    if authority.startswith("["):
        host, bracket, port = authority[1:].partition("]")
        if not bracket or (port and not port.startswith(":")) or ":" not in host:
            raise ValueError("half of a pair of brackets, or no IPv6 address in it")
        port = port[1:] if port else ""
    else:
        host, colon, port = authority.partition(":")
        if colon and not port:
            raise ValueError("no port behind the colon")
    if not host or any(character.isspace() or character in "?#" for character in host):
        raise ValueError("no host")
    if port and not (port.isascii() and port.isdigit() and 0 < int(port) <= PORT_MAX):
        raise ValueError("no port")
    return host, int(port) if port else None
