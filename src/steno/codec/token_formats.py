"""Published formats of tokens that identify themselves, or that a vendor's name announces. Pure.

A row: kind, prefixes separated by spaces, and the rest of the token in the notation
`{alphabet:length}`; with `+`, the length is the least one. `word`: the token has no prefix and is
recognised only as the value of a name that contains this word. `mixed`: the prefix also occurs in
ordinary text, so the rest must look random.

A token may be longer than published, and its last part shorter if it is cut off.
"""

import re
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from .secret_values import has_letters_and_digits, looks_random

ALPHABETS = {
    "digits": "0-9",
    "hex": "0-9a-fA-F",
    "uuid": "0-9a-fA-F-",
    "letters": "A-Za-z",
    "lower": "0-9a-z",
    "upper": "0-9A-Z",
    "dashed": "0-9A-Z-",
    "alnum": "0-9A-Za-z",
    "word": "0-9A-Za-z_-",
    "dots": "0-9A-Za-z_.-",
    "tilde": "0-9A-Za-z_.~-",
    "equals": "0-9A-Za-z_.=-",
    "base64": "0-9A-Za-z+/=_-",
    "plain64": "0-9A-Za-z+/",
    "percent": "0-9A-Za-z%",
}


class TokenFormat(NamedTuple):
    """One kind of token; see the module's text."""

    kind: str
    prefixes: str
    rest: str
    word: str = ""
    mixed: bool = False


