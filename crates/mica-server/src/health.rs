//! `/healthz`, `/livez`, `/readyz`: named checks, printed as upstream prints them.
//!
//! Why a check failed is shown only at its own path: the summaries are public.

use std::fmt::Write as _;
use std::sync::Arc;

use futures::future::BoxFuture;
use http::header::CONTENT_TYPE;
use http::{HeaderName, HeaderValue, Response, StatusCode};
use parking_lot::RwLock;

use crate::http::Body;
use crate::request::Query;

/// The three endpoints.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Endpoint {
    Healthz,
    Livez,
    Readyz,
}

impl Endpoint {
    pub fn parse(segment: &str) -> Option<Self> {
        Some(match segment {
            "healthz" => Self::Healthz,
            "livez" => Self::Livez,
            "readyz" => Self::Readyz,
            _ => return None,
        })
    }

    fn name(self) -> &'static str {
        match self {
            Self::Healthz => "healthz",
            Self::Livez => "livez",
            Self::Readyz => "readyz",
        }
    }
}

/// Which endpoints a check belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Asks {
    /// All three: failing means that the process should be restarted.
    Always,
    /// `/readyz` only: failing means that requests should go elsewhere for a while.
    WhenReady,
}

type Probe = Arc<dyn Fn() -> BoxFuture<'static, Result<(), String>> + Send + Sync>;

#[derive(Clone)]
struct Check {
    name: &'static str,
    asks: Asks,
    probe: Probe,
}

/// The checks, in order of registration.
pub struct Health {
    checks: RwLock<Vec<Check>>,
}

impl Default for Health {
    /// With `ping` and `log`, which always succeed.
    fn default() -> Self {
        let health = Self {
            checks: RwLock::default(),
        };
        health.add("ping", Asks::Always, || async { Ok(()) });
        // Upstream's watches its log writer; ours cannot block.
        health.add("log", Asks::Always, || async { Ok(()) });
        health
    }
}

impl Health {
    /// Adds a check. `probe` must answer soon: nothing waits for it but the prober, who gives up after a second or so.
    pub fn add<F>(&self, name: &'static str, asks: Asks, probe: impl Fn() -> F + Send + Sync + 'static)
    where
        F: Future<Output = Result<(), String>> + Send + 'static,
    {
        let probe: Probe = Arc::new(move || Box::pin(probe()));
        self.checks.write().push(Check { name, asks, probe });
    }

    /// Answers `/{endpoint}` or, with `check`, `/{endpoint}/{check}`. `None`: there is no such check.
    pub async fn respond(&self, endpoint: Endpoint, check: Option<&str>, query: &Query) -> Option<Response<Body>> {
        let mut checks = self.checks.read().clone();
        checks.retain(|check| check.asks == Asks::Always || endpoint == Endpoint::Readyz);
        match check {
            None => Some(summary(endpoint, &checks, query).await),
            Some(name) => {
                let found = checks.into_iter().find(|check| check.name == name)?;
                Some(match (found.probe)().await {
                    Ok(()) => plain(StatusCode::OK, "ok".to_owned()),
                    Err(why) => failure(format!("internal server error: {why}\n")),
                })
            }
        }
    }

    /// The names of checks that `endpoint` asks and that fail now, with the reasons.
    pub async fn failing(&self, endpoint: Endpoint) -> Vec<(&'static str, String)> {
        let checks = self.checks.read().clone();
        let mut failing = Vec::new();
        for check in checks
            .iter()
            .filter(|check| check.asks == Asks::Always || endpoint == Endpoint::Readyz)
        {
            if let Err(why) = (check.probe)().await {
                failing.push((check.name, why));
            }
        }
        failing
    }
}

