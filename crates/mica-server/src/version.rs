//! `/version`: which Kubernetes this server is faithful to, and which Mica it is.

use http::header::CONTENT_TYPE;
use http::{HeaderValue, Response};
use serde_json::{Value, json};

use crate::http::Body;

/// The Kubernetes minor version whose behaviour is served.
pub const MAJOR: &str = "1";
pub const MINOR: &str = "36";
/// The exact release compared with.
pub const KUBERNETES: &str = "1.36.4";
/// Clients of this minor and newer work.
const MIN_COMPATIBLE_MINOR: &str = "35";

/// A semantic version that clients parse as Kubernetes and people read as Mica.
pub fn git_version() -> String {
    format!("v{KUBERNETES}+mica.{}", env!("CARGO_PKG_VERSION"))
}

pub fn version() -> Value {
    // Clients of every language expect all of these; those about Go say what is true of us.
    json!({
        "major": MAJOR,
        "minor": MINOR,
        "emulationMajor": MAJOR,
        "emulationMinor": MINOR,
        "minCompatibilityMajor": MAJOR,
        "minCompatibilityMinor": MIN_COMPATIBLE_MINOR,
        "gitVersion": git_version(),
        "gitCommit": option_env!("MICA_GIT_COMMIT").unwrap_or_default(),
        "gitTreeState": "",
        "buildDate": option_env!("MICA_BUILD_DATE").unwrap_or("1970-01-01T00:00:00Z"),
        "goVersion": "none",
        "compiler": "rustc",
        "platform": format!("{}/{}", std::env::consts::OS, go_architecture()),
    })
}

/// The answer to `/version`, indented as upstream's.
pub fn respond() -> Response<Body> {
    let text = serde_json::to_string_pretty(&version()).expect("plain JSON");
    let mut response = Response::new(Body::full(text));
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

fn go_architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}
