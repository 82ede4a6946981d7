"""The screens of `steno top`, on textual. All texts are sanitized lines, never markup."""

import shlex
from pathlib import Path
from typing import ClassVar

from rich.text import Text
from textual import work
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.events import Resize
from textual.screen import ModalScreen, Screen
from textual.widgets import Footer, Input, OptionList, RichLog, Static
from textual.widgets.option_list import Option

from ..errors import StenoError
from ..runner.resume import DEFAULT_PROMPT, resume_in_background
from ..runner.run_registry import get_active_run, send_request
from ..views.table import PageStyle
from .detail import PAGES, page_lines
from .snapshot import Snapshot, TopRun, gauge_lines, load_snapshot, run_lines

REFRESH_SECONDS = 2.0
MARGIN_COLUMNS = 4  # padding and scroll bar
LIST_ACTIONS = ("move", "open", "filter", "clear_filter", "stop", "resume")
HELP = """Keys of the list
  j, k, up, down   move
  g, G             first, last
  Enter            open the run
  /                filter; Escape clears it
  s                stop an active run (asks first)
  r                resume a session (asks first, shows the command)
  ?                this help
  q                quit

Keys of a run
  1 to 5, Tab      summary, conversation, tools, files, context
  j, k, space, b   scroll by line, by page
  g, G             start, end
  q, Escape        back

Press any key."""


class MessageScreen(ModalScreen[bool]):
    """A text, or a question that `y` confirms."""

    CSS = """
    MessageScreen { align: center middle; }
    MessageScreen > Static { width: auto; max-width: 90%; border: round $primary; padding: 1 2; }
    """

    def __init__(self, text: str, is_question: bool = False) -> None:
        super().__init__()
        self._text = text
        self._is_question = is_question
        self._is_closed = False

    def compose(self) -> ComposeResult:
        yield Static(Text(self._text))

    def on_key(self, event: object) -> None:
        key = getattr(event, "key", "")
        if self._is_closed:  # keys typed ahead
            return
        self._is_closed = True
        self.dismiss(self._is_question and key in ("y", "Y"))


class RunActions:
    """What both screens can do with a run."""

    app: "App[None]"

    def stop_run(self, run: TopRun | None) -> None:
        if run is None or not run.is_active:
            self.app.push_screen(MessageScreen("Not an active run: nothing to stop."))
            return
        question = f"Stop run {run.run_id}?  y: stop, any other key: cancel"

        def on_answer(is_confirmed: bool | None) -> None:
            if is_confirmed:
                self.app.push_screen(MessageScreen(_stop(run.run_id)))

        self.app.push_screen(MessageScreen(question, is_question=True), on_answer)

    def resume_run(self, run: TopRun | None, ledger: str | None) -> None:
        """Ask, then resume a finished run in the background; also show the command."""
        if run is None or run.session_id is None:
            self.app.push_screen(MessageScreen("This run has no session to resume."))
            return
        words = ["steno", "run", "--agent", run.agent, "--resume", run.session_id]
        if run.cwd:
            words += ["--cwd", run.cwd]
        command = f"{shlex.join(words)} PROMPT"
        if run.is_active:
            self.app.push_screen(MessageScreen(f"Still active. To resume it later:\n\n{command}"))
            return
        question = (
            f'Resume this session in the background with the prompt "{DEFAULT_PROMPT}"?\n'
            f"y: resume, any other key: cancel\n\nWith another prompt:\n\n{command}"
        )

        def on_answer(is_confirmed: bool | None) -> None:
            if is_confirmed:
                self.app.push_screen(MessageScreen(_resume(run, ledger)))

        self.app.push_screen(MessageScreen(question, is_question=True), on_answer)


def _stop(run_id: str) -> str:
    info = get_active_run(run_id)
    if info is None:
        return "The run has already ended."
    try:
        answer = send_request(info.socket or "", {"do": "stop"})
    except StenoError as error:
        return f"Not stopped: {error}"
    return "Stopping." if answer.get("ok") else f"Not stopped: {answer.get('error')}"


def _resume(run: TopRun, ledger: str | None) -> str:
    try:
        resume_in_background(run.session_id, run.agent, run.cwd, ledger, DEFAULT_PROMPT)
    except StenoError as error:
        return f"Not resumed: {error}"
    return "Resuming: the new run appears at the top of the list."


def _file_size(path: str | None) -> int:
    try:
        return 0 if path is None else Path(path).stat().st_size
    except OSError:
        return 0


def page_style(width: int) -> PageStyle:
    """Lines for a widget of this width, with colours as ANSI codes."""
    columns = max(20, width)
    return PageStyle(columns, columns, has_colour=True)