_ = TokenFormat  # short, to keep a row on one line
TOKEN_FORMATS: tuple[TokenFormat, ...] = (
    # Model providers and tools around them
    _("anthropic-api-key", "sk-ant-api03- sk-ant-api02-", "{word:95}"),
    _("anthropic-admin-key", "sk-ant-admin01-", "{word:95}"),
    _("anthropic-oauth-token", "sk-ant-oat01- sk-ant-ort01-", "{word:95}"),
    _("anthropic-session-key", "sk-ant-sid01- sk-ant-sid02-", "{word:86}"),
    _("openai-project-key", "sk-proj-", "{word:156}", mixed=True),
    _("openai-service-key", "sk-svcacct- sk-admin-", "{word:156}", mixed=True),
    _("openrouter-key", "sk-or-v1-", "{hex:64}"),
    _("langfuse-secret-key", "sk-lf-", "{uuid:36}"),
    _("api-key-sk-scoped", "sk-", "{word:40}", mixed=True),
    _("api-key-sk", "sk-", "{alnum:16+}"),
    _("groq-key", "gsk_", "{alnum:52}"),
    _("xai-key", "xai-", "{word:80}"),
    _("perplexity-key", "pplx-", "{alnum:48}"),
    _("huggingface-token", "hf_", "{alnum:34}"),
    _("huggingface-org-token", "api_org_", "{alnum:34}"),
    _("replicate-token", "r8_", "{word:37}"),
    _("fireworks-key", "fw_", "{alnum:24}", mixed=True),
    _("cerebras-key", "csk-", "{lower:48}"),
    _("nvidia-key", "nvapi-", "{word:64}"),
    _("langsmith-key", "lsv2_pt_ lsv2_sk_", "{hex:32}_{hex:10}"),
    _("tavily-key", "tvly-", "{word:32}", mixed=True),
    _("jina-key", "jina_", "{word:60}", mixed=True),
    _("pinecone-key", "pcsk_", "{word:69}"),
    _("voyage-key", "pa-", "{word:43}", mixed=True),
    _("firecrawl-key", "fc-", "{hex:32}"),
    _("together-key", "tgp_v1_", "{word:43}"),
    _("e2b-key", "e2b_", "{hex:40}"),
    _("elevenlabs-key", "sk_", "{hex:48}"),
    _("cursor-key", "key_", "{hex:64}"),
    _("modal-token", "ak- as-", "{alnum:22}", mixed=True),
    _("logfire-token", "pylf_v1_us_ pylf_v1_eu_", "{alnum:43}"),
    _("wandb-key", "wandb_v1_", "{word:70}"),
    _("apify-token", "apify_api_", "{alnum:36}"),
    _("browserbase-key", "bb_live_ bb_test_", "{word:27}"),
    _("google-ai-key", "AQ.", "{word:50}", mixed=True),
    _("cursor-agent-key", "crsr_", "{hex:64}"),
    _("amp-key", "sgamp_user_", "{word:30+}"),
    _("continue-key", "con-", "{hex:64}"),
    _("llamacloud-key", "llx-", "{alnum:48}"),
    _("runpod-key", "rpa_", "{alnum:43}"),
    _("daytona-key", "dtn_", "{hex:64}"),
    _("context7-key", "ctx7sk-", "{uuid:36}"),
    _("mem0-key", "m0-", "{alnum:40}", mixed=True),
    _("salad-key", "salad_cloud_", "{alnum:1+}_{alnum:20+}"),
    # Code hosting, packages, continuous integration
    _("github-token", "ghp_", "{alnum:36}"),
    _("github-oauth-token", "gho_", "{alnum:36}"),
    _("github-app-token", "ghu_ ghs_", "{alnum:36}"),
    _("github-refresh-token", "ghr_", "{alnum:76}"),
    _("github-fine-grained-token", "github_pat_", "{word:82}"),
    _("gitlab-token", "glpat-", "{word:20+}.{lower:2}.{lower:9}"),
    _("gitlab-deploy-token", "gldt-", "{word:20}"),
    _("gitlab-runner-token", "glrt- glrtr-", "{word:20+}.{lower:2}.{lower:9}"),
    _("gitlab-job-token", "glcbt-", "{word:26}"),
    _("gitlab-trigger-token", "glptt-", "{word:40}"),
    _("gitlab-feed-token", "glft-", "{word:20}"),
    _("gitlab-mail-token", "glimt-", "{word:25}"),
    _("gitlab-agent-token", "glagent-", "{word:50}"),
    _("gitlab-oauth-secret", "gloas-", "{word:64}"),
    _("gitlab-scim-token", "glsoat-", "{word:20}"),
    _("gitlab-feature-flag-token", "glffct-", "{word:20}"),
    _("gitlab-workspace-token", "glwt-", "{word:20}"),
    _("gitlab-session", "gitlab_session=", "{lower:32}"),
    _("gitlab-runner-registration", "GR1348941", "{word:20}"),
    _("bitbucket-app-password", "ATBB", "{alnum:32}"),
    _("atlassian-token", "ATATT3 ATCTT3", "{base64:100+}"),
    _("trello-token", "ATTA", "{hex:72}"),
    _("npm-token", "npm_", "{alnum:36}"),
    _("pypi-token", "pypi-AgEIcHlwaS5vcmc pypi-AgENdGVzdC5weXBpLm9yZw", "{word:50+}"),
    _("rubygems-key", "rubygems_", "{hex:48}"),
    _("crates-token", "cio", "{alnum:32}", mixed=True),
    _("docker-token", "dckr_pat_ dckr_oat_", "{word:27}"),
    _("nuget-key", "oy2", "{lower:43}"),
    _("clojars-token", "CLOJARS_", "{lower:60}"),
    _("artifactory-key", "AKCp", "{alnum:69}"),
    _("artifactory-reference-token", "cmVmd", "{alnum:59}"),
    _("buildkite-token", "bkua_ bkaj_ bkct_", "{lower:40}"),
    _("circleci-token", "CCIPAT_ CCIPRJ_", "{alnum:22}_{hex:40}"),
    _("sonarqube-token", "sqp_ squ_ sqa_", "{lower:40}"),
    _("sourcegraph-token", "sgp_ slk_ sgp_local_", "{hex:40}"),
    _("sourcegraph-instance-token", "sgp_", "{hex:16}_{hex:40}"),
    _("snyk-token", "snyk_uat. snyk_sat.", "{hex:8}.{dots:60}"),
    _("harness-token", "pat. sat.", "{word:22}.{alnum:24}.{alnum:20}"),
    _("octopus-key", "API-", "{upper:26}"),
    _("endor-key", "endr+", "{alnum:16}"),
    _("infracost-token", "ico-", "{alnum:32}", mixed=True),
    _("bitbucket-http-token", "BBDC-", "{base64:40+}"),
    _(
        "authress-key",
        "scauth_ authress_ ext_ sc_",
        "{alnum:5+}.{alnum:4+}.acc{word:13+}.{base64:30+}",
    ),
    # Clouds and hosting
    _("aws-access-key", "AKIA ASIA ABIA ACCA", "{upper:16}"),
    _("aws-legacy-access-key", "A3T", "{upper:17}"),
    _("aws-bedrock-key", "ABSK", "{base64:109+}"),
    _("aws-bedrock-session-key", "bedrock-api-key-", "{base64:40+}"),
    _("aws-mws-token", "amzn.mws.", "{uuid:36}"),
    _("google-api-key", "AIza", "{word:35}"),
    _("google-oauth-secret", "GOCSPX-", "{word:28}"),
    _("google-access-token", "ya29.", "{dots:60+}"),
    _("google-refresh-token", "1//0", "{word:60+}"),
    _("azure-client-secret", "", "{tilde:3}{digits:1}Q~{tilde:31+}"),
    _("azure-devops-token", "", "{alnum:76}AZDO{alnum:4}"),
    _("azure-ai-key", "", "{alnum:52}JQQJ99{alnum:26}"),
    _("azure-sas-signature", "", "sig={percent:43+}"),
    _("azure-storage-key", "", "{plain64:76}+ASt{plain64:6}=="),
    _("azure-registry-password", "", "{plain64:42}+ACR{alnum:6}"),
    _("azure-function-key", "", "{word:44}AzFu{word:6}=="),
    _("azure-search-key", "", "{alnum:42}AzSe{alnum:6}"),
    _("azure-cosmos-key", "", "{plain64:76}ACDb{plain64:6}=="),
    _("azure-redis-key", "", "{plain64:33}AzCa{plain64:6}="),
    _("azure-refresh-token", "", "{digits:1}.A{word:50+}.Ag{word:100+}"),
    _("aws-url-signature", "X-Amz-Signature=", "{hex:64}"),
    _("alibaba-access-key", "LTAI", "{alnum:20}"),
    _("tencent-secret-id", "AKID", "{alnum:32}"),
    _("scaleway-access-key", "SCW", "{upper:17}"),
    _("yandex-token", "y0_", "{word:55}", mixed=True),
    _("yandex-api-key", "AQVN", "{word:36}"),
    _("yandex-secret-key", "YC", "{word:38}", mixed=True),
    _("digitalocean-token", "dop_v1_", "{hex:64}"),
    _("digitalocean-oauth-token", "doo_v1_ dor_v1_", "{hex:64}"),
    _("cloudflare-origin-key", "v1.0-", "{hex:24}-{hex:146}"),
    _("cloudflare-token", "cfut_ cfat_ cfk_", "{alnum:40}"),
    _("heroku-key", "HRKU-", "{word:60}", mixed=True),
    _("fly-token", "fo1_", "{word:43}"),
    _("fly-macaroon", "fm1a_ fm1r_ fm2_", "{base64:100+}"),
    _("vercel-blob-token", "vercel_blob_rw_", "{word:40+}"),
    _("vercel-token", "vcp_ vci_ vca_ vcr_ vck_", "{alnum:56}"),
    _("netlify-token", "nfp_ nfc_ nfo_ nfu_", "{alnum:36}"),
    _("render-key", "rnd_", "{alnum:28}", mixed=True),
    _("supabase-token", "sbp_", "{hex:40}"),
    _("supabase-secret-key", "sb_secret_", "{word:31}"),
    _("neon-key", "napi_", "{lower:64}"),
    _("planetscale-token", "pscale_tkn_ pscale_oauth_", "{dots:32+}"),
    _("planetscale-password", "pscale_pw_", "{dots:32+}"),
    _("clickhouse-key", "4b1d", "{alnum:38}", mixed=True),
    _("databricks-token", "dapi", "{hex:32}"),
    _("mongodb-service-secret", "mdb_sa_sk_", "{word:40}"),
    _("aiven-password", "AVNS_", "{word:19}"),
    _("openshift-token", "sha256~", "{word:43}"),
    _(
        "tailscale-key",
        "tskey-auth- tskey-api- tskey-client- tskey-webhook- tskey-scim-",
        "{word:50}",
    ),
    _("defined-networking-key", "dnkey-", "{word:79}"),
    _("scalingo-token", "tk-us-", "{word:48}", mixed=True),
    # Secret stores and infrastructure
    _("vault-token", "hvs. hvb. hvr.", "{word:90+}"),
    _("terraform-token", "", "{alnum:14}.atlasv1.{equals:60+}"),
    _("pulumi-token", "pul-", "{hex:40}"),
    _("prefect-key", "pnu_ pnb_", "{alnum:36}"),
    _("doppler-token", "dp.pt. dp.ct. dp.sa. dp.scim. dp.audit. dp.st.", "{alnum:43}"),
    _("doppler-service-token", "dp.st.", "{word:3+}.{alnum:43}"),
    _("1password-service-token", "ops_eyJ", "{base64:250+}"),
    _("1password-secret-key", "A3-", "{dashed:36+}", mixed=True),
    _("age-secret-key", "AGE-SECRET-KEY-1", "{upper:58}"),
    _("inngest-signing-key", "signkey-prod- signkey-test- signkey-branch-", "{hex:64}"),
    # Observation and analytics
    _("grafana-service-token", "glsa_", "{alnum:32}_{hex:8}"),
    _("grafana-cloud-token", "glc_", "{base64:60+}"),
    _("grafana-api-key", "eyJrIjoi", "{base64:60+}"),
    _("new-relic-license-key", "", "{lower:32}FFFFNRAL"),
    _("new-relic-user-key", "NRAK-", "{upper:27}"),
    _("new-relic-insert-key", "NRII- NRIQ-", "{word:25+}"),
    _("new-relic-browser-key", "NRJS- NRBR-", "{hex:19}"),
    _("sentry-org-token", "sntrys_", "{base64:120+}"),
    _("sentry-user-token", "sntryu_ sntrya_", "{hex:64}"),
    _("dynatrace-token", "dt0c01. dt0s01. dt0s16.", "{alnum:24}.{alnum:64}"),
    _("honeycomb-key", "hcaik_ hcxik_ hcamk_ hcbik_", "{lower:58}"),
    _("posthog-key", "phx_ phs_", "{alnum:43}"),
    _("axiom-token", "xaat- xapt-", "{uuid:36}"),
    _("rootly-key", "rootly_", "{hex:64}"),
    _("launchdarkly-key", "api- sdk-", "{hex:8}-{hex:4}-4{hex:3}-{hex:4}-{hex:12}"),
    _("statsig-key", "secret-", "{alnum:43}"),
    # Messages and mail
    _("slack-bot-token", "xoxb-", "{word:15+}"),
    _("slack-user-token", "xoxp- xoxo- xoxs-", "{word:15+}"),
    _("slack-legacy-token", "xoxa- xoxr- xoxe-", "{word:11+}"),
    _("slack-config-token", "xoxe.xoxp- xoxe.xoxb-", "{word:163}"),
    _("slack-app-token", "xapp-", "{word:15+}"),
    _("slack-webhook", "hooks.slack.com/services/", "{plain64:43}"),
    _("slack-workflow", "hooks.slack.com/workflows/ hooks.slack.com/triggers/", "{plain64:43}"),
    _("discord-bot-token", "MT Mj Mz ND NT Nj Nz OD OT", "{word:22+}.{word:6}.{word:27+}"),
    _("discord-webhook", "discord.com/api/webhooks/", "{digits:18+}/{word:68}"),
    _("telegram-bot-token", "", "{digits:8+}:AA{word:33}"),
    _(
        "teams-webhook",
        "webhook.office.com/webhookb2/",
        "{word:36}@{word:36}/{alnum:15}/{alnum:32}",
    ),
    _("twilio-key", "SK", "{hex:32}", mixed=True),
    _("sendgrid-key", "SG.", "{equals:66}"),
    _("mailgun-key", "key- pubkey-", "{hex:32}"),
    _("mailchimp-key", "", "{hex:32}-us{digits:2}"),
    _("mailersend-key", "mlsn.", "{hex:64}"),
    _("brevo-key", "xkeysib- xsmtpsib-", "{hex:64}-{alnum:16}"),
    _("resend-key", "re_", "{alnum:8}_{alnum:24}", mixed=True),
    _("klaviyo-key", "pk_", "{hex:34}"),
    _("klaviyo-account-key", "pk_", "{alnum:6}_{hex:34}"),
    _("intercom-token", "dG9rO", "{alnum:55}"),
    _("hubspot-token", "pat-na1- pat-na2- pat-eu1-", "{uuid:36}"),
    _("nylas-key", "nyk_v0_", "{alnum:50}"),
    _("zapier-webhook", "", "hooks.zapier.com/hooks/catch/{digits:5+}/{alnum:5+}"),
    # Payments and shops
    _("stripe-secret-key", "sk_live_ sk_test_ sk_prod_", "{alnum:10+}"),
    _("stripe-restricted-key", "rk_live_ rk_test_ rk_prod_", "{alnum:10+}"),
    _("webhook-signing-secret", "", "whsec_{base64:32+}"),
    _("square-access-token", "EAAA", "{word:60}", mixed=True),
    _("square-legacy-token", "sq0atp-", "{word:22}"),
    _("square-secret", "sq0csp- sq0cts-", "{word:40+}"),
    _("braintree-token", "access_token$production$ access_token$sandbox$", "{lower:16}${hex:32}"),
    _("plaid-token", "access-production- access-sandbox- access-development-", "{uuid:36}"),
    _("shopify-token", "shpat_ shpca_ shppa_ shpss_ shpua_ shptka_", "{hex:32}"),
    _("razorpay-key", "rzp_live_ rzp_test_", "{alnum:14}"),
    _("flutterwave-key", "FLWSECK-", "{lower:32}-X"),
    _("flutterwave-test-key", "FLWSECK_TEST-", "{lower:12+}"),
    _("easypost-key", "EZAK EZTK", "{alnum:54}"),
    _("shippo-token", "shippo_live_ shippo_test_", "{hex:40}"),
    _("duffel-token", "duffel_live_ duffel_test_", "{equals:43}"),
    _("lob-key", "live_ test_", "{hex:35}"),
    _("gocardless-token", "live_ sandbox_", "{word:30}", mixed=True),
    _("paddle-key", "pdl_live_apikey_ pdl_sdbx_apikey_", "{word:40+}"),
    _("polar-token", "polar_oat_ polar_pat_", "{alnum:40}"),
    _("ramp-secret", "ramp_sec_", "{alnum:48}"),
    # Work and content
    _("linear-key", "lin_api_ lin_oauth_", "{alnum:40}"),
    _("notion-token", "ntn_", "{alnum:46}"),
    _("notion-legacy-token", "secret_", "{alnum:43}"),
    _("airtable-token", "pat", "{alnum:14}.{hex:64}"),
    _("asana-token", "1/ 2/", "{digits:13+}:{hex:32}"),
    _("figma-token", "figd_ figo_ figu_ figp_", "{word:40}"),
    _("contentful-token", "CFPAT-", "{word:43}"),
    _("typeform-token", "tfp_", "{dots:59}"),
    _("readme-key", "rdme_", "{lower:70}"),
    _("postman-key", "PMAK-", "{hex:24}-{hex:34}"),
    _("dropbox-token", "sl.u. sl.", "{word:130+}"),
    _("frame-io-token", "fio-u-", "{equals:64}"),
    _("mapbox-secret-token", "sk.eyJ", "{word:60+}.{word:22}"),
    _("wakatime-key", "waka_", "{uuid:36}"),
    _("lichess-token", "lip_", "{alnum:20}"),
    _("adobe-client-secret", "p8e-", "{word:32}", mixed=True),
    _("adafruit-key", "aio_", "{alnum:28}", mixed=True),
    _("intra42-secret", "s-s4t2ud- s-s4t2af-", "{hex:64}"),
    _("salesforce-session", "00D", "{alnum:12}!{dots:90+}"),
    _("salesforce-refresh-token", "5AEP861", "{equals:80+}"),
    _("zoho-token", "1000.", "{hex:32}.{hex:32}"),
    _("voiceflow-key", "VF.DM. VF.WS. VF.", "{hex:24}.{alnum:16}"),
    _("settlemint-token", "sm_aat_ sm_pat_ sm_sat_", "{alnum:16}"),
    _("maxmind-key", "", "{alnum:6}_{alnum:29}_mmk"),
    # People's networks
    _("facebook-token", "EAACEdEose0cBA EAAM EAAC", "{alnum:80+}"),
    _("instagram-token", "IGQV IGQW", "{word:100+}"),
    _("twitter-bearer-token", "AAAAAAAAAAAAAAAAAAAAA", "{percent:80+}", mixed=True),
    # Of many vendors
    _("jwt", "eyJ ewogIC ewoi eyAi", "{word:15+}.{word:15+}.{word:10+}"),
    _("jwt-in-base64", "ZXlK", "{base64:60+}", mixed=True),
    _("jwt-encrypted", "eyJ", "{word:17+}..{word:10+}.{word:16+}.{word:16+}"),
    # Values without a format of their own, after the vendor's name
    _("datadog-key", "", "{hex:32}", "datadog"),
    _("algolia-key", "", "{hex:32}", "algolia"),
    _("deepgram-key", "", "{hex:40}", "deepgram"),
    _("assemblyai-key", "", "{hex:32}", "assemblyai"),
    _("mistral-key", "", "{alnum:32}", "mistral"),
    _("cohere-key", "", "{alnum:40}", "cohere"),
    _("fastly-token", "", "{word:32}", "fastly"),
    _("okta-token", "", "{word:42}", "okta"),
    _("meraki-key", "", "{hex:40}", "meraki"),
    _("linode-token", "", "{hex:64}", "linode"),
    _("hetzner-token", "", "{alnum:64}", "hetzner"),
    _("zendesk-secret", "", "{alnum:40}", "zendesk"),
    _("codecov-token", "", "{uuid:36}", "codecov"),
    _("postmark-token", "", "{uuid:36}", "postmark"),
    _("pagerduty-key", "", "{word:20}", "pagerduty"),
    _("opsgenie-key", "", "{uuid:36}", "opsgenie"),
    _("binance-key", "", "{alnum:64}", "binance"),
    _("rapidapi-key", "", "{alnum:50}", "rapidapi"),
)


