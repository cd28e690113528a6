"""Know the load that the web UI offers when no workload file is given: real prompts, lengths of a real trace."""

from servebench.workload.model import Arrivals, Lengths, Prompts, PromptSource, Target, TraceSlice, Workload


def interactive_workload() -> Workload:
    """Return it; rates come from the operator, so it has no phases."""
    return Workload(
        name="interactive",
        seed=7,
        target=Target(),
        prompts=Prompts(
            sources=(
                PromptSource(kind="mt-bench", path="builtin:mt-bench"),
                PromptSource(kind="self-instruct", path="builtin:self-instruct"),
            ),
            input_tokens=Lengths(kind="trace", cap=2048, over="clip"),
            output_tokens=Lengths(kind="trace", cap=256, over="clip"),
            lengths_trace=TraceSlice(kind="azure", path="builtin:azure-llm-2023-conv"),
        ),
        arrivals=Arrivals(process="poisson"),
        phases=(),
    )