def as_text(line: str) -> Text:
    """A sanitized line with our own colours; nothing in it is markup."""
    return Text.from_ansi(line, no_wrap=True, overflow="crop")


class RunScreen(RunActions, Screen[None]):
    """One run, page by page."""

    BINDINGS: ClassVar[list[BindingType]] = [
        *(
            Binding(str(number), f"page({number})", name, show=True)
            for number, name in enumerate(PAGES, 1)
        ),
        Binding("tab,l", "next_page", "next page", show=False),
        Binding("j,down", "scroll(1)", show=False),
        Binding("k,up", "scroll(-1)", show=False),
        Binding("space,pagedown", "scroll_page(1)", show=False),
        Binding("b,pageup", "scroll_page(-1)", show=False),
        Binding("g,home", "scroll_to(0)", show=False),
        Binding("G,end", "scroll_to(1)", show=False),
        Binding("s", "stop", "stop", show=False),
        Binding("r", "resume", "resume", show=False),
        Binding("question_mark", "app.help", "help", show=False),
        Binding("q,escape", "back", "back"),
    ]

    def __init__(self, run: TopRun, ledger: str | None) -> None:
        super().__init__()
        self._run = run
        self._ledger = ledger
        self._page = 0
        self._read_bytes = -1  # size of the recording when it was last read

    def compose(self) -> ComposeResult:
        yield Static(id="title")
        yield RichLog(wrap=False, markup=False, highlight=False, auto_scroll=False)
        yield Footer(show_command_palette=False)

    def on_mount(self) -> None:
        self._show()
        if self._run.is_active:
            self.set_interval(REFRESH_SECONDS, self._follow)

    def _follow(self) -> None:
        """Read an active run again if its recording has grown."""
        if self._read_bytes != _file_size(self._run.recording):
            self._load(PAGES[self._page], self.size.width - MARGIN_COLUMNS, is_update=True)

    def on_resize(self, event: Resize) -> None:
        self._show()

    def _show(self) -> None:
        run = self._run
        title = f"{run.run_id}  {run.state}  {run.agent}  {PAGES[self._page]}"
        self.query_one("#title", Static).update(Text(title, style="bold", no_wrap=True))
        self._load(PAGES[self._page], self.size.width - MARGIN_COLUMNS)

    @work(thread=True, exclusive=True)
    def _load(self, page: str, columns: int, is_update: bool = False) -> None:
        self._read_bytes = _file_size(self._run.recording)
        lines = page_lines(self._run, page, self._ledger, page_style(columns))
        self.app.call_from_thread(self._fill, page, lines, is_update)

    def _fill(self, page: str, lines: list[str], is_update: bool) -> None:
        """Replace the lines; an update keeps its place, or stays at the end."""
        if page != PAGES[self._page]:
            return
        log = self.query_one(RichLog)
        top = log.scroll_y if is_update else 0
        is_at_end = is_update and log.is_vertical_scroll_end and log.max_scroll_y > 0
        log.clear()
        for line in lines:
            log.write(as_text(line), expand=True)
        if is_at_end:
            log.scroll_end(animate=False)
        else:
            log.scroll_to(y=top, animate=False)

    def action_back(self) -> None:
        if self.app.screen is self:  # not for keys typed ahead
            self.app.pop_screen()

    def action_page(self, number: int) -> None:
        self._page = number - 1
        self._show()

    def action_next_page(self) -> None:
        self._page = (self._page + 1) % len(PAGES)
        self._show()

    def action_scroll(self, lines: int) -> None:
        self.query_one(RichLog).scroll_relative(y=lines, animate=False)

    def action_scroll_page(self, direction: int) -> None:
        log = self.query_one(RichLog)
        log.scroll_relative(y=direction * max(1, log.size.height - 1), animate=False)

    def action_scroll_to(self, is_end: int) -> None:
        log = self.query_one(RichLog)
        if is_end:
            log.scroll_end(animate=False)
        else:
            log.scroll_home(animate=False)

    def action_stop(self) -> None:
        self.stop_run(self._run)

    def action_resume(self) -> None:
        self.resume_run(self._run, self._ledger)


