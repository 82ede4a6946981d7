"""Notifications about runs: their text, and sending it to the services that apprise knows."""

from typing import TYPE_CHECKING, Any, NamedTuple

from ..codec.redact import redact, redact_service_url
from ..errors import StenoError
from ..event import Alert
from ..report import Report
from ..views.formatting import (
    clean_lines,
    format_compact,
    format_count,
    format_duration,
    format_money,
)
from ..views.summary import verdict_reason
from ..views.timeline import alert_text

if TYPE_CHECKING:
    import apprise

BUDGET_KINDS = ("cost", "tokens")  # of alerts
MAX_REASON_CHARS = 500
SOCKET_TIMEOUT_SECONDS = 4.0


class Notification(NamedTuple):
    """One notification, in plain text without secrets."""

    title: str
    body: str
    is_failure: bool


def run_message(report: Report) -> Notification:
    """How a run ended, what it took, and what to do next."""
    name = report.name or report.run_id
    title = f"steno: {report.verdict}{f' ({name})' if name else ''}"
    facts = [
        report.agent,
        format_money(report.cost.usd),
        f"{format_compact(report.tokens.total)} tokens",
        format_duration(report.duration_ms),
        f"{format_count(len(report.files), 'file')} changed",
    ]
    lines = [verdict_reason(report)[:MAX_REASON_CHARS], ", ".join(filter(None, facts))]
    lines += [f"next: {report.hint}"] if report.hint else []
    lines += [f"run: {report.run_id}"] if report.run_id else []
    lines += [f"folder: {report.cwd}"] if report.cwd else []
    return Notification(_safe(title), _safe("\n".join(lines)), not report.ok)


def budget_message(alert: Alert, name: str | None) -> Notification:
    """A budget of a run that is still active has reached a level."""
    title = f"steno: budget{f' ({name})' if name else ''}"
    return Notification(_safe(title), _safe(alert_text(alert)), True)


def _safe(text: str) -> str:
    return clean_lines(redact(text))


class NotificationServices:
    """The services of apprise URLs. StenoError, without the URL's secrets, if one is unknown."""

    def __init__(self, urls: tuple[str, ...]) -> None:
        import apprise
        from apprise.logger import logger

        logger.disabled = True  # it would print; results have the messages
        asset = apprise.AppriseAsset(app_id="steno", storage_mode="memory", async_mode=False)
        self._services = [(url, _service(url, asset)) for url in urls]

    def send(self, message: Notification) -> list[str]:
        """Send to all services, one after another; the failures."""
        import apprise

        kind = apprise.NotifyType.FAILURE if message.is_failure else apprise.NotifyType.SUCCESS
        failures = []
        for url, service in self._services:
            try:
                is_sent = service.notify(
                    body=message.body,
                    title=message.title,
                    notify_type=kind,
                    body_format=apprise.NotifyFormat.TEXT,
                )
                reason = "not accepted or not reachable"
            except Exception as error:  # of a plugin: a notification must not end the command
                is_sent = False
                reason = type(error).__name__
            if not is_sent:
                failures.append(f"notification to {redact_service_url(url)} failed: {reason}")
        return failures


def _service(url: str, asset: "apprise.AppriseAsset") -> Any:
    import apprise

    service = apprise.Apprise.instantiate(url, asset=asset, suppress_exceptions=True)
    if service is None:
        raise StenoError(
            f"--notify {redact_service_url(url)}: not a valid URL of a notification service; "
            "expected for example ntfy://TOPIC, slack://..., mailto://... or json://HOST/PATH"
        )
    service.socket_connect_timeout = SOCKET_TIMEOUT_SECONDS
    service.socket_read_timeout = SOCKET_TIMEOUT_SECONDS
    return service
