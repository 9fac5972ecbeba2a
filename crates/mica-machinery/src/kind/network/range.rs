//! The range that services' addresses come from: which of them the server has itself, and which are given out first.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};

use crate::names::parse_cidr_sloppy;

/// The narrowest range: upstream wants at least eight addresses.
const MOST_BITS: u8 = 29;

/// A range of IPv4 addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ServiceRange {
    network: Ipv4Addr,
    bits: u8,
}

/// Why a text names no range that services can have.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BadServiceRange {
    #[error("it is no address range")]
    NotARange,
    #[error("only IPv4 is supported")]
    NotIpv4,
    #[error("the service cluster IP range must be at least 8 IP addresses")]
    TooSmall,
}

impl ServiceRange {
    /// Reads `10.0.0.0/24`. Bits behind the network do not count.
    pub fn parse(text: &str) -> Result<Self, BadServiceRange> {
        let cidr = parse_cidr_sloppy(text).ok_or(BadServiceRange::NotARange)?;
        let IpAddr::V4(address) = cidr.address else {
            return Err(BadServiceRange::NotIpv4);
        };
        if cidr.bits > MOST_BITS {
            return Err(BadServiceRange::TooSmall);
        }
        // A range of all addresses would need 33 bits to count; half of them are enough for anybody.
        let bits = cidr.bits.max(1);
        let mask = u32::MAX << (32 - u32::from(bits));
        Ok(Self {
            network: Ipv4Addr::from_bits(address.to_bits() & mask),
            bits,
        })
    }

    /// The first address, which is the server's own.
    pub fn server(&self) -> Ipv4Addr {
        self.at(1)
    }

    /// How many addresses there are, the network's own and the last one included.
    pub fn size(&self) -> u32 {
        1 << (32 - u32::from(self.bits))
    }

    /// Where addresses begin that services get without asking for one. Those before it stay free for who names one, as long
    /// as there are others.
    pub fn dynamic_from(&self) -> u32 {
        const FEWEST: u32 = 16;
        const MOST: u32 = 256;
        if self.size() <= FEWEST {
            1
        } else {
            (self.size() / 16).clamp(FEWEST, MOST) + 1
        }
    }

    pub fn at(&self, offset: u32) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.network.to_bits() + offset)
    }

    pub fn contains(&self, address: IpAddr) -> bool {
        match address {
            IpAddr::V4(four) => four.to_bits() & !(self.size() - 1) == self.network.to_bits(),
            IpAddr::V6(_) => false,
        }
    }
}

impl Default for ServiceRange {
    fn default() -> Self {
        Self {
            network: Ipv4Addr::new(10, 96, 0, 0),
            bits: 12,
        }
    }
}

impl fmt::Display for ServiceRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.network, self.bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read_as_upstream_reads_them() {
        let range = ServiceRange::parse("10.0.0.7/24").unwrap();
        assert_eq!(range.to_string(), "10.0.0.0/24");
        assert_eq!(range.server().to_string(), "10.0.0.1");
        assert_eq!((range.size(), range.dynamic_from()), (256, 17));
        assert_eq!(ServiceRange::default().dynamic_from(), 257);
        assert_eq!(ServiceRange::parse("10.0.0.0/29").unwrap().dynamic_from(), 1);
        for (text, why) in [
            ("bad", BadServiceRange::NotARange),
            ("10.0.0.0", BadServiceRange::NotARange),
            ("10.0.0.0/33", BadServiceRange::NotARange),
            ("fd00::/108", BadServiceRange::NotIpv4),
            ("10.0.0.0/30", BadServiceRange::TooSmall),
        ] {
            assert_eq!(ServiceRange::parse(text), Err(why), "{text}");
        }
    }

    #[test]
    fn what_is_outside_is_outside() {
        let range = ServiceRange::parse("10.0.0.0/24").unwrap();
        let inside = |text: &str| range.contains(text.parse().unwrap());
        assert!(inside("10.0.0.0") && inside("10.0.0.255"));
        assert!(!inside("10.0.1.0") && !inside("9.255.255.255") && !inside("::1"));
    }
}
