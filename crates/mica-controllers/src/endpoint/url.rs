//! The URLs of endpoints: what is one, what the address of a plane is, and which hosts a Mica server can serve itself.

use mica_machinery::names;

/// What is wrong with a URL. Each says what to write instead.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Problem {
    #[error("it does not begin with https:// or http://: write it as https://HOST[:PORT][/PATH]")]
    Scheme,
    #[error("it names no host: write it as https://HOST[:PORT][/PATH]")]
    Host,
    #[error("it holds credentials: leave out what is before the @")]
    Credentials,
    #[error("it has a query or a fragment: end it with its path")]
    Query,
    #[error("it is not a URL: write it as https://HOST[:PORT][/PATH]")]
    Form,
}

/// A URL that an API server may be at.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Url {
    pub scheme: Scheme,
    /// In lower case, without the brackets of an IPv6 address.
    pub host: String,
    /// Without a slash at its end.
    pub path: String,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scheme {
    Http,
    Https,
}

pub fn parse(text: &str) -> Result<Url, Problem> {
    let (scheme, rest) = if let Some(rest) = text.strip_prefix("https://") {
        (Scheme::Https, rest)
    } else if let Some(rest) = text.strip_prefix("http://") {
        (Scheme::Http, rest)
    } else {
        return Err(Problem::Scheme);
    };
    if text.contains(['?', '#']) {
        return Err(Problem::Query);
    }
    let authority = rest.split('/').next().unwrap_or_default();
    if authority.contains('@') {
        return Err(Problem::Credentials);
    }
    if authority.is_empty() || authority.starts_with(':') {
        return Err(Problem::Host);
    }
    let uri: http::Uri = text.parse().map_err(|_| Problem::Form)?;
    let authority = uri.authority().ok_or(Problem::Host)?;
    let port = authority.as_str().get(authority.host().len()..).unwrap_or_default();
    if !port.is_empty() && port.strip_prefix(':').is_none_or(|port| port.parse::<u16>().is_err()) {
        return Err(Problem::Form);
    }
    Ok(Url {
        scheme,
        host: authority.host().trim_matches(['[', ']']).to_ascii_lowercase(),
        path: uri.path().trim_end_matches('/').to_owned(),
    })
}

/// The address of a plane at a URL: one that leads to a plane already stays as it is, the base of a server is completed.
pub fn of_plane(url: &str, cluster_path: &str) -> String {
    if url.contains("/clusters/") && url.contains("/control-plane") {
        return url.to_owned();
    }
    format!("{}/clusters/{cluster_path}/control-plane", url.trim_end_matches('/'))
}

/// The host of a URL, if a Mica server can serve it for one plane: a whole name of its own, without a path.
///
/// Names inside a host cluster (`….svc`) are those of Services, which all planes share.
pub fn claimable_host(url: &str) -> Option<String> {
    let url = parse(url).ok()?;
    let inside = url.host.ends_with(".svc") || url.host.ends_with(".svc.cluster.local");
    let address = url.host.parse::<std::net::IpAddr>().is_ok();
    let name = url.host.contains('.') && names::dns1123_subdomain(&url.host).is_empty();
    let claimable = url.scheme == Scheme::Https && url.path.is_empty() && name && !address && !inside;
    claimable.then_some(url.host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_those_that_a_client_can_be_given() {
        for (text, expected) in [
            ("https://a.example", Ok(("a.example", ""))),
            ("https://A.example:6443/", Ok(("a.example", ""))),
            (
                "https://[::1]:6443/clusters/p/control-plane",
                Ok(("::1", "/clusters/p/control-plane")),
            ),
            ("http://10.0.0.1:80", Ok(("10.0.0.1", ""))),
            ("", Err(Problem::Scheme)),
            ("a.example:6443", Err(Problem::Scheme)),
            ("ftp://a.example", Err(Problem::Scheme)),
            ("https://", Err(Problem::Host)),
            ("https://:6443", Err(Problem::Host)),
            ("https://user:word@a.example", Err(Problem::Credentials)),
            ("https://a.example?x=y", Err(Problem::Query)),
            ("https://a.example/#x", Err(Problem::Query)),
            ("https://a b.example", Err(Problem::Form)),
            ("https://a.example:99999", Err(Problem::Form)),
        ] {
            let parsed = parse(text);
            let parsed = parsed.as_ref().map(|url| (url.host.as_str(), url.path.as_str()));
            assert_eq!(parsed, expected.as_ref().map(|found| *found), "{text:?}");
        }
    }

    #[test]
    fn the_base_of_a_server_is_completed_with_the_path_of_the_plane() {
        let whole = "https://a.example/clusters/other/control-plane";
        assert_eq!(of_plane(whole, "p"), whole);
        assert_eq!(
            of_plane("https://a.example/", "p"),
            "https://a.example/clusters/p/control-plane"
        );
    }

    #[test]
    fn hosts_of_their_own_can_be_claimed() {
        for (url, host) in [
            ("https://example.kplane.example", Some("example.kplane.example")),
            ("https://Example.kplane.example:8443/", Some("example.kplane.example")),
            ("http://example.kplane.example", None),
            ("https://shared.kplane.example/clusters/example/control-plane", None),
            ("https://localhost", None),
            ("https://10.1.2.3", None),
            ("https://[::1]", None),
            ("https://api.system.svc", None),
            ("https://api.system.svc.cluster.local:6443", None),
            ("https://under_score.example", None),
        ] {
            assert_eq!(claimable_host(url).as_deref(), host, "{url}");
        }
    }
}