# -- patterns made from the table ------------------------------------------------------------------


MAX_PART_CHARS = 2048  # examined from each possible start, so that the time stays linear
MAX_PIECE_CHARS = 4  # the prefix makes a token more likely than a name
MIN_TOKEN_CHARS = 20  # of a long token, enough to recognise it

# A token starts after anything but a letter or digit. The last character of an escape sequence, of
# a percent-encoded character or of a terminal colour is no part of a word.
WORD_START = (
    r"(?:(?<![A-Za-z0-9])|(?<=\\[nrtbf])|(?<=\\u[0-9a-fA-F]{4})|(?<=\\x[0-9a-fA-F]{2})"
    r"|(?<=%[0-9a-fA-F]{2})|(?<=[\[;]\dm)|(?<=[\[;]\d\dm)|(?<=\[m))"
)
_PART = re.compile(r"\{(\w+):(\d+)(\+?)\}")


class Part(NamedTuple):
    """Text before a part of random characters, and that part."""

    literal: str
    alphabet: str
    length: int
    is_minimum: bool


def parse_rest(rest: str) -> tuple[list[Part], str]:
    """Split the notation of a format into its parts and the text after the last one."""
    parts = []
    position = 0
    for found in _PART.finditer(rest):
        literal = rest[position : found.start()]
        parts.append(Part(literal, found[1], int(found[2]), found[3] == "+"))
        position = found.end()
    return parts, rest[position:]


