//! Who is let in by what, as settings say it: from files to an authenticator, and on to what those files hold later.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use mica_machinery::authentication::{self as configuration, Configuration};
use mica_machinery::field;
use mica_server::authn::reload::Reload;
use mica_server::authn::{
    ALGORITHMS, Anonymous, Authenticator, BootstrapTokens, FrontProxy, Headers, IssuerSet, ReviewVersion, TokenWebhook,
    Tokens, Trust,
};
use mica_server::egress::ClientConfig;
use mica_server::tls::ClientRoots;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use serde_json::{Value, json};

/// How long answers of the webhook are kept: upstream's default.
pub const WEBHOOK_TTL: Duration = Duration::from_secs(120);

/// What settings say about authentication.
#[derive(Clone, Debug, Default)]
pub struct Authentication {
    /// An `AuthenticationConfiguration`.
    pub config: Option<PathBuf>,
    /// The one issuer that flags name, as that file would, and the algorithms it may sign by.
    pub issuer: Option<(Value, Vec<String>)>,
    pub token_file: Option<PathBuf>,
    pub webhook: Option<Webhook>,
    pub bootstrap: BootstrapTokens,
    pub front_proxy: Option<ProxyFiles>,
    /// What a flag says about those who prove nothing.
    pub anonymous: Option<Anonymous>,
    pub trust: Trust,
}

/// The webhook that knows tokens.
#[derive(Clone, Debug)]
pub struct Webhook {
    pub file: PathBuf,
    pub version: ReviewVersion,
    pub ttl: Duration,
}

/// The proxy that may say who asks.
#[derive(Clone, Debug)]
pub struct ProxyFiles {
    pub ca_file: PathBuf,
    pub names: Vec<String>,
    pub headers: Headers,
}

impl Authentication {
    /// Reads the files, and lets them be followed. Issuers must not be among `taken`: the server signs under those names.
    pub fn open(&self, reload: &Reload, taken: &[&str]) -> Result<Authenticator, String> {
        let mut authenticator = Authenticator {
            bootstrap: self.bootstrap,
            trust: self.trust,
            ..Authenticator::default()
        };
        let said = self.open_issuers(&authenticator, reload, taken)?;
        authenticator.anonymous = match (&self.anonymous, said) {
            (Some(_), Some(_)) => {
                let path = field::Path::new("anonymous");
                let detail = "--anonymous-auth flag cannot be set when anonymous field is configured in authentication configuration file";
                return Err(field::Error::forbidden(&path, detail).to_string());
            }
            (None, Some(said)) => anonymous(&said),
            (flag, None) => flag.clone().unwrap_or_default(),
        };
        if let Some(file) = &self.token_file {
            let (text, shown) = (read(file)?, file.display().to_string());
            authenticator.tokens = tokens(&text, &shown)?;
            let current = authenticator.tokens.clone();
            reload.follow(file, &text, move |text| {
                current.replace(&tokens(text, &shown)?);
                Ok(())
            });
        }
        if let Some(webhook) = &self.webhook {
            let to = ClientConfig::from_kubeconfig(&webhook.file).map_err(|error| error.to_string())?;
            authenticator.webhook = Some(Arc::new(TokenWebhook::new(to, webhook.version, webhook.ttl)));
        }
        if let Some(files) = &self.front_proxy {
            authenticator.front_proxy = Some(files.open(reload)?);
        }
        Ok(authenticator)
    }

    /// Sets the platform's issuers, and returns what the file says about those who prove nothing.
    fn open_issuers(
        &self,
        authenticator: &Authenticator,
        reload: &Reload,
        taken: &[&str],
    ) -> Result<Option<configuration::Anonymous>, String> {
        let invalid =
            |errors: field::ErrorList| format!("invalid authentication configuration: {}", field::aggregate(&errors));
        let issuers = authenticator.issuers.clone();
        if let Some((issuer, algorithms)) = &self.issuer {
            let compiled = Configuration::compile(&json!({"jwt": [issuer]}), taken).map_err(invalid)?;
            let algorithms: Vec<&str> = algorithms.iter().map(String::as_str).collect();
            if let Some(bad) = algorithms.iter().find(|one| !ALGORITHMS.contains(one)) {
                return Err(format!("oidc: unsupported signing alg: {}", field::quote(bad)));
            }
            issuers.replace(IssuerSet::new(compiled.issuers, &algorithms));
        }
        let Some(file) = &self.config else {
            return Ok(None);
        };
        let taken: Vec<String> = taken.iter().map(|&one| one.to_owned()).collect();
        let compile = move |text: &[u8]| {
            let document = configuration::parse(text).map_err(|error| error.to_string())?;
            let taken: Vec<&str> = taken.iter().map(String::as_str).collect();
            Configuration::compile(&document, &taken).map_err(invalid)
        };
        let text = read(file)?;
        let compiled = compile(&text).map_err(|problem| match problem.starts_with("invalid authentication") {
            true => problem,
            false => format!(
                "failed to load authentication configuration from file {}: {problem}",
                field::quote(&file.display().to_string())
            ),
        })?;
        let said = compiled.anonymous.clone();
        issuers.replace(IssuerSet::new(compiled.issuers, &ALGORITHMS));
        let first = said.clone();
        reload.follow(file, &text, move |text| {
            let compiled = compile(text)?;
            if compiled.anonymous != first {
                let path = field::Path::new("anonymous");
                let why = field::Error::forbidden(&path, "changed from initial configuration file");
                return Err(why.to_string());
            }
            issuers.replace(IssuerSet::new(compiled.issuers, &ALGORITHMS));
            Ok(())
        });
        Ok(said)
    }
}

