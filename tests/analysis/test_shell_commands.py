"""Shell commands that only read (V1: a question after nothing but reading is `interactive`)."""

from shlex import quote

import pytest
from msgspec import Raw
from msgspec.json import encode

from steno.analysis.shell_commands import MAX_COMMAND_CHARS, input_only_reads, only_reads
from tests.support.claude_lines import answer, assistant, call, init, report, result

READING = [
    "cat README.md",
    "/bin/bash -lc 'cat src/app.py'",
    '/bin/bash -lc "grep -n \\"it\'s\\" src/app.py | head -5"',
    "ls -la src && rg -n 'def |class ' src | head -20",
    "sed -n '1,200p' src/app.py",
    "sed -n '/^def /p;/^class /p' a.py",
    "sed -ne 10p -e '$p' a.py",
    "sed 's/foo/bar/g' a.py | nl -ba",
    "find . -name '*.py' -not -path './.git/*' | xargs wc -l",
    "find . -type f 2>/dev/null | sort | uniq -c",
    "git status --short; git log --oneline -5",
    "git --no-pager diff HEAD~1 -- src/app.py",
    "git -C /p show HEAD:src/app.py",
    "git branch -a",
    "git branch --list 'fix/*'",
    "git remote -v",
    "git grep -n foo",
    "cd src && pwd && wc -l *.py",
    "cat a.txt > /dev/null 2>&1",
    "rg foo 2>&1 | tail -n 20",
    "cat < a.txt",
    "awk -F: '{print $1}' /etc/passwd",
    "awk 'NR>=10 && NR<=20' a.py",
    'echo "$HOME" && printenv PATH',
    "cat a.py # ; rm b",
    "set -euo pipefail\nls\n",
    "ls \\\n  src",
    "node --version",
    "command -v rg",
    "xargs -0 -n1 grep -l foo < list",
    "test -f a.txt || echo missing",
    "rg '[;&|<>`$]' src",
]
WORKING = [
    "",
    "   ",
    "make test",
    "rm -rf build",
    "echo x > a.txt",
    "echo x >> a.txt",
    "echo x >| a.txt",
    "echo x >& a.txt",
    "echo x &> a.txt",
    "cat <> a.txt",
    "cat a.txt 2>errors",
    "echo shell > byshell.txt; git status --short",
    "cat a.txt | tee b.txt",
    "cat a; rm b",
    "cat a && npm install",
    "cat a || rm b",
    "cat a\nrm b",
    "cat a & rm b",
    "cat $(rm b)",
    'cat "$(rm b)"',
    'cat "\\\\$(rm b)"',
    "cat `rm b`",
    'cat "`rm b`"',
    "cat <(rm b)",
    "(rm b)",
    "{ rm b; }",
    "cat() { rm b; }; cat",
    "for f in *; do rm $f; done",
    "if true; then rm b; fi",
    "! rm b",
    "X=1 cat a",
    "PAGER='rm b' git log",
    "./cat a",
    "/tmp/bin/cat a",
    "sudo cat a",
    "$CMD a",
    "c\\at() b",
    "find . -delete",
    "find . -name x -exec rm {} +",
    "find . '|' cat -delete",
    "find . {-delete,-print}",
    "find . -fprint out",
    "sed -i s/a/b/ a.txt",
    "sed -n 1p a.txt -i",
    "sed -ni 1p a.txt",
    "sed 'w out' a.txt",
    "sed -n '1p;w out' a.txt",
    "sed -n '1p\nw out' a.txt",
    "sed 's/a/b/w out' a.txt",
    "sed 's/a/rm b/e' a.txt",
    "sed 's/a\\/b/c/w out' a.txt",
    "sed '1e rm b' a.txt",
    "sed -f script a.txt",
    "sed",
    "awk '{print > \"out\"}' a.txt",
    "awk '{system(\"rm b\")}' a.txt",
    "awk '{print | \"sh\"}' a.txt",
    "awk -f script a.txt",
    "awk -i inplace '{print}' a.txt",
    "sort -o out a.txt",
    "sort -uo out a.txt",
    "sort --out=out a.txt",
    "uniq a.txt out",
    "xxd a.bin out",
    "rg --pre 'rm' foo",
    "fd -x rm",
    "fd --exec-batch rm",
    "tree -o out",
    "echo b | xargs rm",
    "echo -delete | xargs find .",
    "xargs sh -c 'rm b'",
    "git commit -am x",
    "git checkout -- a.py",
    "git branch new",
    "git branch -a -D old",
    "git branch -D old",
    "git tag v1",
    "git remote add x y",
    "git remote -v add x y",
    "git stash",
    "git reflog expire --all",
    "git config user.name x",
    "git diff --output=out",
    "git diff --outp out",
    "git log --ou=out",
    "git -c alias.x='!rm b' x",
    "git -c core.pager='rm b' log",
    "git grep -Orm foo",
    "git grep --open-files-in-pager=rm foo",
    "git",
    "env rm b",
    "date -s 2020-01-01",
    "bash script.sh",
    "bash -c 'rm b'",
    "bash -c \"bash -c 'cat a; rm b'\"",
    "bash -c 'cat a' && rm b",
    "python -c 'print(1)'",
    "node --version; rm b",
    "curl https://example.com",
    # Quoting that hides an operator, or only seems to.
    "cat $'a\\'' ; rm b; echo '",
    "cat a #'\nrm b\n'",
    "cat 'a' ''; rm b",
    'cat "a\\"; rm b; echo """ ; rm c',
    "cat << /dev/null\ncat '\n/dev/null\nrm b #'",
    "cat <<EOF > out\nx\nEOF",
    "cat & /dev/null",
    "cat 'a",
    "cat a >",
    "cat a\rrm b",
    "cat a\x00rm b",
    "cat a\u00a0b\u2028rm b",
]