async fn summary(endpoint: Endpoint, checks: &[Check], query: &Query) -> Response<Body> {
    let mut unknown: Vec<&str> = query.all("exclude").collect();
    unknown.sort_unstable();
    unknown.dedup();
    let excluded = unknown.clone();
    let mut lines = String::new();
    let mut failed = Vec::new();
    for check in checks {
        let name = check.name;
        let written = if excluded.contains(&name) {
            unknown.retain(|excluded| *excluded != name);
            writeln!(lines, "[+]{name} excluded: ok")
        } else if let Err(why) = (check.probe)().await {
            failed.push(format!("{name}: {why}"));
            writeln!(lines, "[-]{name} failed: reason withheld")
        } else {
            writeln!(lines, "[+]{name} ok")
        };
        written.expect("a string takes all");
    }
    if !unknown.is_empty() {
        let quoted: Vec<String> = unknown.iter().map(|name| mica_machinery::field::quote(name)).collect();
        let names = quoted.join(",");
        writeln!(
            lines,
            "warn: some health checks cannot be excluded: no matches for {names}"
        )
        .expect("a string takes all");
    }
    let endpoint = endpoint.name();
    if !failed.is_empty() {
        tracing::info!(endpoint, failed = failed.join("; "), "health check failed");
        return failure(format!("{lines}{endpoint} check failed\n"));
    }
    if query.get("verbose").is_none() {
        return plain(StatusCode::OK, "ok".to_owned());
    }
    plain(StatusCode::OK, format!("{lines}{endpoint} check passed\n"))
}

fn failure(text: String) -> Response<Body> {
    plain(StatusCode::INTERNAL_SERVER_ERROR, text)
}

fn plain(code: StatusCode, text: String) -> Response<Body> {
    let mut response = Response::new(Body::full(text));
    *response.status_mut() = code;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert(
        HeaderName::from_static("x-content-type-options"),
        HeaderValue::from_static("nosniff"),
    );
    response
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;

    use super::*;

    async fn ask(health: &Health, path: &str) -> String {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let (endpoint, check) = path
            .split_once('/')
            .map_or((path, None), |(endpoint, check)| (endpoint, Some(check)));
        let endpoint = Endpoint::parse(endpoint).unwrap();
        let Some(response) = health.respond(endpoint, check, &Query::parse(Some(query))).await else {
            return "404".to_owned();
        };
        let code = response.status().as_u16();
        let text = response.into_body().collect().await.unwrap().to_bytes();
        format!("{code} {}", String::from_utf8(text.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn healthy_checks_print_as_upstream() {
        let health = Health::default();
        health.add("etcd", Asks::Always, || async { Ok(()) });
        health.add("shutdown", Asks::WhenReady, || async { Ok(()) });
        for (path, expected) in [
            ("healthz", "200 ok"),
            ("livez/ping", "200 ok"),
            ("readyz?exclude=ping", "200 ok"),
            ("livez/shutdown", "404"),
            ("healthz/frob", "404"),
            (
                "livez?verbose",
                "200 [+]ping ok\n[+]log ok\n[+]etcd ok\nlivez check passed\n",
            ),
            (
                "readyz?verbose=1&exclude=etcd&exclude=b&exclude=a",
                "200 [+]ping ok\n[+]log ok\n[+]etcd excluded: ok\n[+]shutdown ok\n\
                 warn: some health checks cannot be excluded: no matches for \"a\",\"b\"\nreadyz check passed\n",
            ),
        ] {
            assert_eq!(ask(&health, path).await, expected, "{path}");
        }
    }

    #[tokio::test]
    async fn a_failing_check_withholds_its_reason_in_the_summary() {
        let health = Health::default();
        health.add("shutdown", Asks::WhenReady, || async {
            Err("process is shutting down".to_owned())
        });
        assert_eq!(ask(&health, "livez").await, "200 ok");
        assert_eq!(
            ask(&health, "readyz").await,
            "500 [+]ping ok\n[+]log ok\n[-]shutdown failed: reason withheld\nreadyz check failed\n"
        );
        assert_eq!(
            ask(&health, "readyz/shutdown").await,
            "500 internal server error: process is shutting down\n"
        );
        assert_eq!(ask(&health, "readyz?exclude=shutdown").await, "200 ok");
        assert_eq!(health.failing(Endpoint::Readyz).await.len(), 1);
    }
}
