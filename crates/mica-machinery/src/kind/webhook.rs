//! Where a webhook is called: a URL or a service, and the certificates to trust there.
//!
//! Shared by admission webhooks and the conversion of custom resources.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::check::present;
use super::pem;
use crate::field::{Error, ErrorList, Path, quote};
use crate::{names, object};

const FORM: &str = "; desired format: https://host[/path]";

/// A URL as Go splits it, as far as webhooks care.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Url<'a> {
    pub scheme: String,
    pub user: Option<&'a str>,
    pub host: &'a str,
    pub query: &'a str,
    pub fragment: &'a str,
}

/// A webhook's URL.
pub fn validate_url(url: &str, path: &Path) -> ErrorList {
    let url = match parse_url(url) {
        Ok(url) => url,
        Err(error) => return vec![Error::required(path, format!("url must be a valid URL: {error}{FORM}"))],
    };
    let mut errors = ErrorList::new();
    if url.scheme != "https" {
        let detail = format!("'https' is the only allowed URL scheme{FORM}");
        errors.push(Error::invalid(path, url.scheme, detail));
    }
    if url.host.is_empty() {
        errors.push(Error::invalid(path, "", format!("host must be specified{FORM}")));
    }
    if let Some(user) = url.user {
        errors.push(Error::invalid(
            path,
            user,
            "user information is not permitted in the URL",
        ));
    }
    if !url.fragment.is_empty() {
        errors.push(Error::invalid(
            path,
            url.fragment,
            "fragments are not permitted in the URL",
        ));
    }
    if !url.query.is_empty() {
        errors.push(Error::invalid(
            path,
            url.query,
            "query parameters are not permitted in the URL",
        ));
    }
    errors
}

pub(crate) fn parse_url(text: &str) -> Result<Url<'_>, String> {
    let wrong = |what: &str| Err(format!("parse {}: {what}", quote(text)));
    if text.chars().any(|c| c.is_ascii_control()) {
        return wrong("net/url: invalid control character in URL");
    }
    let (rest, fragment) = text.split_once('#').unwrap_or((text, ""));
    let end = rest
        .find(|c: char| !(c.is_ascii_alphanumeric() || "+-.".contains(c)))
        .unwrap_or(rest.len());
    let (scheme, rest) = match rest[end..].strip_prefix(':') {
        Some(_) if end == 0 => return wrong("missing protocol scheme"),
        Some(after) if rest.starts_with(|c: char| c.is_ascii_alphabetic()) => (rest[..end].to_lowercase(), after),
        _ => (String::new(), rest),
    };
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    if let Some(escape) = bad_escape(rest) {
        return wrong(&format!("invalid URL escape {}", quote(escape)));
    }
    let Some(authority) = rest.strip_prefix("//") else {
        let first = rest.split('/').next().unwrap_or_default();
        if scheme.is_empty() && first.contains(':') {
            return wrong("first path segment in URL cannot contain colon");
        }
        return Ok(Url {
            scheme,
            user: None,
            host: "",
            query,
            fragment,
        });
    };
    let authority = authority.split('/').next().unwrap_or_default();
    let (user, host) = match authority.rsplit_once('@') {
        Some((user, host)) => (Some(user), host),
        None => (None, authority),
    };
    if let Some(bad) = host.chars().find(|c| " \"<>^`{}|\\".contains(*c)) {
        return wrong(&format!("invalid character {} in host name", quote(&bad.to_string())));
    }
    if let Some((_, port)) = host.rsplit_once(':').filter(|(_, port)| !port.contains(']'))
        && !port.bytes().all(|c| c.is_ascii_digit())
    {
        return wrong(&format!("invalid port {} after host", quote(&format!(":{port}"))));
    }
    Ok(Url {
        scheme,
        user,
        host,
        query,
        fragment,
    })
}

