//! kube-apiserver's flags about authentication, with its defaults and its words.

use std::path::PathBuf;
use std::sync::Arc;

use mica_server::authn::account::RootAccounts;
use mica_server::authn::given::GivenKeys;
use mica_server::authn::{Anonymous, BootstrapTokens, Headers, ReviewVersion, Trust};
use mica_server::http::parse_go_duration;
use serde_json::{Value, json};

use crate::authentication::{Authentication, ProxyFiles, WEBHOOK_TTL, Webhook};
use crate::dropin::flag::Flags;

/// What flags say about who is let in.
pub fn authentication(flags: &Flags, trust: Trust) -> Result<Authentication, String> {
    let file = |name: &str| {
        let file = flags.last(name).filter(|file| !file.is_empty());
        file.map(PathBuf::from)
    };
    let config = file("authentication-config");
    if config.is_some() && flags.names().iter().any(|name| name.starts_with("oidc-")) {
        return Err("authentication-config file and oidc-* flags are mutually exclusive".to_owned());
    }
    // Who is not known must not be allowed everything, so upstream lets nobody in unknown then. Health stays open here:
    // it tells nothing, and who starts a server wants to know when it is there.
    let anonymous = flags
        .last("anonymous-auth")
        .map(|_| match flags.is_on("anonymous-auth", true) {
            true => Anonymous::Allowed,
            false => Anonymous::Refused,
        });
    Ok(Authentication {
        config,
        issuer: issuer(flags)?,
        token_file: file("token-auth-file"),
        webhook: webhook(flags)?,
        bootstrap: match flags.is_on("enable-bootstrap-token-auth", false) {
            true => BootstrapTokens::Accepted,
            false => BootstrapTokens::Refused,
        },
        front_proxy: front_proxy(flags)?,
        anonymous,
        trust,
    })
}

/// The issuer of the flags that were there before files.
fn issuer(flags: &Flags) -> Result<Option<(Value, Vec<String>)>, String> {
    let text = |name: &str| flags.last(name).unwrap_or_default();
    let (url, client) = (text("oidc-issuer-url"), text("oidc-client-id"));
    if url.is_empty() != client.is_empty() {
        return Err(
            "oidc-issuer-url and oidc-client-id must be specified together when any oidc-* flags are set".to_owned(),
        );
    }
    if url.is_empty() {
        return match flags.names().iter().any(|name| name.starts_with("oidc-")) {
            true => Err(
                "oidc-issuer-url and oidc-client-id must be specified together when any oidc-* flags are set"
                    .to_owned(),
            ),
            false => Ok(None),
        };
    }
    let claim = flags.last("oidc-username-claim").unwrap_or("sub");
    let prefix = match text("oidc-username-prefix") {
        "" if claim != "email" => format!("{url}#"),
        "-" => String::new(),
        prefix => prefix.to_owned(),
    };
    let mut issuer = json!({
        "issuer": {"url": url, "audiences": [client]},
        "claimMappings": {"username": {"claim": claim, "prefix": prefix}},
    });
    let groups = text("oidc-groups-claim");
    if !groups.is_empty() {
        issuer["claimMappings"]["groups"] = json!({"claim": groups, "prefix": text("oidc-groups-prefix")});
    }
    let authority = text("oidc-ca-file");
    if !authority.is_empty() {
        let pem =
            std::fs::read_to_string(authority).map_err(|error| format!("--oidc-ca-file: {authority}: {error}"))?;
        issuer["issuer"]["certificateAuthority"] = pem.into();
    }
    let required = flags.all("oidc-required-claim").into_iter().map(|pair| {
        let (claim, value) = pair.split_once('=')?;
        Some(json!({"claim": claim.trim(), "requiredValue": value.trim()}))
    });
    let required: Option<Vec<Value>> = required.collect();
    let required = required.ok_or("malformed pair, expect string=string")?;
    if !required.is_empty() {
        issuer["claimValidationRules"] = required.into();
    }
    let mut algorithms = flags.list("oidc-signing-algs");
    if algorithms.is_empty() {
        algorithms.push("RS256");
    }
    Ok(Some((issuer, algorithms.into_iter().map(ToOwned::to_owned).collect())))
}

