"""Made-up secrets: samples of every token format, and of passwords in other places.

Also a recording and a transcript that contain all of them wherever an agent can write something.
"""

import json
import random
import uuid
from collections.abc import Iterator
from pathlib import Path

import msgspec

from steno.codec.token_formats import TOKEN_FORMATS, TokenFormat, parse_rest
from steno.ledger.importer import import_sources
from steno.ledger.store import Store
from steno.recording.format import BackendInfo, Header, Record, encode_record
from steno.report import RunOrigin
from tests.support.claude_lines import answer, assistant, call, init, result, stream, text
from tests.support.transcript_writer import Transcript

DIGITS = "0123456789"
LOWER = "abcdefghijklmnopqrstuvwxyz"
ALNUM = DIGITS + LOWER + LOWER.upper()
CHARACTERS = {
    "digits": DIGITS,
    "hex": "0123456789abcdef",
    "letters": LOWER + LOWER.upper(),
    "lower": DIGITS + LOWER,
    "upper": DIGITS + LOWER.upper(),
    "dashed": f"{DIGITS}{LOWER.upper()}-",
    "alnum": ALNUM,
    "word": f"{ALNUM}_-",
    "dots": f"{ALNUM}_-.",
    "tilde": f"{ALNUM}_-.~",
    "equals": f"{ALNUM}_-.=",
    "base64": f"{ALNUM}+/",
    "plain64": f"{ALNUM}+/",
    "percent": f"{ALNUM}%",
}


def sample(chance: random.Random, form: TokenFormat, prefix: str) -> str:
    """One token of a format."""
    parts, end = parse_rest(form.rest)
    token = prefix
    for part in parts:
        token += part.literal
        if part.alphabet == "uuid":
            token += str(uuid.UUID(int=chance.getrandbits(128)))
        else:
            token += "".join(chance.choices(CHARACTERS[part.alphabet], k=part.length))
    return token + end


def samples(form: TokenFormat, count: int, seed: int = 14) -> Iterator[str]:
    """Some tokens of each prefix of a format; always the same ones."""
    chance = random.Random(f"{seed} {form.kind}")
    for prefix in form.prefixes.split() or [""]:
        for _ in range(count):
            yield sample(chance, form, prefix)


def in_context(form: TokenFormat, token: str) -> str:
    """The token, after the vendor's name if its format needs it."""
    return f'{form.word} = "{token}"' if form.word else token


PEM = """-----BEGIN RSA PRIVATE KEY-----
MIIEowIBAAKCAQEAz0Zq1b7yVn3kQ8wJt5uR2xLp6cHfGd9sAeMiOyTzXvBnKlCj
Qw4rUoPa7sDfGh2jKlZxCvBnM1QwErTyUiOpAsDfGhJkL3ZxCvBn9MqWeRtYuIoP
aS5dFgHj==
-----END RSA PRIVATE KEY-----"""

# Text with a secret, and the secret.
OTHER_SECRETS = (
    ("postgresql://app:s3cr/t@p%40ss@db.example:5432/app", "s3cr/t@p%40ss"),
    ("redis://:plainword@cache.example/0", "plainword"),
    ("https://me@corp.example:letmein9@git.example/x.git", "letmein9"),
    ("curl -sS -u admin:letmein8 https://example.org", "letmein8"),
    ("curl --user 'admin:letmein7' https://example.org", "letmein7"),
    ("sshpass -p letmein6 ssh host", "letmein6"),
    ("Authorization: Basic dXNlcjpodW50ZXIy", "dXNlcjpodW50ZXIy"),
    ("Authorization: Bearer abc.def-123_456", "abc.def-123_456"),
    ("Cookie: session=k3j4h5g6f7d8s9a0", "k3j4h5g6f7d8s9a0"),
    ("X-Auth-Token: 9f8e7d6c5b4a", "9f8e7d6c5b4a"),
    ("password=9hunter2x", "9hunter2x"),  # begins with a digit
    ('password="ab\\"cd efg1"', 'ab\\"cd efg1'),  # an escaped quote
    ("password=letme;in1", "letme;in1"),
    ("password=letme&in2", "letme&in2"),
    ("password=letme,in3", "letme,in3"),
    ("'password' => 'letmein5'", "letmein5"),
    ("export DB_PASSWORD=correcthorse", "correcthorse"),
    ("aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCYzz", "wJalrXUtnFEMI/K7MDENG"),
    ("deploy --api-key letmein4 --verbose", "letmein4"),
    ("- name: DB_PASSWORD\n  value: letmein10", "letmein10"),
    ('{"name": "API_KEY", "value": "q7Zt9LmWx2Vb8KdPfR4s"}', "q7Zt9LmWx2Vb8KdPfR4s"),
    ('<add key="ClearTextPassword" value="letmein11" />', "letmein11"),
    ("kind: Secret\ndata:\n  db: bGV0bWVpbjEy\n", "bGV0bWVpbjEy"),
    ('{"data": {"a": "bGV0bWVpbjEz", "b": "bGV0bWVpbjEw"}, "kind": "Secret"}', "bGV0bWVpbjEw"),
    ("set -x DB_PASS letmein14", "letmein14"),
    ("FROM alpine\nENV DB_PASSWORD letmein15", "letmein15"),
    ("npm config set //r.example/:_authToken letmein16", "letmein16"),
    ("SSHPASS=letmein17", "letmein17"),
    ('"pass": "letmein18"', "letmein18"),
    ("curl -sSLu admin:letmein19 https://example.org", "letmein19"),
    ("http --auth me:letmein20 GET example.org", "letmein20"),
    ("cookie: a=b; session=q7Zt9LmWx2Vb8KdP", "q7Zt9LmWx2Vb8KdP"),
    ('{"cookie": "session=q7Zt9LmWx2Vb8KdP"}', "q7Zt9LmWx2Vb8KdP"),
    ('{"auths": {"x": {"auth": "dXNlcjpsZXRtZWluMjE="}}}', "dXNlcjpsZXRtZWluMjE="),
    ("machine example.org\n  login me\n  password letmein22", "letmein22"),
    ('let SECRET_KEY: &str = "letmein23";', "letmein23"),
    ("password: |\n  letmein24", "letmein24"),
    ("openssl rsa -passin pass:letmein25", "letmein25"),
    ("twine upload -u __token__ -p letmein26 dist/x", "letmein26"),
    ("ldapsearch -D cn=admin -w letmein27", "letmein27"),
    ("ALTER USER me WITH PASSWORD 'letmein28'", "letmein28"),
    ("CREATE USER me IDENTIFIED BY 'letmein29'", "letmein29"),
    ("TOKEN=$'letmein30' ./deploy", "letmein30"),
    ("my password is letmein31, try it", "letmein31"),
    ("jdbc:oracle:thin:scott/letmein32@//db.example:1521/x", "letmein32"),
    ("Private-Lines: 1\nq7Zt9LmWx2Vb8KdPfR4sq7Zt9LmWx2Vb8KdPfR4s\nPrivate-MAC: 00", "fR4sq7Zt9"),
    ("<password>letmein3</password>", "letmein3"),
    ('os.environ["API_KEY"] = "letmein2x"', "letmein2x"),
    ('password: str = "letmein1x"', "letmein1x"),
    (PEM, "Qw4rUoPa7sDfGh2jKlZxCvBnM1QwErTyUiOpAsDfGhJkL3ZxCvBn9MqWeRtYuIoP"),
    ("MY_sk-ant-api03-" + "Ab1" * 31, "Ab1" * 31),
)