class TokenPattern:
    """One prefix of a format; the pattern is compiled at its first use."""

    def __init__(self, form: TokenFormat, prefix: str) -> None:
        self.kind = form.kind
        self._form = form
        self._prefix = prefix
        self._pattern: re.Pattern[str] | None = None

    def match(self, text: str, position: int) -> tuple[int, int] | None:
        """Return start and end of a token at a position.

        They are equal if what has the format is no token: up to there, there is none.
        """
        if not text.startswith(self._prefix, position):
            return None
        found = self._compiled().match(text, position)
        if found is None:
            return None
        start = position + len(self._prefix)
        if self._form.mixed and not _looks_generated(text[start : found.end()]):
            return found.end(), found.end()
        return (start if self._prefix.endswith("=") else position), found.end()

    def search(self, text: str) -> Iterator[tuple[int, int]]:
        """Yield start and end of each token of a format without a prefix."""
        return (found.span() for found in self._compiled().finditer(text))

    def match_value(self, name: str, text: str, position: int) -> tuple[int, int] | None:
        """Return start and end of the value of a name with the format's word."""
        index = name.rfind(self._form.word)
        if index < 0 or not _assignment().fullmatch(name, index + len(self._form.word)):
            return None
        found = self._compiled().match(text, position)
        return found.span() if found is not None else None

    def _compiled(self) -> "re.Pattern[str]":
        if self._pattern is None:
            self._pattern = re.compile(_pattern_text(self._form, self._prefix))
        return self._pattern


