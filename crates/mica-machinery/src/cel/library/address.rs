//! Addresses and networks read from text as Go's `netip` reads them, and in what words it refuses them.
//!
//! Rust's own parser accepts the same texts, but says nothing about why it refuses one.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::ip::Cidr;
use crate::field::quote;

/// Whether an address names a zone (`fe80::1%eth0`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Zone {
    Absent,
    Named,
}

/// Groups of 16 bits in an IPv6 address.
const GROUPS: usize = 8;

/// An address, or what `netip.ParseAddr` says.
pub fn parse(text: &str) -> Result<(IpAddr, Zone), String> {
    let read = match text.find(['.', ':', '%']).map(|at| text.as_bytes()[at]) {
        Some(b'.') => v4(text).map(|address| (address.into(), Zone::Absent)),
        Some(b':') => v6(text).map(|(address, zone)| (address.into(), zone)),
        Some(_) => Err(Refusal::of("missing IPv6 address")),
        None => Err(Refusal::of("unable to parse IP")),
    };
    read.map_err(|refusal| {
        let at = refusal.at.map(|at| format!(" (at {})", quote(at))).unwrap_or_default();
        format!("ParseAddr({}): {}{at}", quote(text), refusal.what)
    })
}

/// A network, or what `netip.ParsePrefix` says.
pub fn parse_network(text: &str) -> Result<Cidr, String> {
    let failed = |why: String| format!("netip.ParsePrefix({}): {why}", quote(text));
    let Some((address, bits)) = text.rsplit_once('/') else {
        return Err(failed("no '/'".to_owned()));
    };
    let (address, zone) = parse(address).map_err(failed)?;
    if zone == Zone::Named {
        return Err(failed("IPv6 zones cannot be present in a prefix".to_owned()));
    }
    let bad = || failed(format!("bad bits after slash: {}", quote(bits)));
    let is_number = !bits.is_empty() && bits.bytes().all(|b| b.is_ascii_digit());
    if !is_number || (bits.len() > 1 && bits.starts_with('0')) {
        return Err(bad());
    }
    let bits: i64 = bits.parse().map_err(|_| bad())?;
    let limit = if address.is_ipv4() { 32 } else { 128 };
    let bits = u8::try_from(bits).ok().filter(|bits| *bits <= limit);
    let bits = bits.ok_or_else(|| failed("prefix length out of range".to_owned()))?;
    Ok(Cidr { address, bits })
}

/// What is wrong, and the rest of the text from there on where that is said.
struct Refusal<'t> {
    what: &'static str,
    at: Option<&'t str>,
}

impl<'t> Refusal<'t> {
    fn of(what: &'static str) -> Self {
        Self { what, at: None }
    }

    fn at(what: &'static str, rest: &'t str) -> Self {
        let at = Some(rest).filter(|rest| !rest.is_empty());
        Self { what, at }
    }
}

fn v4(text: &str) -> Result<Ipv4Addr, Refusal<'_>> {
    let mut octets = [0u8; 4];
    let (mut field, mut value, mut digits) = (0, 0u32, 0);
    for (i, byte) in text.bytes().enumerate() {
        match byte {
            b'0'..=b'9' => {
                if digits == 1 && value == 0 {
                    return Err(Refusal::of("IPv4 field has octet with leading zero"));
                }
                value = value * 10 + u32::from(byte - b'0');
                digits += 1;
                if value > 255 {
                    return Err(Refusal::of("IPv4 field has value >255"));
                }
            }
            b'.' if digits == 0 || i + 1 == text.len() => {
                return Err(Refusal::at("IPv4 field must have at least one digit", &text[i..]));
            }
            b'.' if field == 3 => return Err(Refusal::of("IPv4 address too long")),
            b'.' => {
                octets[field] = value as u8;
                field += 1;
                (value, digits) = (0, 0);
            }
            _ => return Err(Refusal::at("unexpected character", &text[i..])),
        }
    }
    if field < 3 {
        return Err(Refusal::of("IPv4 address too short"));
    }
    octets[3] = value as u8;
    Ok(octets.into())
}