impl ProxyFiles {
    fn open(&self, reload: &Reload) -> Result<Arc<FrontProxy>, String> {
        let text = read(&self.ca_file)?;
        let shown = self.ca_file.display().to_string();
        let proxy = FrontProxy::new(
            &String::from_utf8_lossy(&text),
            self.names.clone(),
            self.headers.clone(),
        );
        let proxy = Arc::new(proxy.map_err(|error| format!("{shown}: {error}"))?);
        let current = proxy.clone();
        reload.follow(&self.ca_file, &text, move |text| {
            let replaced = current.replace(&String::from_utf8_lossy(text));
            replaced.map_err(|error| error.to_string())
        });
        Ok(proxy)
    }
}

/// Lets a file of authorities be followed, whose certificates clients prove themselves with.
pub fn follow_roots(reload: &Reload, file: &Path, roots: &Arc<ClientRoots>) -> Result<(), String> {
    let (text, shown) = (read(file)?, file.display().to_string());
    let roots = roots.clone();
    reload.follow(file, &text, move |text| {
        let found = certificates(text, &shown)?;
        roots.replace(&found).map_err(|error| error.to_string())
    });
    Ok(())
}

fn anonymous(said: &configuration::Anonymous) -> Anonymous {
    match (said.enabled, said.paths.is_empty()) {
        (false, _) => Anonymous::Refused,
        (true, true) => Anonymous::Allowed,
        (true, false) => Anonymous::At(said.paths.clone()),
    }
}

fn read(file: &Path) -> Result<Vec<u8>, String> {
    std::fs::read(file).map_err(|error| format!("{}: {error}", file.display()))
}

fn tokens(text: &[u8], file: &str) -> Result<Tokens, String> {
    Tokens::parse(&String::from_utf8_lossy(text), file).map_err(|error| error.to_string())
}

/// The certificates of a file, of which there must be one.
fn certificates(text: &[u8], file: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        Ok(_) => Err(format!(
            "{file}: data does not contain any valid RSA or ECDSA certificates"
        )),
        Err(error) => Err(format!("{file}: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\n";

    fn issuer(url: &str) -> String {
        format!(
            "jwt: [{{issuer: {{url: '{url}', audiences: [a]}}, claimMappings: {{username: {{claim: sub, prefix: ''}}}}}}]\n"
        )
    }

    #[test]
    fn the_file_counts_as_it_is_now_if_it_is_good() {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("auth.yaml");
        let write = |text: String| std::fs::write(&file, HEAD.to_owned() + &text).unwrap();
        write(issuer("https://one.example") + "anonymous: {enabled: false}\n");
        let reload = Reload::default();
        let settings = Authentication {
            config: Some(file.clone()),
            ..Authentication::default()
        };
        let authenticator = settings.open(&reload, &[]).unwrap();
        let shown = || format!("{:?}", authenticator.issuers);
        assert_eq!(authenticator.anonymous, Anonymous::Refused);
        assert_eq!(shown(), r#"["https://one.example"]"#);
        for (text, expected) in [
            (issuer("https://two.example") + "anonymous: {enabled: false}\n", "two"),
            (issuer("http://three.example") + "anonymous: {enabled: false}\n", "two"),
            (issuer("https://three.example"), "two"),
            (issuer("https://four.example") + "anonymous: {enabled: false}\n", "four"),
        ] {
            write(text.clone());
            reload.look();
            assert!(shown().contains(expected), "{text}: {}", shown());
        }
    }

    #[test]
    fn what_is_wrong_is_said_in_upstreams_words() {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("auth.yaml");
        let refused = |text: String, anonymous: Option<Anonymous>| {
            std::fs::write(&file, text).unwrap();
            let settings = Authentication {
                config: Some(file.clone()),
                anonymous,
                ..Authentication::default()
            };
            let error = settings.open(&Reload::default(), &["https://self.example"]).err();
            error.unwrap_or_default().replace(&file.display().to_string(), "FILE")
        };
        assert_eq!(
            refused("kind: X\n".to_owned(), None),
            "failed to load authentication configuration from file \"FILE\": no kind \"X\" is registered for version \"\""
        );
        assert_eq!(
            refused(HEAD.to_owned() + &issuer("https://self.example"), None),
            "invalid authentication configuration: jwt[0].issuer.url: Invalid value: \"https://self.example\": URL must not overlap with disallowed issuers: [https://self.example]"
        );
        assert_eq!(
            refused(
                HEAD.to_owned() + "anonymous: {enabled: true}\n",
                Some(Anonymous::Allowed)
            ),
            "anonymous: Forbidden: --anonymous-auth flag cannot be set when anonymous field is configured in authentication configuration file"
        );
    }
}