def _looks_generated(text: str) -> bool:
    return looks_random(text, MAX_PIECE_CHARS) or has_letters_and_digits(text)


@cache
def _assignment() -> "re.Pattern[str]":
    return re.compile(r"[\w.\-\]]{0,24}(?:\\*[\"'])?\]?\s{0,3}(?:=>|:=|=|:)\s{0,3}(?:\\*[\"'])?")


def _pattern_text(form: TokenFormat, prefix: str) -> str:
    parts, end = parse_rest(form.rest)
    is_weak = not prefix or prefix[-1].isalnum()  # it may be the start of an ordinary word
    first = parts[0]
    least_first = first.length if is_weak else min(first.length, MIN_TOKEN_CHARS)
    can_be_cut = not is_weak and least_first >= 16
    text = re.escape(prefix)
    closing = ""
    for index, (literal, alphabet, length, is_minimum) in enumerate(parts):
        if index and can_be_cut:
            text += "(?:"
            closing += ")?"
        least = (1 if can_be_cut else min(length, MIN_TOKEN_CHARS)) if index else least_first
        is_open = is_minimum or (not is_weak and index == len(parts) - 1) or can_be_cut
        quantifier = f"{{{least},{MAX_PART_CHARS}}}" if is_open else f"{{{length}}}"
        text += f"{re.escape(literal)}[{ALPHABETS[alphabet]}]{quantifier}"
    text += closing + (f"(?:{re.escape(end)})?" if can_be_cut else re.escape(end))
    if is_weak and not parts[-1].is_minimum:
        text += "(?![0-9A-Za-z])"
    if not prefix:
        return WORD_START + text
    return f"(?:{text}|{_cut_pattern_text(parts, prefix, is_weak)}\\Z)"