def all_secrets() -> list[tuple[str, str]]:
    """Text and secret: one sample per prefix of every format, and all the others."""
    tokens = [
        (in_context(form, token), token) for form in TOKEN_FORMATS for token in samples(form, 1)
    ]
    return [*tokens, *OTHER_SECRETS]


RUN = "d00dfeed00000001"
SESSION = "5e551000-0000-4000-8000-00000000aaaa"
KEY = "ghp_" + "a1B2" * 9  # also as a part of names
SECRETS = all_secrets()
JOINED = "\n".join(said for said, _ in SECRETS)


def leaked(content: str) -> list[str]:
    """The secrets that a text contains, also within JSON."""
    plain = content.replace("\\\\", "\\")
    return [
        secret
        for secret in (KEY, *(secret for _, secret in SECRETS))
        if secret in content or json.dumps(secret)[1:-1] in content or secret in plain
    ]


def write_recording(path: Path, secret_text: str) -> Path:
    """A recording of another program, with secrets in its header and in its output."""
    header = Header(
        agent="claude",
        run_id=RUN,
        argv=["claude", "-p", secret_text, "--api-key", "hunter2hunter2"],
        cwd="/home/ada/engine",
        started_at=1.0,
        task="t1",
        attempt=1,
        prompt=secret_text,
        backend=BackendInfo(kind="openai", url="http://me:letmein0@host/v1"),
        name=secret_text,
        tags={"note": secret_text},
        origin=RunOrigin(repository=secret_text, branch=secret_text),
    )
    said = assistant(
        text(secret_text),
        call("c1", "Bash", command=secret_text),
        call("c2", "Write", file_path=f"/home/ada/engine/{KEY}", content=secret_text),
    )
    errors = (answer("c1", secret_text, is_error=True), answer("c2", secret_text))
    out = stream(
        init(model=f"model-{KEY}", cwd="/home/ada/engine"),
        said,
        *errors,
        result(secret_text, is_error=True, subtype="error_during_execution", errors=[secret_text]),
    )
    records = [
        Record(0.1, "out", out),
        Record(0.2, "err", secret_text.encode()),
        Record(0.3, "note", f"retry: {secret_text}".encode()),
        Record(0.4, "exit", number=1),
        Record(None, "end"),
    ]
    lines = [msgspec.json.encode(header) + b"\n", *map(encode_record, records)]
    path.write_bytes(b"".join(lines))
    return path


def import_secrets(store: Store, folder: Path) -> None:
    """Import a transcript and a recording with all secrets in all their places."""
    session = Transcript(SESSION)
    session.prompt(JOINED)
    for number, (said, _) in enumerate(SECRETS):
        session.call(f"m{number}", f"c{number}", "Bash", {"command": said})
        session.result(f"c{number}", said, error=True)
    session.answer("n", text=JOINED)
    session.call("open", "open", "Bash", {"command": JOINED})
    paths = [session.write(folder), str(write_recording(folder / "run.steno", JOINED))]
    assert import_sources(store, paths).troubles == []
