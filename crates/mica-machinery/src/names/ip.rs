//! IP addresses and CIDRs: strict and canonical for new fields, sloppy for fields that predate the strict rules.
//!
//! "Sloppy" is upstream's word: leading zeros are ignored, as Go did before 1.17. IPv4-mapped IPv6 addresses print as
//! IPv4, as Go prints them.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use crate::field::{Error, ErrorList, Path, quote};

const BAD_IP: &str = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
const BAD_CIDR: &str = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";
const BAD_INTERFACE: &str = "must be a valid address in CIDR form, (e.g. 10.9.8.7/24 or 2001:db8::1/64)";
/// How many bits an IPv4-mapped address has before its IPv4 part.
const MAPPED_BITS: u8 = 96;

/// An address and a prefix length, in the family it was written in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cidr {
    pub address: IpAddr,
    pub bits: u8,
}

impl Cidr {
    /// The address with all bits beyond the prefix cleared.
    pub fn network(&self) -> IpAddr {
        match self.address {
            IpAddr::V4(v4) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(self.bits)).unwrap_or(0);
                Ipv4Addr::from_bits(v4.to_bits() & mask).into()
            }
            IpAddr::V6(v6) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(self.bits)).unwrap_or(0);
                Ipv6Addr::from_bits(v6.to_bits() & mask).into()
            }
        }
    }

    fn bits_beside(&self, printed: IpAddr) -> u8 {
        if self.address.is_ipv6() && printed.is_ipv4() {
            self.bits.saturating_sub(MAPPED_BITS)
        } else {
            self.bits
        }
    }
}

impl fmt::Display for Cidr {
    /// The network in canonical form.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let network = self.network().to_canonical();
        write!(f, "{network}/{}", self.bits_beside(network))
    }
}

/// An address with leading zeros ignored; mapped ones stay IPv6.
pub fn parse_ip_sloppy(value: &str) -> Option<IpAddr> {
    match value.find(['.', ':']).map(|at| value.as_bytes()[at]) {
        Some(b'.') => parse_v4_sloppy(value).map(Into::into),
        Some(_) => parse_v6_sloppy(value).map(Into::into),
        None => None,
    }
}

pub fn parse_cidr_sloppy(value: &str) -> Option<Cidr> {
    let (address, bits) = value.split_once('/')?;
    let address = parse_v4_sloppy(address)
        .map(IpAddr::from)
        .or_else(|| parse_v6_sloppy(address).map(IpAddr::from))?;
    let max = if address.is_ipv4() { 32 } else { 128 };
    let bits = u8::from_str(&without_zeros(bits, 10)?)
        .ok()
        .filter(|bits| *bits <= max)?;
    Some(Cidr { address, bits })
}

fn parse_v4_sloppy(value: &str) -> Option<Ipv4Addr> {
    let octets: Option<Vec<String>> = value.split('.').map(|octet| without_zeros(octet, 10)).collect();
    octets?.join(".").parse().ok()
}

fn parse_v6_sloppy(value: &str) -> Option<Ipv6Addr> {
    let group = |group: &str| match group {
        "" => Some(String::new()),
        group if group.contains('.') => parse_v4_sloppy(group).map(|v4| v4.to_string()),
        group => without_zeros(group, 16),
    };
    let groups: Option<Vec<String>> = value.split(':').map(group).collect();
    groups?.join(":").parse().ok()
}

fn without_zeros(digits: &str, radix: u32) -> Option<String> {
    if digits.is_empty() || !digits.chars().all(|c| c.is_digit(radix)) {
        return None;
    }
    let short = digits.trim_start_matches('0');
    Some(if short.is_empty() { "0" } else { short }.to_owned())
}

fn is_mapped(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some())
}

/// A prefix as Go's strict parser takes it.
fn parse_cidr_strict(value: &str) -> Option<Cidr> {
    let (address, bits) = value.split_once('/')?;
    address.parse::<IpAddr>().ok()?;
    if bits.len() > 1 && bits.starts_with('0') {
        return None;
    }
    parse_cidr_sloppy(value)
}

fn strict_ip_errors(path: &Path, value: &str) -> ErrorList {
    match value.parse::<IpAddr>() {
        Err(_) => vec![Error::invalid(path, value, "must not have leading 0s")],
        Ok(address) if is_mapped(address) => {
            vec![Error::invalid(path, value, "must not be an IPv4-mapped IPv6 address")]
        }
        Ok(_) => ErrorList::new(),
    }
}

/// An address in canonical form.
pub fn ip_errors(path: &Path, value: &str) -> ErrorList {
    let Some(address) = parse_ip_sloppy(value) else {
        return vec![Error::invalid(path, value, BAD_IP)];
    };
    let mut errors = strict_ip_errors(path, value);
    let canonical = address.to_canonical().to_string();
    if errors.is_empty() && value != canonical {
        errors.push(Error::invalid(
            path,
            value,
            format!("must be in canonical form ({})", quote(&canonical)),
        ));
    }
    errors
}