def _cut_pattern_text(parts: list[Part], prefix: str, is_weak: bool) -> str:
    """Return the pattern of a token that the end of the text cuts, enough of it to be sure."""
    text = re.escape(prefix)
    known = 0 if is_weak else len(prefix)
    closing = ""
    for literal, alphabet, length, _ in parts:
        least = min(length, MIN_TOKEN_CHARS)
        if known >= MIN_TOKEN_CHARS - 4:
            text += "(?:"
            closing += ")?"
            least = 0
        text += f"{re.escape(literal)}[{ALPHABETS[alphabet]}]{{{least},{MAX_PART_CHARS}}}"
        known += length
    return text + closing


@cache
def prefix_patterns() -> dict[str, list[TokenPattern]]:
    """Return the formats with a prefix by its first three characters, longest prefix first."""
    patterns: dict[str, list[tuple[str, TokenPattern]]] = {}
    for form in TOKEN_FORMATS:
        for prefix in form.prefixes.split():
            pattern = (prefix, TokenPattern(form, prefix))
            keys = [prefix[:3]] if len(prefix) > 2 else [prefix + char for char in _WORD_CHARS]
            for key in keys:
                patterns.setdefault(key, []).append(pattern)
    return {
        key: [pattern for _, pattern in sorted(found, key=lambda item: -len(item[0]))]
        for key, found in patterns.items()
    }


_WORD_CHARS = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_-"


@cache
def infix_patterns() -> dict[str, TokenPattern]:
    """Return the formats without a prefix by the literal text within them."""
    patterns = {}
    for form in TOKEN_FORMATS:
        if not form.prefixes and not form.word:
            parts, end = parse_rest(form.rest)
            infix = max([*(part.literal for part in parts), end], key=len)
            patterns[infix] = TokenPattern(form, "")
    return patterns


@cache
def word_patterns() -> list[TokenPattern]:
    """Return the formats that only the name before them identifies."""
    return [TokenPattern(form, "") for form in TOKEN_FORMATS if form.word]
