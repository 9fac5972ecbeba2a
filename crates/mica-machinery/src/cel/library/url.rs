//! URLs, as Go's `net/url` reads them.

use std::net::IpAddr;
use std::sync::Arc;

use indexmap::IndexMap;

use super::{EvalError, Implementation, Outcome, address};
use crate::cel::value::{Entries, Map, Val, put};
use crate::field::quote;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Url {
    scheme: String,
    host: String,
    /// The path as written.
    path: String,
    query: String,
    text: String,
}

impl std::fmt::Display for Url {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

pub fn find(name: &str) -> Option<Implementation> {
    Some(match name {
        "url" => |_, args| match args {
            [Val::String(text)] => match parse_request(text).and_then(|_| parse(text)) {
                Ok(url) => Ok(Val::Url(Arc::new(url))),
                Err(e) => Err(EvalError::failed(format!(
                    "URL parse error during conversion from string: {e}"
                ))),
            },
            _ => Err(EvalError::no_overload()),
        },
        "isURL" => |_, args| match args {
            [Val::String(text)] => Ok(Val::Bool(parse_request(text).is_ok())),
            _ => Err(EvalError::no_overload()),
        },
        "getScheme" => |_, args| part(args, |url| url.scheme.clone()),
        "getHost" => |_, args| part(args, |url| url.host.clone()),
        "getHostname" => |_, args| part(args, |url| split_host(&url.host).0.to_owned()),
        "getPort" => |_, args| part(args, |url| split_host(&url.host).1.to_owned()),
        "getEscapedPath" => |_, args| part(args, |url| escaped_path(&url.path)),
        "getQuery" => |_, args| match args {
            [Val::Url(url)] => query(&url.query),
            _ => Err(EvalError::no_overload()),
        },
        _ => return None,
    })
}

fn part<'a>(args: &[Val<'a>], of: fn(&Url) -> String) -> Outcome<'a> {
    match args {
        [Val::Url(url)] => Ok(Val::string(of(url))),
        _ => Err(EvalError::no_overload()),
    }
}

/// A URL in a request: absolute, or a path; no fragment.
pub fn parse_request(text: &str) -> Result<Url, String> {
    parse_any(text, true).map_err(|why| format!("parse {}: {why}", quote(text)))
}

fn parse(text: &str) -> Result<Url, String> {
    let (whole, fragment) = text.split_once('#').unwrap_or((text, ""));
    let parsed = parse_any(whole, false).and_then(|url| unescape(fragment, Part::Path).map(|_| url));
    parsed.map_err(|why| format!("parse {}: {why}", quote(text)))
}

fn parse_any(text: &str, request: bool) -> Result<Url, String> {
    if text.bytes().any(|b| b < b' ' || b == 0x7f) {
        return Err("net/url: invalid control character in URL".to_owned());
    }
    if text.is_empty() && request {
        return Err("empty url".to_owned());
    }
    let mut url = Url {
        scheme: String::new(),
        host: String::new(),
        path: String::new(),
        query: String::new(),
        text: text.to_owned(),
    };
    if text == "*" {
        url.path = "*".to_owned();
        return Ok(url);
    }
    let (scheme, rest) = scheme(text)?;
    url.scheme = scheme.to_ascii_lowercase();
    let (mut rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    url.query = query.to_owned();
    if !rest.starts_with('/') {
        if !url.scheme.is_empty() {
            return Ok(url);
        }
        if request {
            return Err("invalid URI for request".to_owned());
        }
        let segment = rest.split('/').next().unwrap_or_default();
        if segment.contains(':') {
            return Err("first path segment in URL cannot contain colon".to_owned());
        }
    }
    let has_authority = !url.scheme.is_empty() || (!request && !rest.starts_with("///"));
    if has_authority && let Some(after) = rest.strip_prefix("//") {
        let end = after.find('/').unwrap_or(after.len());
        url.host = authority(&url.scheme, &after[..end])?;
        rest = &after[end..];
    }
    unescape(rest, Part::Path)?;
    url.path = rest.to_owned();
    Ok(url)
}

fn scheme(text: &str) -> Result<(&str, &str), String> {
    for (i, c) in text.char_indices() {
        match c {
            'a'..='z' | 'A'..='Z' => {}
            '0'..='9' | '+' | '-' | '.' if i > 0 => {}
            ':' if i == 0 => return Err("missing protocol scheme".to_owned()),
            ':' => return Ok((&text[..i], &text[i + 1..])),
            _ => break,
        }
    }
    Ok(("", text))
}

fn authority(scheme: &str, text: &str) -> Result<String, String> {
    let (user, host) = match text.rsplit_once('@') {
        Some((user, host)) => (Some(user), host),
        None => (None, text),
    };
    let parsed = parse_host(scheme, host)?;
    if let Some(user) = user {
        let allowed = |b: u8| b.is_ascii_alphanumeric() || b"-._:~!$&'()*+,;=%@".contains(&b);
        if !user.bytes().all(allowed) {
            return Err("net/url: invalid userinfo".to_owned());
        }
        for part in user.splitn(2, ':') {
            unescape(part, Part::Path)?;
        }
    }
    Ok(parsed)
}

fn parse_host(scheme: &str, host: &str) -> Result<String, String> {
    let bracket = match host.rfind('[') {
        None => None,
        Some(0) => Some(host.rfind(']').ok_or("missing ']' in host")?),
        Some(_) => return Err("invalid IP-literal".to_owned()),
    };
    let port = match (bracket, scheme) {
        (Some(end), _) => end + 1,
        (None, "http" | "https") => host.find(':').unwrap_or(host.len()),
        // Elsewhere lists of hosts, each with its port, have been in use for long.
        (None, _) => host.rfind(':').unwrap_or(host.len()),
    };
    let (name, port) = host.split_at(port);
    let digits = port.strip_prefix(':').unwrap_or_default();
    if !(port.is_empty() || port.starts_with(':')) || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(format!("invalid port {} after host", quote(port)));
    }
    match bracket {
        None => unescape(host, Part::Host),
        Some(_) => Ok(format!("[{}]{port}", literal(&name[1..name.len() - 1])?)),
    }
}

