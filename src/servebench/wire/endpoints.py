"""Know which dialects there are, by the name that a workload file uses."""

from collections.abc import Mapping
from types import MappingProxyType

from servebench.wire.endpoint import Endpoint
from servebench.wire.openai_chat import OPENAI_CHAT
from servebench.wire.openai_completions import OPENAI_COMPLETIONS

ENDPOINTS: Mapping[str, Endpoint] = MappingProxyType(
    {endpoint.name: endpoint for endpoint in (OPENAI_CHAT, OPENAI_COMPLETIONS)}
)