fn webhook(flags: &Flags) -> Result<Option<Webhook>, String> {
    let Some(file) = flags
        .last("authentication-token-webhook-config-file")
        .filter(|file| !file.is_empty())
    else {
        return Ok(None);
    };
    let version = flags.last("authentication-token-webhook-version").unwrap_or("v1beta1");
    let ttl = flags.last("authentication-token-webhook-cache-ttl");
    Ok(Some(Webhook {
        file: file.into(),
        version: ReviewVersion::parse(version)
            .ok_or_else(|| format!("unsupported authentication webhook version {version:?}"))?,
        ttl: ttl.and_then(|text| parse_go_duration(text).ok()).unwrap_or(WEBHOOK_TTL),
    }))
}

fn front_proxy(flags: &Flags) -> Result<Option<ProxyFiles>, String> {
    let list = |name: &str| -> Result<Vec<String>, String> {
        let texts: Vec<String> = flags.list(name).iter().map(|text| text.trim().to_owned()).collect();
        match texts.iter().any(String::is_empty) {
            true => Err(format!("empty value in {name:?}")),
            false => Ok(texts),
        }
    };
    let Some(ca_file) = flags
        .last("requestheader-client-ca-file")
        .filter(|file| !file.is_empty())
    else {
        return Ok(None);
    };
    let names = list("requestheader-allowed-names")?;
    let same = |file: &str| std::fs::read(file).ok();
    let clients = flags.last("client-ca-file").unwrap_or_default();
    if names.is_empty() && !clients.is_empty() && same(clients).is_some_and(|text| Some(text) == same(ca_file)) {
        return Err("--requestheader-client-ca-file and --client-ca-file contain overlapping certificates; --requestheader-allowed-names must be specified to ensure regular client certificates cannot set authenticating proxy headers for arbitrary users".to_owned());
    }
    Ok(Some(ProxyFiles {
        ca_file: ca_file.into(),
        names,
        headers: Headers {
            username: list("requestheader-username-headers")?,
            uid: list("requestheader-uid-headers")?,
            group: list("requestheader-group-headers")?,
            extra_prefixes: list("requestheader-extra-headers-prefix")?,
        },
    }))
}

/// What flags say about root's service account tokens.
#[derive(Clone, Debug, Default)]
pub struct Accounts {
    /// Whom they are from.
    pub issuer: Option<String>,
    options: RootAccounts,
    key_files: Vec<PathBuf>,
    signing: Option<PathBuf>,
}

impl Accounts {
    pub fn of(flags: &Flags) -> Result<Self, String> {
        let texts = |texts: Vec<&str>| -> Vec<String> { texts.into_iter().map(ToOwned::to_owned).collect() };
        let keys_at = flags.last("service-account-jwks-uri").filter(|url| !url.is_empty());
        if let Some(url) = keys_at.filter(|url| !url.starts_with("https://")) {
            return Err(format!(
                "service-account-jwks-uri requires https scheme, parsed as: {url}"
            ));
        }
        let mut issuers = texts(flags.all("service-account-issuer")).into_iter();
        let signing = flags.last("service-account-signing-key-file");
        Ok(Self {
            issuer: issuers.next(),
            options: RootAccounts {
                also: issuers.collect(),
                audiences: texts(flags.list("api-audiences")),
                keys_at: keys_at.map(ToOwned::to_owned),
                keys: None,
            },
            key_files: flags
                .all("service-account-key-file")
                .into_iter()
                .map(PathBuf::from)
                .collect(),
            signing: signing.filter(|file| !file.is_empty()).map(PathBuf::from),
        })
    }