/// The first percent sign that two hexadecimal digits do not follow, with what does.
fn bad_escape(text: &str) -> Option<&str> {
    let is_hex = |at: usize| text.as_bytes().get(at).is_some_and(u8::is_ascii_hexdigit);
    let (at, _) = text
        .match_indices('%')
        .find(|(at, _)| !(is_hex(at + 1) && is_hex(at + 2)))?;
    let end = text[at..]
        .char_indices()
        .nth(3)
        .map_or(text.len(), |(length, _)| at + length);
    Some(&text[at..end])
}

/// A webhook's service.
pub fn validate_service(service: &Value, path: &Path) -> ErrorList {
    let mut errors = ErrorList::new();
    // Upstream passes the two in the wrong order, so each is reported as the other.
    for (value, reported) in [("namespace", "name"), ("name", "namespace")] {
        if object::string(service, &[value]).is_empty() {
            errors.push(Error::required(&path.child(reported), ""));
        }
    }
    let port = object::int(service, &["port"]).unwrap_or_default();
    let texts = names::port_number(port);
    if !texts.is_empty() {
        errors.push(Error::invalid(
            &path.child("port"),
            port,
            format!("port is not valid: {}", texts.join(", ")),
        ));
    }
    if let Some(url_path) = present(service, &["path"]).and_then(Value::as_str) {
        validate_path(url_path, &path.child("path"), &mut errors);
    }
    errors
}

fn validate_path(url_path: &str, path: &Path, errors: &mut ErrorList) {
    if url_path.is_empty() || url_path == "/" {
        return;
    }
    if url_path == "//" {
        errors.push(Error::invalid(path, url_path, "segment[0] may not be empty"));
        return;
    }
    if !url_path.starts_with('/') {
        errors.push(Error::invalid(path, url_path, "must start with a '/'"));
    }
    let mut characters = url_path.chars();
    characters.next();
    let rest = characters.as_str();
    for (i, segment) in rest.strip_suffix('/').unwrap_or(rest).split('/').enumerate() {
        if segment.is_empty() {
            errors.push(Error::invalid(path, url_path, format!("segment[{i}] may not be empty")));
            continue;
        }
        let texts = names::dns1123_subdomain(segment);
        errors.extend(
            texts
                .into_iter()
                .map(|text| Error::invalid(path, url_path, format!("segment[{i}]: {text}"))),
        );
    }
}

/// What is wrong with base64 of a PEM bundle, if anything.
pub fn ca_bundle_error(encoded: &str) -> Option<&'static str> {
    if encoded.is_empty() {
        return None;
    }
    let bundle = STANDARD.decode(encoded).unwrap_or_default();
    let good = pem::blocks(&bundle)
        .iter()
        .any(|block| block.label == "CERTIFICATE" && !block.has_headers && pem::certificate(&block.bytes).is_some());
    const BAD: &str = "unable to load root certificates: unable to parse bytes as PEM block";
    (!good).then_some(BAD)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url_errors(url: &str) -> Vec<String> {
        validate_url(url, &Path::new("url")).iter().map(Error::body).collect()
    }

    #[test]
    fn urls_are_https_without_extras() {
        assert!(url_errors("https://example.com:8443/a/b").is_empty());
        assert_eq!(
            url_errors("http://u:p@x/?q#f"),
            [
                r#"Invalid value: "http": 'https' is the only allowed URL scheme; desired format: https://host[/path]"#,
                r#"Invalid value: "u:p": user information is not permitted in the URL"#,
                r#"Invalid value: "f": fragments are not permitted in the URL"#,
                r#"Invalid value: "q": query parameters are not permitted in the URL"#,
            ]
        );
        assert_eq!(
            url_errors("https://"),
            [r#"Invalid value: "": host must be specified; desired format: https://host[/path]"#]
        );
        assert_eq!(
            url_errors("://x"),
            [
                r#"Required value: url must be a valid URL: parse "://x": missing protocol scheme; desired format: https://host[/path]"#
            ]
        );
    }
}
