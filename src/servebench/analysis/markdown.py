"""Know how a run reads in Markdown (`summary.md`), to be pasted into an issue or a pull request."""

from servebench.analysis.digest import Digest
from servebench.analysis.numbers import UNDEFINED, bounds, count, significant
from servebench.analysis.render import as_markdown, markdown_text
from servebench.analysis.words import STATE_GLYPHS, verdict_glyph, verdict_words


def summary_markdown(found: Digest) -> str:
    """Return verdict, objectives, counts, findings and the percentile table."""
    manifest, counts = found.manifest, found.counts
    verdict = manifest.verdict
    title = "no verdict" if verdict is None else f"{verdict_glyph(verdict)} {verdict_words(verdict)}"
    model = f" on {markdown_text(found.model)}" if found.model else ""
    lines = [f"**{title}**: {markdown_text(manifest.name)}{model}, run {markdown_text(manifest.run_id)}", ""]
    lines += [f"- {markdown_text(reason)}" for reason in (verdict.reasons if verdict else ())]
    lines += [
        f"- {count(counts.rows)} measured requests: {count(counts.ok)} ok, {count(counts.failed)} failed, "
        f"{count(counts.cancelled)} cancelled, {count(counts.shed)} shed; {count(counts.lost)} lost, "
        f"{count(counts.late)} late",
        *(f"- {markdown_text(sentence)}" for sentence in found.standouts),
        "",
    ]
    if found.objectives:
        lines += ["| objective | measured | unit | 95 % interval | state |", "| --- | ---: | --- | --- | --- |"]
        lines += [
            f"| {result.sentence} | {significant(result.measured)} | {result.metric.unit} "
            f"| {bounds(result.lo, result.hi)} | {STATE_GLYPHS[result.state]} {result.state} |"
            for result in found.objectives
        ]
        lines.append("")
    note = f"Latency of ok requests; {UNDEFINED}: undefined, or too few samples."
    return "\n".join([*lines, as_markdown(found.table), note]) + "\n"
