//! IP addresses and networks, as strict as Go's `netip`: no leading zeros, no zones, no IPv4 in IPv6.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::address::{self, Zone};
use super::{EvalError, Host, Implementation, Outcome};
use crate::cel::value::Val;
use crate::field::quote;

/// An address and how many of its bits name the network. The address keeps the bits beyond them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cidr {
    pub address: IpAddr,
    pub bits: u8,
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

impl Cidr {
    fn masked(self) -> Self {
        Self {
            address: mask(self.address, self.bits),
            bits: self.bits,
        }
    }

    fn contains(self, address: IpAddr) -> bool {
        self.address.is_ipv4() == address.is_ipv4() && mask(self.address, self.bits) == mask(address, self.bits)
    }

    fn overlaps(self, other: Self) -> bool {
        let bits = self.bits.min(other.bits);
        self.address.is_ipv4() == other.address.is_ipv4() && mask(self.address, bits) == mask(other.address, bits)
    }
}

fn mask(address: IpAddr, bits: u8) -> IpAddr {
    match address {
        IpAddr::V4(address) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0);
            Ipv4Addr::from(u32::from(address) & mask).into()
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0);
            Ipv6Addr::from(u128::from(address) & mask).into()
        }
    }
}

pub fn find(name: &str) -> Option<Implementation> {
    Some(match name {
        "ip" => |_, args| match args {
            [Val::Cidr(cidr)] => Ok(Val::Ip(cidr.address)),
            _ => Ok(Val::Ip(parse_ip(text(args)?).map_err(EvalError::Failed)?)),
        },
        "isIP" => |_, args| Ok(Val::Bool(parse_ip(text(args)?).is_ok())),
        "ip.isCanonical" => |_, args| {
            let text = text(args)?;
            Ok(Val::Bool(
                parse_ip(text).map_err(EvalError::Failed)?.to_string() == text,
            ))
        },
        "family" => |_, args| Ok(Val::Int(if ip(args)?.is_ipv4() { 4 } else { 6 })),
        "isUnspecified" => |_, args| Ok(Val::Bool(ip(args)?.is_unspecified())),
        "isLoopback" => |_, args| Ok(Val::Bool(ip(args)?.is_loopback())),
        "isLinkLocalMulticast" => |_, args| Ok(Val::Bool(is_link_local_multicast(ip(args)?))),
        "isLinkLocalUnicast" => |_, args| Ok(Val::Bool(is_link_local_unicast(ip(args)?))),
        "isGlobalUnicast" => |_, args| Ok(Val::Bool(is_global_unicast(ip(args)?))),
        "cidr" => |_, args| Ok(Val::Cidr(cidr_from(text(args)?)?)),
        "isCIDR" => |_, args| Ok(Val::Bool(parse_cidr(text(args)?).is_ok())),
        "containsIP" => contains_ip,
        "containsCIDR" => contains_cidr,
        "prefixLength" => |_, args| Ok(Val::Int(i64::from(network(args)?.bits))),
        "masked" => |_, args| Ok(Val::Cidr(network(args)?.masked())),
        _ => return None,
    })
}

fn text<'v>(args: &'v [Val<'_>]) -> Result<&'v str, EvalError> {
    match args {
        [Val::String(text)] => Ok(text),
        _ => Err(EvalError::no_overload()),
    }
}

fn ip(args: &[Val<'_>]) -> Result<IpAddr, EvalError> {
    match args {
        [Val::Ip(address)] => Ok(*address),
        _ => Err(EvalError::no_overload()),
    }
}

fn network(args: &[Val<'_>]) -> Result<Cidr, EvalError> {
    match args {
        [Val::Cidr(cidr)] => Ok(*cidr),
        _ => Err(EvalError::no_overload()),
    }
}

fn contains_ip<'a>(_: &mut Host<'_>, args: &[Val<'a>]) -> Outcome<'a> {
    let (cidr, address) = match args {
        [Val::Cidr(cidr), Val::Ip(address)] => (cidr, *address),
        [Val::Cidr(cidr), Val::String(text)] => match parse_ip(text) {
            Ok(address) => (cidr, address),
            // Upstream asks the network, not the address, whether there was an error.
            Err(_) => return Err(EvalError::no_overload()),
        },
        _ => return Err(EvalError::no_overload()),
    };
    Ok(Val::Bool(cidr.contains(address)))
}

fn contains_cidr<'a>(_: &mut Host<'_>, args: &[Val<'a>]) -> Outcome<'a> {
    let (cidr, other) = match args {
        [Val::Cidr(cidr), Val::Cidr(other)] => (cidr, *other),
        [Val::Cidr(cidr), Val::String(text)] => (cidr, cidr_from(text)?),
        _ => return Err(EvalError::no_overload()),
    };
    Ok(Val::Bool(cidr.overlaps(other) && cidr.bits <= other.bits))
}

fn cidr_from(text: &str) -> Result<Cidr, EvalError> {
    parse_cidr(text).map_err(|e| {
        EvalError::failed(format!(
            "network address parse error during conversion from string: {e}"
        ))
    })
}

fn is_link_local_multicast(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.octets()[..3] == [224, 0, 0],
        IpAddr::V6(address) => address.segments()[0] & 0xff0f == 0xff02,
    }
}

fn is_link_local_unicast(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.segments()[0] & 0xffc0 == 0xfe80,
    }
}

fn is_global_unicast(address: IpAddr) -> bool {
    let broadcast = address == IpAddr::V4(Ipv4Addr::BROADCAST);
    !broadcast
        && !address.is_unspecified()
        && !address.is_loopback()
        && !address.is_multicast()
        && !is_link_local_unicast(address)
}

fn parse_ip(text: &str) -> Result<IpAddr, String> {
    let shown = quote(text);
    let read = address::parse(text);
    let (address, zone) =
        read.map_err(|why| format!("IP Address {shown} parse error during conversion from string: {why}"))?;
    if zone == Zone::Named {
        return Err(format!("IP address {shown} with zone value is not allowed"));
    }
    if is_mapped(address) {
        return Err(format!("IPv4-mapped IPv6 address {shown} is not allowed"));
    }
    Ok(address)
}

fn is_mapped(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(address) if address.to_ipv4_mapped().is_some())
}

fn parse_cidr(text: &str) -> Result<Cidr, String> {
    let cidr = address::parse_network(text)
        .map_err(|why| format!("network address parse error during conversion from string: {why}"))?;
    if is_mapped(cidr.address) {
        return Err(format!("IPv4-mapped IPv6 address {} is not allowed", quote(text)));
    }
    Ok(cidr)
}
