"""Every kind of token is found in any surroundings; source code is unchanged (L5)."""

import json
import re
import sysconfig
import time
from pathlib import Path

import pytest

from steno.codec.find_secrets import find_secrets
from steno.codec.redact import MASK, redact, redact_truncated
from steno.codec.token_formats import TOKEN_FORMATS, TokenFormat
from tests.support.secrets import OTHER_SECRETS, PEM, all_secrets, in_context, samples

SAMPLES_PER_PREFIX = 10


def test_l5_at_least_120_kinds() -> None:
    assert len({form.kind for form in TOKEN_FORMATS}) == len(TOKEN_FORMATS) >= 120


@pytest.mark.parametrize("form", TOKEN_FORMATS, ids=lambda form: form.kind)
def test_l5_every_sample_of_a_format_is_masked(form: TokenFormat) -> None:
    surroundings = ["{}", "use {} now", "({})", "a\n{}\nb", "\x1b[1m{}\x1b[0m", "FIRST_{}", "\\n{}"]
    if form.word:
        surroundings = ["{}", "a\n{}\nb", "({})"]
    for token in samples(form, SAMPLES_PER_PREFIX):
        for around in surroundings:
            found = redact(around.format(in_context(form, token)))
            assert token[-12:] not in found
            assert MASK in found
        (secret,) = find_secrets(in_context(form, token))
        assert secret.kind == form.kind


@pytest.mark.parametrize("form", TOKEN_FORMATS, ids=lambda form: form.kind)
def test_l5_a_token_in_json_in_json_is_masked_and_stays_json(form: TokenFormat) -> None:
    for token in samples(form, 3):
        text = f"first\n{in_context(form, token)}\nlast"
        for _ in range(3):
            text = json.dumps({"text": text, "n": 1})
            found = redact(text)
            assert token[-12:] not in found
            assert json.loads(found)["n"] == 1


# Of others the end may be needed: without it they are ordinary values, or have short runs only.
CUT_FORMATS = [form for form in TOKEN_FORMATS if form.prefixes and "{base64:" not in form.rest]


@pytest.mark.parametrize("form", CUT_FORMATS, ids=lambda form: form.kind)
def test_l5_a_token_that_is_cut_off_leaves_nothing_behind(form: TokenFormat) -> None:
    prefix_end = max([0, *map(len, form.prefixes.split())])
    for token in samples(form, 1):
        for kept in range(prefix_end + 6, len(token)):
            rest = redact_truncated("words " * 20 + token[:kept])
            assert token[prefix_end : prefix_end + 6] not in rest


@pytest.mark.parametrize(("text", "secret"), OTHER_SECRETS, ids=range(len(OTHER_SECRETS)))
def test_l5_a_secret_by_its_place_or_name(text: str, secret: str) -> None:
    found = redact(text)
    assert secret not in found
    assert MASK in found
    for _ in range(3):
        text = json.dumps({"text": text, "n": 1})
        secret = json.dumps(secret)[1:-1]
        masked = redact(text)
        assert secret not in masked
        assert json.loads(masked)["n"] == 1


def test_l5_a_private_key_keeps_its_marks_only() -> None:
    first, *_, last = PEM.splitlines()
    assert redact(PEM).split() == [*first.split(), MASK, *last.split()]
    lines = [f'    "{line}\\n"' for line in PEM.splitlines()]  # as a constant in code
    assert [line.strip(' "n\\') for line in redact("\n".join(lines)).splitlines()] == [
        first,
        MASK,
        "",
        "",
        last,
    ]


def test_l5_masking_twice_changes_nothing_more() -> None:
    once = redact("\n".join(text for text, _ in all_secrets()))
    assert redact(once) == once