    /// Reads the keys.
    pub fn open(&self) -> Result<RootAccounts, String> {
        let read = |flag: &str, file: &PathBuf| {
            let named = |why: String| format!("--{flag}: {}: {why}", file.display());
            std::fs::read(file).map_err(|error| named(error.to_string()))
        };
        let mut keys = GivenKeys::default();
        for file in &self.key_files {
            let text = read("service-account-key-file", file)?;
            keys.verify_with(&text)
                .map_err(|why| format!("--service-account-key-file: {}: {why}", file.display()))?;
        }
        if let Some(file) = &self.signing {
            let text = read("service-account-signing-key-file", file)?;
            keys.sign_with(&text)
                .map_err(|why| format!("failed to parse service-account-issuer-key-file: {why}"))?;
        }
        let given = self.signing.is_some() || !self.key_files.is_empty();
        Ok(RootAccounts {
            keys: given.then(|| Arc::new(keys)),
            ..self.options.clone()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dropin::apiserver::table::FLAGS;
    use crate::dropin::flag::Dialect;

    fn flags(line: &str) -> Flags {
        let arguments: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        Flags::parse(FLAGS, Dialect::Pflag, &arguments).unwrap()
    }

    fn read(line: &str) -> Result<Authentication, String> {
        authentication(&flags(line), Trust::Authorized)
    }

    #[test]
    fn the_flags_of_an_issuer_are_an_entry_of_the_file() {
        let line = "--oidc-issuer-url=https://a.example --oidc-client-id=c";
        let (issuer, algorithms) = read(line).unwrap().issuer.unwrap();
        assert_eq!(
            issuer,
            json!({"issuer": {"url": "https://a.example", "audiences": ["c"]},
                "claimMappings": {"username": {"claim": "sub", "prefix": "https://a.example#"}}})
        );
        assert_eq!(algorithms, ["RS256"]);
        let more = "--oidc-username-claim=email --oidc-groups-claim=g --oidc-groups-prefix=p: --oidc-signing-algs=ES256,PS256 \
                    --oidc-required-claim=hd=x=y --oidc-required-claim=a=b";
        let (issuer, algorithms) = read(&format!("{line} {more}")).unwrap().issuer.unwrap();
        assert_eq!(
            issuer["claimMappings"],
            json!({"username": {"claim": "email", "prefix": ""}, "groups": {"claim": "g", "prefix": "p:"}})
        );
        assert_eq!(
            issuer["claimValidationRules"][0],
            json!({"claim": "hd", "requiredValue": "x=y"})
        );
        assert_eq!(algorithms, ["ES256", "PS256"]);
    }

    #[test]
    fn what_does_not_go_together_is_said() {
        for (line, words) in [
            (
                "--oidc-client-id=c",
                "oidc-issuer-url and oidc-client-id must be specified together when any oidc-* flags are set",
            ),
            (
                "--authentication-config=f --oidc-client-id=c --oidc-issuer-url=u",
                "authentication-config file and oidc-* flags are mutually exclusive",
            ),
            (
                "--authentication-token-webhook-config-file=f --authentication-token-webhook-version=v2",
                "unsupported authentication webhook version \"v2\"",
            ),
        ] {
            assert_eq!(read(line).err().as_deref(), Some(words), "{line}");
        }
        let accounts = Accounts::of(&flags("--service-account-jwks-uri=http://x"));
        assert!(accounts.unwrap_err().contains("requires https scheme"));
    }

    #[test]
    fn keys_and_issuers_of_accounts_are_taken_in_their_order() {
        let line = "--service-account-issuer=https://one --service-account-issuer=https://two --api-audiences=a,b \
                    --service-account-key-file=/no/such";
        let accounts = Accounts::of(&flags(line)).unwrap();
        assert_eq!(accounts.issuer.as_deref(), Some("https://one"));
        assert_eq!(accounts.options.also, ["https://two"]);
        assert_eq!(accounts.options.audiences, ["a", "b"]);
        assert!(
            accounts
                .open()
                .unwrap_err()
                .starts_with("--service-account-key-file: /no/such: ")
        );
    }
}