/// An address that need not be canonical; what the old object already had passes.
pub fn ip_errors_legacy(path: &Path, value: &str, old: &[&str]) -> ErrorList {
    if old.contains(&value) {
        return ErrorList::new();
    }
    match parse_ip_sloppy(value) {
        None => vec![Error::invalid(path, value, BAD_IP)],
        Some(_) => strict_ip_errors(path, value),
    }
}

fn strict_cidr_errors(path: &Path, value: &str) -> ErrorList {
    let text = match parse_cidr_strict(value) {
        None => "must not have leading 0s in IP or prefix length",
        Some(cidr) if is_mapped(cidr.address) => "must not have an IPv4-mapped IPv6 address",
        Some(cidr) if cidr.address != cidr.network() => "must not have bits set beyond the prefix length",
        Some(_) => return ErrorList::new(),
    };
    vec![Error::invalid(path, value, text)]
}

/// A network in canonical form.
pub fn cidr_errors(path: &Path, value: &str) -> ErrorList {
    let Some(cidr) = parse_cidr_sloppy(value) else {
        return vec![Error::invalid(path, value, BAD_CIDR)];
    };
    let mut errors = strict_cidr_errors(path, value);
    let canonical = cidr.to_string();
    if errors.is_empty() && value != canonical {
        errors.push(Error::invalid(
            path,
            value,
            format!("must be in canonical form ({})", quote(&canonical)),
        ));
    }
    errors
}

/// A network that need not be canonical; what the old object already had passes.
pub fn cidr_errors_legacy(path: &Path, value: &str, old: &[&str]) -> ErrorList {
    if old.contains(&value) {
        return ErrorList::new();
    }
    match parse_cidr_sloppy(value) {
        None => vec![Error::invalid(path, value, BAD_CIDR)],
        Some(_) => strict_cidr_errors(path, value),
    }
}

/// An address together with its network's prefix length, in canonical form.
pub fn interface_address_errors(path: &Path, value: &str) -> ErrorList {
    let Some(cidr) = parse_cidr_sloppy(value) else {
        return vec![Error::invalid(path, value, BAD_INTERFACE)];
    };
    let address = cidr.address.to_canonical();
    let bits = if cidr.bits > 32 {
        cidr.bits_beside(address)
    } else {
        cidr.bits
    };
    let canonical = format!("{address}/{bits}");
    if value == canonical {
        return ErrorList::new();
    }
    vec![Error::invalid(
        path,
        value,
        format!("must be in canonical form ({})", quote(&canonical)),
    )]
}

/// What to say of an address that passes [`ip_errors_legacy`] but should be written otherwise.
pub fn ip_warnings(path: &Path, value: &str) -> Vec<String> {
    let Some(address) = parse_ip_sloppy(value) else {
        return Vec::new();
    };
    let (value_text, canonical) = (quote(value), address.to_canonical().to_string());
    match value.parse::<IpAddr>() {
        Ok(strict) if !is_mapped(strict) => {
            if strict.is_ipv6() && canonical != value {
                let canonical = quote(&canonical);
                return vec![format!(
                    "{path}: IPv6 address {value_text} should be in RFC 5952 canonical format ({canonical})"
                )];
            }
            Vec::new()
        }
        _ => {
            vec![format!(
                "{path}: non-standard IP address {value_text} is invalid: use {}",
                quote(&canonical)
            )]
        }
    }
}

/// What to say of a network that passes [`cidr_errors_legacy`] but should be written otherwise.
pub fn cidr_warnings(path: &Path, value: &str) -> Vec<String> {
    let Some(cidr) = parse_cidr_sloppy(value) else {
        return Vec::new();
    };
    let mut warnings = Vec::new();
    let (value_text, canonical) = (quote(value), quote(&cidr.to_string()));
    if cidr.address != cidr.network() {
        let all = if cidr.address.is_ipv4() { 32 } else { 128 };
        let single = quote(&format!("{}/{all}", cidr.address.to_canonical()));
        warnings.push(format!(
            "{path}: CIDR value {value_text} is ambiguous in this context (should be {canonical} or {single}?)"
        ));
    }
    let strict = parse_cidr_strict(value);
    if strict.is_none_or(|cidr| is_mapped(cidr.address)) {
        warnings.push(format!(
            "{path}: non-standard CIDR value {value_text} is invalid: use {canonical}"
        ));
    }
    if warnings.is_empty() && cidr.address.is_ipv6() && canonical != value_text {
        warnings.push(format!(
            "{path}: IPv6 CIDR value {value_text} should be in RFC 5952 canonical format ({canonical})"
        ));
    }
    warnings
}