/// What stands in brackets: an IPv6 address, and a zone after `%25`.
fn literal(text: &str) -> Result<String, String> {
    let (address, zone) = text.split_at(text.find("%25").unwrap_or(text.len()));
    let text = unescape(address, Part::Host)? + &unescape(zone, Part::Zone)?;
    match address::parse(&text) {
        Ok((IpAddr::V6(_), _)) => Ok(text),
        Ok((IpAddr::V4(_), _)) => Err("invalid IP-literal".to_owned()),
        Err(why) => Err(format!("invalid host: {why}")),
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Path,
    Host,
    /// The zone of an address.
    Zone,
    Query,
}

fn unescape(text: &str, part: Part) -> Result<String, String> {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let byte = bytes[at];
        match byte {
            b'%' => {
                let hex = text
                    .get(at + 1..at + 3)
                    .and_then(|hex| u8::from_str_radix(hex, 16).ok());
                let plain = text
                    .get(at + 1..at + 3)
                    .is_some_and(|hex| hex.bytes().all(|b| b.is_ascii_hexdigit()));
                let Some(code) = hex.filter(|_| plain) else {
                    let end = (at + 3).min(bytes.len());
                    let shown = String::from_utf8_lossy(&bytes[at..end]);
                    return Err(format!("invalid URL escape {}", quote(&shown)));
                };
                let refused = match part {
                    Part::Host => code < 0x80 && code != b'%',
                    Part::Zone => code != b'%' && code != b' ' && !is_host_byte(code),
                    Part::Path | Part::Query => false,
                };
                if refused {
                    return Err(format!("invalid URL escape {}", quote(&text[at..at + 3])));
                }
                out.push(code);
                at += 3;
                continue;
            }
            b'+' if part == Part::Query => out.push(b' '),
            byte if matches!(part, Part::Host | Part::Zone) && byte < 0x80 && !is_host_byte(byte) => {
                let shown = quote(&char::from(byte).to_string());
                return Err(format!("invalid character {shown} in host name"));
            }
            byte => out.push(byte),
        }
        at += 1;
    }
    Ok(String::from_utf8_lossy(&out).into_owned())
}

fn is_host_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-_.~!$&'()*+,;=:[]<>\"".contains(&byte)
}

fn split_host(host: &str) -> (&str, &str) {
    let (name, port) = match host.rfind(':') {
        Some(at) if host[at + 1..].bytes().all(|b| b.is_ascii_digit()) => (&host[..at], &host[at + 1..]),
        _ => (host, ""),
    };
    match name.strip_prefix('[').and_then(|inner| inner.strip_suffix(']')) {
        Some(inner) => (inner, port),
        None => (name, port),
    }
}

fn escaped_path(path: &str) -> String {
    let as_written = |b: u8| b.is_ascii_alphanumeric() || b"-_.~/!$&'()*+,;=:@[]%".contains(&b);
    if path.bytes().all(as_written) {
        return path.to_owned();
    }
    let plain = unescape(path, Part::Path).unwrap_or_default();
    let kept = |b: u8| b.is_ascii_alphanumeric() || b"-_.~$&+,/:;=@".contains(&b);
    let mut out = String::new();
    for byte in plain.bytes() {
        if kept(byte) {
            out.push(byte as char);
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

fn query<'a>(text: &str) -> Outcome<'a> {
    let mut values: IndexMap<String, Vec<Val<'a>>> = IndexMap::new();
    for pair in text.split('&').filter(|pair| !pair.is_empty() && !pair.contains(';')) {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        let (Ok(key), Ok(value)) = (unescape(key, Part::Query), unescape(value, Part::Query)) else {
            continue;
        };
        values.entry(key).or_default().push(Val::string(value));
    }
    let mut entries = Entries::new();
    for (key, list) in values {
        put(&mut entries, Val::string(key), Val::list(list));
    }
    Ok(Val::Map(Map::owned(entries)))
}
