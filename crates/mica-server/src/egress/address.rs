//! Which addresses a tenant's calls may reach.
//!
//! The server stands where tenants do not: next to metadata services, databases and its own loopback. So planes reach public
//! addresses only, and what the operator allows beside them. The platform itself reaches everything, as a kube-apiserver does:
//! whoever writes to root runs the server.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;
use std::sync::Arc;

use super::Tenant;

/// A range of addresses, written `10.0.0.0/8`; a bare address is itself alone.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Network {
    base: IpAddr,
    prefix: u8,
}

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{0:?} is not an address range such as 10.0.0.0/8 or fd00::/8")]
pub struct BadNetwork(String);

impl FromStr for Network {
    type Err = BadNetwork;

    fn from_str(text: &str) -> Result<Self, BadNetwork> {
        let bad = || BadNetwork(text.to_owned());
        let (base, prefix) = match text.split_once('/') {
            Some((base, prefix)) => (base, Some(prefix)),
            None => (text, None),
        };
        let base: IpAddr = base.parse().map_err(|_| bad())?;
        let bits = if base.is_ipv4() { 32 } else { 128 };
        let prefix = match prefix {
            Some(prefix) => prefix.parse().map_err(|_| bad())?,
            None => bits,
        };
        let network = Self { base, prefix };
        // A base with bits beyond its prefix is more likely a slip than a wish.
        if prefix > bits || network.masked(base) != bits_of(base) {
            return Err(bad());
        }
        Ok(network)
    }
}

impl Network {
    pub fn contains(&self, address: IpAddr) -> bool {
        self.base.is_ipv4() == address.is_ipv4() && self.masked(address) == self.masked(self.base)
    }

    fn masked(&self, address: IpAddr) -> u128 {
        let width = if address.is_ipv4() { 32 } else { 128 };
        let host_bits = u32::from(width - self.prefix.min(width));
        bits_of(address)
            .checked_shr(host_bits)
            .unwrap_or(0)
            .checked_shl(host_bits)
            .unwrap_or(0)
    }
}

fn bits_of(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => u128::from(u32::from(v4)),
        IpAddr::V6(v6) => u128::from(v6),
    }
}

/// What planes may reach beside public addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Networks(Arc<[Network]>);

impl FromIterator<Network> for Networks {
    fn from_iter<I: IntoIterator<Item = Network>>(networks: I) -> Self {
        Self(networks.into_iter().collect())
    }
}

impl Networks {
    /// Whether a call of this tenant may connect to the address.
    pub fn allow(&self, tenant: Tenant, address: IpAddr) -> bool {
        if matches!(tenant, Tenant::Platform | Tenant::PlatformFor(_)) {
            return true;
        }
        self.has(address) || is_public(address.to_canonical())
    }

    /// Whether an address is in one of them.
    pub(super) fn has(&self, address: IpAddr) -> bool {
        // An IPv4 address in IPv6 clothes is that IPv4 address.
        let address = address.to_canonical();
        self.0.iter().any(|network| network.contains(address))
    }
}

/// Whether an address means the same place to everybody.
fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => is_public_v4(v4),
        IpAddr::V6(v6) => is_public_v6(v6),
    }
}

/// Not in IANA's registry of special addresses.
fn is_public_v4(v4: Ipv4Addr) -> bool {
    let [a, b, c, _] = v4.octets();
    let special = matches!(
        (a, b, c),
        (0 | 10 | 127, _, _)
            | (100, 64..=127, _)
            | (169, 254, _)
            | (172, 16..=31, _)
            | (192, 168, _)
            | (192, 0, 0 | 2)
            | (192, 88, 99)
            | (198, 18 | 19, _)
            | (198, 51, 100)
            | (203, 0, 113)
            | (224..=255, _, _)
    );
    !special
}

/// Global unicast, without the ranges that are not reachable or that carry an IPv4 address which is not.
fn is_public_v6(v6: Ipv6Addr) -> bool {
    let s = v6.segments();
    let embedded = |high: u16, low: u16| Ipv4Addr::from((u32::from(high) << 16) | u32::from(low));
    match s {
        // NAT64: the IPv4 address is at the end.
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => is_public_v4(embedded(high, low)),
        // 6to4: the IPv4 address follows the prefix.
        [0x2002, high, low, ..] => is_public_v4(embedded(high, low)),
        // Teredo, ORCHID, benchmarking and other assignments of 2001::/23; documentation.
        [0x2001, second, ..] if second < 0x200 || second == 0xdb8 => false,
        [0x3fff, second, ..] if second < 0x1000 => false,
        [first, ..] => (0x2000..0x4000).contains(&first),
    }
}

#[cfg(test)]
mod tests {
    use mica_api::PlaneId;

    use super::*;

    const PLANE: fn() -> Tenant = || Tenant::Plane(PlaneId::from_random(7));

    #[test]
    fn planes_reach_public_addresses_only_and_the_platform_everything() {
        let none = Networks::default();
        for private in [
            "127.0.0.1",
            "127.8.9.1",
            "0.0.0.0",
            "10.1.2.3",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.1.1",
            "100.64.0.1",
            "169.254.169.254",
            "198.18.0.1",
            "192.0.2.1",
            "224.0.0.1",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "fe80::1",
            "fc00::1",
            "fd00:ec2::254",
            "ff02::1",
            "::ffff:127.0.0.1",
            "::ffff:169.254.169.254",
            "64:ff9b::7f00:1",
            "64:ff9b::a9fe:a9fe",
            "2002:7f00:1::",
            "2001::1",
            "2001:db8::1",
            "::7f00:1",
            "fec0::1",
        ] {
            let address: IpAddr = private.parse().unwrap();
            assert!(!none.allow(PLANE(), address), "{private}");
            assert!(none.allow(Tenant::Platform, address), "{private}");
            let defined_by_root = Tenant::of_user(PlaneId::ROOT, PlaneId::from_random(7));
            assert!(none.allow(defined_by_root, address), "{private}");
        }
        for public in [
            "8.8.8.8",
            "172.15.0.1",
            "172.32.0.1",
            "100.63.0.1",
            "100.128.0.1",
            "169.253.0.1",
            "1.1.1.1",
            "223.255.255.255",
            "2606:4700::1111",
            "2a00::1",
            "::ffff:8.8.8.8",
            "64:ff9b::808:808",
            "2002:808:808::",
        ] {
            assert!(none.allow(PLANE(), public.parse().unwrap()), "{public}");
        }
    }

    #[test]
    fn allowed_networks_open_what_they_say() {
        let allowed: Networks = ["10.1.0.0/16", "fd00::/8", "127.0.0.1"]
            .iter()
            .map(|text| text.parse::<Network>().unwrap())
            .collect();
        for (address, expected) in [
            ("10.1.255.1", true),
            ("10.2.0.1", false),
            ("::ffff:10.1.0.1", true),
            ("fd12::1", true),
            ("fc00::1", false),
            ("127.0.0.1", true),
            ("127.0.0.2", false),
        ] {
            assert_eq!(allowed.allow(PLANE(), address.parse().unwrap()), expected, "{address}");
        }
        let all: Network = "0.0.0.0/0".parse().unwrap();
        assert!(all.contains("1.2.3.4".parse().unwrap()) && !all.contains("::1".parse().unwrap()));
        for bad in [
            "",
            "10.0.0.0/33",
            "10.0.0.1/8",
            "10.0.0.0/",
            "x/8",
            "::/129",
            "10.0.0.0/8/8",
        ] {
            assert_eq!(bad.parse::<Network>(), Err(BadNetwork(bad.to_owned())));
        }
    }
}