fn v6(text: &str) -> Result<(Ipv6Addr, Zone), Refusal<'_>> {
    let (address, zone) = match text.split_once('%') {
        Some((_, "")) => return Err(Refusal::of("zone must be a non-empty string")),
        Some((address, _)) => (address, Zone::Named),
        None => (text, Zone::Absent),
    };
    let mut groups = Vec::with_capacity(GROUPS);
    let mut gap = None;
    let mut rest = address;
    if let Some(after) = rest.strip_prefix("::") {
        gap = Some(0);
        rest = after;
    }
    while groups.len() < GROUPS && !(rest.is_empty() && gap == Some(groups.len())) {
        let (value, after) = group(rest)?;
        if after.starts_with('.') {
            embedded(rest, &mut groups, gap)?;
            rest = "";
            break;
        }
        groups.push(value);
        rest = after;
        if rest.is_empty() {
            break;
        }
        rest = match rest.strip_prefix(':') {
            None => return Err(Refusal::at("unexpected character, want colon", rest)),
            Some("") => return Err(Refusal::at("colon must be followed by more characters", rest)),
            Some(after) => after,
        };
        if let Some(after) = rest.strip_prefix(':') {
            if gap.is_some() {
                return Err(Refusal::at("multiple :: in address", rest));
            }
            gap = Some(groups.len());
            rest = after;
        }
    }
    if !rest.is_empty() {
        return Err(Refusal::at("trailing garbage after address", rest));
    }
    Ok((filled(groups, gap)?, zone))
}

/// The hexadecimal number that a text starts with, and what follows it.
fn group(text: &str) -> Result<(u16, &str), Refusal<'_>> {
    let length = text.bytes().take_while(u8::is_ascii_hexdigit).count();
    if length > 4 {
        return Err(Refusal::at("each group must have 4 or less digits", text));
    }
    let (digits, after) = text.split_at(length);
    let value = u16::from_str_radix(digits, 16);
    let value = value.map_err(|_| Refusal::at("each colon-separated field must have at least one digit", text))?;
    Ok((value, after))
}

/// An IPv4 address in the place of the last two groups.
fn embedded<'t>(text: &'t str, groups: &mut Vec<u16>, gap: Option<usize>) -> Result<(), Refusal<'t>> {
    if gap.is_none() && groups.len() != GROUPS - 2 {
        let what = "embedded IPv4 address must replace the final 2 fields of the address";
        return Err(Refusal::at(what, text));
    }
    if groups.len() > GROUPS - 2 {
        let what = "too many hex fields to fit an embedded IPv4 at the end of the address";
        return Err(Refusal::at(what, text));
    }
    let [a, b, c, d] = v4(text)?.octets();
    groups.extend([u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])]);
    Ok(())
}

/// The address with zeros where `::` was.
fn filled<'t>(groups: Vec<u16>, gap: Option<usize>) -> Result<Ipv6Addr, Refusal<'t>> {
    let missing = GROUPS - groups.len();
    let mut all = [0u16; GROUPS];
    match gap {
        None if missing > 0 => return Err(Refusal::of("address string too short")),
        Some(_) if missing == 0 => {
            return Err(Refusal::of("the :: must expand to at least one field of zeros"));
        }
        None => all.copy_from_slice(&groups),
        Some(gap) => {
            all[..gap].copy_from_slice(&groups[..gap]);
            all[gap + missing..].copy_from_slice(&groups[gap..]);
        }
    }
    Ok(all.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_is_what_rust_reads() {
        for text in [
            "1.2.3.4",
            "::",
            "::1",
            "1::",
            "1:2:3:4:5:6:7:8",
            "1::8",
            "1:2:3:4:5:6:7::",
            "::1.2.3.4",
            "64:ff9b::1.2.3.4",
        ] {
            assert_eq!(
                parse(text),
                Ok((text.parse().expect("an address"), Zone::Absent)),
                "{text}"
            );
        }
        assert_eq!(parse("fe80::1%e").map(|(_, zone)| zone), Ok(Zone::Named));
    }
}
