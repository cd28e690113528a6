"""Know how all requests to one target are addressed: what to connect to, and whatever each head holds.

The load and every question before it take their heads from here, so that what answers one answers the other.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from servebench.core.headers import merged
from servebench.core.target import Target
from servebench.wire.request import Opening, render_opening, render_question
from servebench.wire.tunnel import Tunnel


@dataclass(frozen=True, slots=True, kw_only=True)
class Approach:
    """A target, the proxy before it (None = none), and the headers of every request, keys among them.

    A proxy reads requests to an http target whole; to an https one it opens a tunnel. The credential of the address
    stands where no other Authorization is given.
    """

    target: Target
    proxy: Target | None = None
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def entrance(self) -> Target:
        """What to connect to: the proxy, else the target."""
        return self.target if self.proxy is None else self.proxy

    @property
    def secure(self) -> bool:
        """Whether TLS is spoken to the target."""
        return self.target.scheme == "https"

    @property
    def has_key(self) -> bool:
        """Whether requests carry a credential for the target."""
        return self.target.authorization is not None or any(name.lower() == "authorization" for name in self.headers)

    def tunnel(self) -> Tunnel | None:
        """Return the tunnel that a new connection begins with; None where none is needed."""
        if self.proxy is None or not self.secure:
            return None
        return Tunnel(self.target.authority, self.proxy.authorization)

    def question(self, path: str, head: Mapping[str, str]) -> bytes:
        """Return a GET request for `path`, query included, as it goes over the connection.

        `head` is what this request holds besides; the target's headers win. Raises ValueError for what cannot be
        written; the message holds no value.
        """
        path, headers = self._addressed(path, head)
        return render_question(path, self.target.netloc, headers)

    def opening(self, path: str, head: Mapping[str, str]) -> Opening:
        """Return what all POST requests for `path` begin with; else like `question`."""
        path, headers = self._addressed(path, head)
        return render_opening("POST", path, self.target.netloc, headers)

    def _addressed(self, path: str, head: Mapping[str, str]) -> tuple[str, dict[str, str]]:
        """Return the request target and all headers, as target or proxy wants them."""
        target, proxy = self.target, self.proxy
        known = {} if target.authorization is None else {"Authorization": target.authorization}
        headers = merged(head, known, self.headers)
        if proxy is not None and not self.secure:
            path = f"http://{target.netloc}{path}"
            if proxy.authorization is not None:
                headers = merged(headers, {"Proxy-Authorization": proxy.authorization})
        return path, headers