class TopApp(RunActions, App[None]):
    """The list of runs."""

    ENABLE_COMMAND_PALETTE = False
    CSS = """
    #gauges { padding: 0 1; height: auto; }
    #header { padding: 0 1; color: $text-muted; height: 1; }
    #filter { display: none; border: none; height: 1; padding: 0 1; }
    OptionList { border: none; padding: 0; height: 1fr; }
    OptionList > .option-list--option { padding: 0 1; }
    RichLog { height: 1fr; padding: 0 1; }
    #title { padding: 0 1; height: 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j", "move('cursor_down')", show=False),
        Binding("k", "move('cursor_up')", show=False),
        Binding("g", "move('first')", show=False),
        Binding("G", "move('last')", show=False),
        Binding("enter", "open", "open"),
        # With priority: what is typed right after it belongs to the filter.
        Binding("slash", "filter", "filter", priority=True),
        Binding("escape", "clear_filter", show=False),
        Binding("s", "stop", "stop"),
        Binding("r", "resume", "resume"),
        Binding("question_mark", "help", "help"),
        Binding("q", "quit", "quit"),
    ]

    def __init__(self, ledger: str | None) -> None:
        super().__init__(ansi_color=True)
        self._ledger = ledger
        self._snapshot: Snapshot | None = None
        self._shown: list[TopRun] = []

    def compose(self) -> ComposeResult:
        yield Static(id="gauges")
        yield Static(id="header")
        yield OptionList()
        yield Input(id="filter", placeholder="filter")
        yield Footer(show_command_palette=False)

    def on_mount(self) -> None:
        self._refresh()
        self.set_interval(REFRESH_SECONDS, self._refresh)
        self.query_one(OptionList).focus()

    def on_resize(self, event: Resize) -> None:
        self._render_snapshot()

    @work(thread=True, exclusive=True)
    def _refresh(self) -> None:
        try:
            snapshot = load_snapshot(self._ledger)
        except StenoError as error:
            self.call_from_thread(self._show_error, str(error))
            return
        self.call_from_thread(self._set_snapshot, snapshot)

    def _show_error(self, text: str) -> None:
        self.screen_stack[0].query_one("#gauges", Static).update(Text(text, style="red"))

    def _set_snapshot(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._render_snapshot()

    def _render_snapshot(self) -> None:
        if self._snapshot is None:
            return
        base = self.screen_stack[0]
        style = page_style(self.size.width - MARGIN_COLUMNS)
        gauges = gauge_lines(self._snapshot, style)
        base.query_one("#gauges", Static).update(Text("\n").join(map(as_text, gauges)))
        words = base.query_one("#filter", Input).value
        self._shown = [run for run in self._snapshot.runs if run.matches(words)]
        header, lines = run_lines(self._shown, style)
        if not self._shown:
            header = "No runs match the filter." if words else "No runs yet: steno run PROMPT"
        base.query_one("#header", Static).update(as_text(header))
        self._fill(base.query_one(OptionList), lines)

    def _fill(self, options: OptionList, lines: list[str]) -> None:
        """Replace the lines; the highlighted run stays highlighted."""
        ids = [option.id for option in options.options]
        if ids == [run.run_id for run in self._shown]:
            for run, line in zip(self._shown, lines, strict=True):
                options.replace_option_prompt(run.run_id, as_text(line))
            return
        at = options.highlighted
        selected = None if at is None else ids[at]
        options.clear_options()
        options.add_options(
            Option(as_text(line), id=run.run_id)
            for run, line in zip(self._shown, lines, strict=True)
        )
        new_ids = [run.run_id for run in self._shown]
        if new_ids:
            options.highlighted = new_ids.index(selected) if selected in new_ids else 0

    def _selected(self) -> TopRun | None:
        at = self.screen_stack[0].query_one(OptionList).highlighted
        return self._shown[at] if at is not None and at < len(self._shown) else None

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool:
        """The keys of the list have no effect on other screens, nor does / inside the filter."""
        if action == "filter" and isinstance(self.focused, Input):
            return False
        return action not in LIST_ACTIONS or len(self.screen_stack) == 1

    # -- keys ------------------------------------------------------------------------------------

    def action_move(self, name: str) -> None:
        getattr(self.query_one(OptionList), f"action_{name}")()

    def on_option_list_option_selected(self) -> None:
        self.action_open()

    def action_open(self) -> None:
        run = self._selected()
        if run is not None:
            self.push_screen(RunScreen(run, self._ledger))

    def action_filter(self) -> None:
        field = self.query_one("#filter", Input)
        field.display = True
        self.screen.set_focus(field)  # at once, for text that is typed ahead

    def action_clear_filter(self) -> None:
        field = self.query_one("#filter", Input)
        field.value = ""
        field.display = False
        self.query_one(OptionList).focus()

    def on_input_changed(self) -> None:
        self._render_snapshot()

    def on_input_submitted(self) -> None:
        self.query_one(OptionList).focus()

    def action_stop(self) -> None:
        self.stop_run(self._selected())

    def action_resume(self) -> None:
        self.resume_run(self._selected(), self._ledger)

    def action_help(self) -> None:
        self.push_screen(MessageScreen(HELP))