ORDINARY_CODE = [
    'if token == "EOF":',
    "def login(password: str) -> None:",
    "def login(password: Optional[str] = None, token: BytesOrStr) -> None:",
    "secret = None",
    '<div class="sk-spinner-three-bounce sk-double-bounce1 sk-cube-grid"></div>',
    ".sk-toggleable__content.sk-estimator-doc-link-12 { margin: 0 }",
    "token = get_token()",
    "self.token = token",
    "connect(user=user, password=password, api_key=settings.API_KEY2)",
    "api_key = os.environ['OPENAI_API_KEY']",
    'password = getpass("Password: ")',
    "interface User { token: string; password: string }",
    "const token = await fetch(url1)",
    "items.map(token => token.id1)",
    "match token { Token::Eof1 => x, Token::Name2 => y }",
    'token != "abc123"',
    "password=$PASSWORD1 token=${TOKEN2} secret={{ secrets.X1 }}",
    "https://{user}:{password}@host/ and http://localhost:8000/users/@me",
    "docker run -u 1000:1000 curl",
    "Bearer authentication, basic authentication, the authorization: required",
    'if "-----BEGIN PRIVATE KEY-----" in text and "-----END PRIVATE KEY-----" in text:',
    'Token: "#d8dee9",  # a colour',
    "sk-ecdsa-sha2-nistp256-cert-v01@openssh.com",
    "pip install pre-commit-hooks==4.5.0; re_compile_pattern_for_names",
    'prompt = "{}\'s password: ".format(self.user, options["host1"])',
    'error("state: " + s + ", token: "+q);switch(J[0]){case 1:b.push(q)}',
    'gtoken: "^8.0.0", token: "\\u4E2A\\u4EBA\\u8BBF\\u95EE", publicKeyToken="1fc8b3b9a1e18e3b"',
    "self.authorization = module.params['auth1']; headers({authorization: creds.token_type})",
    "var mapToken = mapToken2; if (r.password=null,t.at(-1)!=r.passwordVerification1) return",
    "the secret key is 256-bit, the password is base64-encoded, the token is required1",
    "key-value-store-of-the-application live_update_of_dashboard_widgets",
]


@pytest.mark.parametrize("code", ORDINARY_CODE)
def test_l5_ordinary_code_is_unchanged(code: str) -> None:
    assert redact(code) == code
    assert redact(json.dumps(json.dumps(code))) == json.dumps(json.dumps(code))


# Credentials made up for examples. They look like real ones, so they are masked.
EXAMPLES_IN_SOURCE = {
    ("urllib/request.py", "password"),  # of HTTP authentication
    ("pydantic/types.py", "password"),
    ("pydantic/networks.py", "url-password"),  # the rest: of URLs
    ("fsspec/utils.py", "url-password"),
    ("fsspec/implementations/gist.py", "url-password"),
    ("fsspec/implementations/github.py", "url-password"),
    ("fsspec/implementations/smb.py", "url-password"),
    ("httpx2/_urls.py", "url-password"),
    ("httpx2/_urls.py", "password"),
    ("pip/_vendor/urllib3/util/url.py", "url-password"),
}
MIN_CORPUS_CHARS = 10_000_000


def test_l5_ten_megabytes_of_source_code_are_unchanged() -> None:
    """The standard library, and packages installed beside steno."""
    size = 0
    found = set()
    packages = (
        "msgspec",
        "pytest",
        "hypothesis",
        "pip",
        "fsspec",
        "httpx2",
        "pydantic",
        "pygments",
    )
    paths = sysconfig.get_paths()
    stdlib = Path(paths["stdlib"])
    others = [Path(paths["purelib"]) / package for package in packages]
    for folder in (stdlib, *others):
        root = folder if folder == stdlib else folder.parent
        for path in folder.rglob("*.py"):
            name = path.relative_to(root).as_posix()
            if re.search(r"(?:^|/)(?:tests?|site-packages|dist-packages)/", name):
                continue
            text = path.read_text(encoding="utf-8", errors="replace")
            size += len(text)
            found |= {(name, secret.kind) for secret in find_secrets(text)}
    assert size >= MIN_CORPUS_CHARS
    assert found <= EXAMPLES_IN_SOURCE


# Text of about 100 KB that looks like the beginning of a secret again and again.
HOSTILE_TEXTS = {
    "schemes": "@ " + "x:/a:" * 20_000,
    "schemes before an @": "x:/a:1/" * 14_000 + "@h",
    "schemes before no host": "x:/a:" * 20_000 + "@ h",
    "users": "x://" + "@" * 100_000,
    "keys": "-----BEGIN PRIVATE KEY-----" * 4_000,
    "options of htpasswd": "htpasswd -" + "b" * 100_000,
    "lines of netrc": "machine  login" + "\\n" * 50_000,
    "names": "api_key=" * 12_000,
    "quoted names": 'api_key=\\"' * 10_000,
    "data": "kind: Secret\n" + "data:\n" * 16_000,
    "headers": "authorization: " * 7_000,
    "cookies": "cookie: a=b" + "; a=b" * 20_000,
    "tokens": "".join(token[:-2] for form in TOKEN_FORMATS for token in samples(form, 1)) * 4,
}


@pytest.mark.parametrize("text", HOSTILE_TEXTS.values(), ids=HOSTILE_TEXTS)
def test_l5_no_text_takes_long(text: str) -> None:
    """An agent must not be able to stop an import: the time is linear in the length."""
    began = time.process_time()
    redact(text)
    assert time.process_time() - began < 3.0  # 0.4 s at most; quadratic ones took minutes
