//! Whether a text is a URI or a MAC address, as Go's libraries judge.

/// Whether Go's `url.ParseRequestURI` takes the text: an absolute URI or an absolute path.
pub(crate) fn is_request_uri(text: &str) -> bool {
    if text.is_empty() || text.bytes().any(|b| b < 0x20 || b == 0x7f) {
        return false;
    }
    if text == "*" {
        return true;
    }
    let Some((scheme, rest)) = split_scheme(text) else {
        return false;
    };
    let rest = rest.split_once('?').map_or(rest, |(path, _)| path);
    if !rest.starts_with('/') {
        // A scheme without a slash makes the rest opaque.
        return scheme;
    }
    let path = match rest.strip_prefix("//").filter(|_| scheme) {
        Some(after) => {
            let (authority, path) = after.find('/').map_or((after, ""), |at| after.split_at(at));
            if !is_authority(authority) {
                return false;
            }
            path
        }
        None => rest,
    };
    has_valid_escapes(path)
}

/// Whether there is a scheme, and what follows it; `None` if the text begins with a colon.
fn split_scheme(text: &str) -> Option<(bool, &str)> {
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' => {}
            b'0'..=b'9' | b'+' | b'-' | b'.' if at > 0 => {}
            b':' if at == 0 => return None,
            b':' => return Some((true, &text[at + 1..])),
            _ => return Some((false, text)),
        }
    }
    Some((false, text))
}

fn is_authority(authority: &str) -> bool {
    let (user, host) = match authority.rsplit_once('@') {
        Some((user, host)) => (Some(user), host),
        None => (None, authority),
    };
    let user_byte = |b: u8| b.is_ascii_alphanumeric() || b"-._:~!$&'()*+,;=%@".contains(&b);
    if !user.is_none_or(|user| user.bytes().all(user_byte) && has_valid_escapes(user)) {
        return false;
    }
    let (host, port) = if host.starts_with('[') {
        match host.rfind(']') {
            Some(end) => (&host[..=end], &host[end + 1..]),
            None => return false,
        }
    } else {
        host.rfind(':').map_or((host, ""), |at| host.split_at(at))
    };
    let port_ok = port.is_empty()
        || port
            .strip_prefix(':')
            .is_some_and(|p| p.bytes().all(|b| b.is_ascii_digit()));
    let host_byte = |b: u8| b >= 0x80 || b.is_ascii_alphanumeric() || b"-_.~!$&'()*+,;=:[]<>\"%".contains(&b);
    port_ok && host.bytes().all(host_byte) && has_valid_escapes(host)
}

fn has_valid_escapes(text: &str) -> bool {
    let bytes = text.as_bytes();
    let is_hex = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_hexdigit);
    (0..bytes.len()).all(|at| bytes[at] != b'%' || (is_hex(at + 1) && is_hex(at + 2)))
}

/// Whether Go's `net.ParseMAC` takes the text: 6, 8 or 20 bytes, in pairs of digits or in fours.
pub(crate) fn is_mac(text: &str) -> bool {
    let separator = match text.as_bytes().get(2) {
        Some(b':') => ':',
        Some(b'-') => '-',
        _ => '.',
    };
    let width = if separator == '.' { 4 } else { 2 };
    let groups: Vec<&str> = text.split(separator).collect();
    let is_group = |group: &&str| group.len() == width && group.bytes().all(|b| b.is_ascii_hexdigit());
    matches!(groups.len() * width / 2, 6 | 8 | 20) && groups.iter().all(is_group)
}