@pytest.mark.parametrize("command", READING)
def test_reading(command: str) -> None:
    assert only_reads(command)


@pytest.mark.parametrize("command", WORKING)
def test_work(command: str) -> None:
    assert not only_reads(command)


@pytest.mark.parametrize(
    ("input_", "expected"),
    [
        ({"command": "ls"}, True),
        ({"cmd": "ls"}, True),
        ({"command": ["bash", "-lc", "cat 'a b' | wc"]}, True),
        ({"command": ["bash", "-lc", "rm 'a b'"]}, False),
        ({"command": ["ls", 1]}, False),
        ({"command": None, "cmd": "ls"}, False),
        ({"command": 7}, False),
        ({"chars": "y\n"}, False),
        ("ls", False),
        (None, False),
        ([], False),
    ],
)
def test_an_input_without_a_command_is_work(input_: object, expected: bool) -> None:
    assert input_only_reads(Raw(encode(input_))) is expected


def test_unreadable_input_is_work() -> None:
    assert not input_only_reads(Raw(b'{"command": "ls'))


def test_a_long_command_is_work() -> None:
    assert only_reads("cat " + "a" * (MAX_COMMAND_CHARS - 4))
    assert not only_reads("cat " + "a" * MAX_COMMAND_CHARS)


def test_a_shell_in_too_many_shells_is_work() -> None:
    command = "ls"
    for _ in range(3):
        command = f"sh -c {quote(command)}"
    assert only_reads(command)
    assert not only_reads(f"sh -c {quote(command)}")


# -- the verdict -------------------------------------------------------------------------------


def verdict_after(*commands: str, is_error: bool = False, final: str = "Which one?") -> str:
    """The verdict of a run that used a shell and ended with this text."""
    lines = [init()]
    for number, command in enumerate(commands):
        lines.append(assistant(call(f"toolu_{number}", "Bash", command=command)))
        lines.append(answer(f"toolu_{number}", "ok", is_error))
    return report(*lines, result(final, num_turns=len(commands) + 1)).verdict


def test_v5_a_question_after_nothing_but_reading_is_a_hang() -> None:
    assert verdict_after("cat a.py", "rg foo | head") == "interactive"


def test_v5_a_question_after_one_command_that_works_is_no_hang() -> None:
    assert verdict_after("cat a.py", "make", "ls") == "success"
    assert verdict_after("cat a.py", "make", "ls", is_error=True) == "interactive"


def test_v5_an_answer_after_reading_is_a_success() -> None:
    assert verdict_after("cat a.py", final="It adds two numbers.") == "success"
