"""Know which dialects there are, by the name that a workload file uses."""

from collections.abc import Mapping
from types import MappingProxyType

from servebench.wire.anthropic_messages import ANTHROPIC_MESSAGES
from servebench.wire.endpoint import Endpoint
from servebench.wire.kserve_v2 import KSERVE_V2
from servebench.wire.ollama_chat import OLLAMA_CHAT
from servebench.wire.openai_chat import OPENAI_CHAT
from servebench.wire.openai_completions import OPENAI_COMPLETIONS
from servebench.wire.openai_embeddings import OPENAI_EMBEDDINGS
from servebench.wire.openai_responses import OPENAI_RESPONSES
from servebench.wire.tgi_generate import TGI_GENERATE
from servebench.wire.triton_generate import TRITON_GENERATE

_ALL = (
    OPENAI_CHAT,
    OPENAI_COMPLETIONS,
    OPENAI_RESPONSES,
    OPENAI_EMBEDDINGS,
    ANTHROPIC_MESSAGES,
    TGI_GENERATE,
    TRITON_GENERATE,
    KSERVE_V2,
    OLLAMA_CHAT,
)

ENDPOINTS: Mapping[str, Endpoint] = MappingProxyType({endpoint.name: endpoint for endpoint in _ALL})
