"""The real Claude Code 2.1.325 with steno's status line, in a real terminal."""

import json
import time
from contextlib import closing
from pathlib import Path

from steno.ledger.protocol import now_ms
from steno.ledger.queries.limits import list_limits
from steno.ledger.store import open_ledger
from tests.support.agent_programs import search_path
from tests.support.claude import clean_env, installed
from tests.support.modelserver import ModelServer, say
from tests.support.scripted_place import Place
from tests.support.tmux import Terminal, require_tmux


def limit_headers(five_hour_reset: int, seven_day_reset: int) -> dict[str, str]:
    """The headers by which the service reports the limits of a subscription."""
    values = {
        "status": "allowed",
        "reset": str(five_hour_reset),
        "representative-claim": "five_hour",
        "5h-utilization": "0.37",
        "5h-reset": str(five_hour_reset),
        "7d-utilization": "0.62",
        "7d-reset": str(seven_day_reset),
    }
    return {f"anthropic-ratelimit-unified-{name}": text for name, text in values.items()}


def test_claude_code_shows_the_line_and_its_limits_are_stored(tmp_path: Path) -> None:
    """Installed by `--install`; with a subscription token, which is not a real one."""
    require_tmux()
    program = installed("2.1.325")
    place = Place(tmp_path)
    ledger = place.folder / "ledger.db"
    open_ledger(str(ledger)).close()
    assert place.steno("statusline", "--install", "--yes").returncode == 0
    trusted = {"hasTrustDialogAccepted": True, "hasCompletedProjectOnboarding": True}
    settings = {
        "hasCompletedOnboarding": True,
        "theme": "dark",
        "projects": {str(place.work): trusted},
    }
    (place.home / ".claude.json").write_text(json.dumps(settings))
    now = int(time.time())
    headers = limit_headers(now + 9_000, now + 300_000)
    with ModelServer(say("Two and two is four.", headers=headers)) as model:
        environ = clean_env(place.home, model.url)
        del environ["ANTHROPIC_API_KEY"]
        environ |= {
            "CLAUDE_CODE_OAUTH_TOKEN": "sk-ant-oat01-not-a-token",
            "PATH": search_path(program),
            "STENO_LEDGER": str(ledger),
            "XDG_DATA_HOME": place.environ["XDG_DATA_HOME"],
            "NO_COLOR": "1",
        }
        with Terminal(place.work, [program], environ, columns=150) as terminal:
            terminal.wait("context ░░░░░░░░ 0% of 1.00M · $0.00 session · $0.00 today")
            terminal.press("what is two and two?")
            terminal.wait("two and two?")
            terminal.press("Enter")
            terminal.wait("Two and two is four.")
            lines = terminal.wait("7d 62% until")
    (line,) = [line.strip() for line in lines if "7d 62%" in line]
    assert line.startswith("Sonnet 5.5 · context █░░░░░░░ 1% of 1.00M · 5h 37% until ")
    assert line.endswith(" · <$0.01 session · <$0.01 today")
    with closing(open_ledger(str(ledger))) as store:
        limits = [(one.window, one.utilization, one.source) for one in list_limits(store, now_ms())]
    assert limits == [("five_hour", 0.37, "statusline"), ("seven_day", 0.62, "statusline")]
