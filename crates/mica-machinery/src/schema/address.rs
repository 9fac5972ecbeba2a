//! Whether a text is a URI or a MAC address, as Go's libraries judge.

use crate::cel::library::url;

/// Whether Go's `url.ParseRequestURI` takes the text: an absolute URI or an absolute path.
pub(crate) fn is_request_uri(text: &str) -> bool {
    url::parse_request(text).is_ok()
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
