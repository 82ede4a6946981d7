"""Context window: how full it is, how large it is, and the scales it is shown on. Pure."""

from .. import event as ev
from ..report import Context, ContextOverhead
from .accumulator import Accumulator
from .usage import context_tokens, find_main_model

ASSUMED_WINDOW = 200_000  # tokens; the window of most models in the recorded versions
CHARS_PER_TOKEN = 4  # rough average for English text
# Levels by the fraction of the window in use, most urgent first.
CONTEXT_LEVELS = (("critical", 0.95), ("refresh", 0.80), ("warn", 0.70))


def context_usage(run: Accumulator, model: str | None, *, measured_only: bool = False) -> Context:
    """The main thread's context after its last request.

    Without a measured request, the last result's usage is taken as an upper bound unless
    `measured_only` is set.
    """
    last = run.last_result
    request = run.main_request

    # The window of the model that answered last, else of the announced one. One reported by the
    # model server comes first: agents guess the windows of other vendors' models.
    models = (last.models or {}) if last is not None else {}
    answered = request.model if request is not None else None
    key = None
    for name in (answered or model, model):
        if key is None:
            key = find_main_model(models, None) if name is None else run.model_keys.find(name)
    share = models.get(key or "")
    candidates = (
        run.context_window,
        share.context_window if share is not None else None,
        run.started.context_window if run.started is not None else None,
    )
    limit = next((window for window in candidates if window is not None and window > 0), None)
    limit_source = "reported"
    named = key or answered or model
    if (
        limit is not None
        and run.context_window is None
        and run.agent.guesses_window(named or "", limit)
    ):
        limit_source = "assumed"
    counted = run.context_report
    if limit is None:
        counted_model = counted.model if counted is not None else None
        limit = run.agent.context_window(model or key or counted_model or "")
        limit_source = "known"

    used = None
    source = "measured"
    if request is not None:
        used = context_tokens(request)
    elif run.last_compaction is not None:
        used = run.last_compaction.after
    if used is None and counted is not None and _is_current(counted, run.last_compaction):
        used = counted.used
    is_measured = run.context_peak >= 0 or run.last_compaction is not None or used is not None
    if not (is_measured or measured_only or last is None or last.usage is None):
        used = context_tokens(last.usage) or None
        source = "measured" if last.turns == 1 else "upper_bound"
    return build_context(
        used=used,
        limit=limit,
        limit_source=limit_source,
        source=source,
        peak=None if run.context_peak < 0 else run.context_peak,
        compactions=run.compactions,
        overhead=context_overhead(counted) if counted is not None else None,
    )


def _is_current(counted: ev.ContextUsage, compaction: ev.Compaction | None) -> bool:
    return compaction is None or compaction.line < counted.line


def context_overhead(counted: ev.ContextUsage) -> ContextOverhead:
    """The parts of the context that are there before the first prompt."""
    names = ContextOverhead.__struct_fields__
    return ContextOverhead(*(getattr(counted, name) for name in names))


def build_context(
    *,
    used: int | None,
    limit: int | None,
    limit_source: str,
    source: str,
    peak: int | None,
    compactions: int,
    overhead: ContextOverhead | None = None,
) -> Context:
    """The context on every scale; a missing limit becomes the assumed one."""
    if limit is None or limit <= 0:
        limit = ASSUMED_WINDOW
        limit_source = "assumed"
    if used is None:
        return Context(
            limit=limit,
            limit_source=limit_source,
            peak=peak,
            compactions=compactions,
            overhead=overhead,
        )
    fraction = used / limit
    hp, status = hp_and_status(fraction)
    return Context(
        used=used,
        limit=limit,
        fraction=fraction,
        hp=hp,
        status=status,
        text=f"{hp:.0f}% HP [{used / 1000:.0f}k/{limit / 1000:.0f}k] — {status}",
        peak=peak,
        source=source,
        limit_source=limit_source,
        compactions=compactions,
        overhead=overhead,
    )


# Of a run that never started.
UNKNOWN_CONTEXT = build_context(
    used=None, limit=None, limit_source="assumed", source="unknown", peak=None, compactions=0
)


def hp_and_status(fraction: float) -> tuple[float, str]:
    """Free share of the window in percent; Healthy above 50, Wounded above 25, else CRITICAL."""
    hp = min(100.0, max(0.0, 100 - fraction * 100))
    if hp > 50:
        return hp, "Healthy"
    return hp, "Wounded" if hp > 25 else "CRITICAL"


def context_level(fraction: float | None) -> str | None:
    """The level of CONTEXT_LEVELS that is reached; None below the first."""
    if fraction is None:
        return None
    return next((name for name, threshold in CONTEXT_LEVELS if fraction >= threshold), None)


def prompt_overhead(used: int, prompt: str) -> int:
    """Tokens of a session's first request besides the prompt: system prompt, tools, notes."""
    prompt_tokens = -(-len(prompt) // CHARS_PER_TOKEN)
    return max(0, used - prompt_tokens)
