//! How many connections each address has.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use parking_lot::Mutex;

use super::limit;
use super::listen::ListenOptions;

pub(super) struct Crowd {
    most: usize,
    /// Whether those on this machine count.
    local: Local,
    open: Arc<Open>,
}

type Open = Mutex<HashMap<IpAddr, usize>>;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Local {
    Counts,
    /// A proxy beside the server has everybody's connections.
    Free,
}

/// A connection that counts until this is dropped.
pub(super) struct Guest {
    of: IpAddr,
    open: Option<Arc<Open>>,
}

impl Crowd {
    pub(super) fn new(options: &ListenOptions) -> Self {
        let (most, local) = match options.connections_per_address {
            Some(most) => (most, Local::Counts),
            None => (options.max_connections / limit::ADDRESS_PARTS, Local::Free),
        };
        Self {
            most: most.max(1),
            local,
            open: Arc::default(),
        }
    }

    /// Counts one more; `None` if that is too many.
    pub(super) fn enter(&self, address: IpAddr) -> Option<Guest> {
        let of = owner(address);
        if self.local == Local::Free && of.is_loopback() {
            return Some(Guest { of, open: None });
        }
        let mut open = self.open.lock();
        let count = open.entry(of).or_default();
        if *count >= self.most {
            return None;
        }
        *count += 1;
        Some(Guest {
            of,
            open: Some(self.open.clone()),
        })
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let Some(open) = &self.open else { return };
        let mut open = open.lock();
        if let Some(count) = open.get_mut(&self.of) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.of);
            }
        }
    }
}

/// Who an address belongs to: a machine has 2^64 of the newer ones.
fn owner(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(six) if !six.is_loopback() => {
            let [a, b, c, d, ..] = six.segments();
            IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn crowd(most: Option<usize>, all: usize) -> Crowd {
        Crowd::new(&ListenOptions {
            max_connections: all,
            connections_per_address: most,
            ..ListenOptions::default()
        })
    }

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn an_address_has_its_number_and_no_more_until_one_goes() {
        let crowd = crowd(Some(2), 100);
        let one = crowd.enter(address("10.0.0.1")).unwrap();
        let _two = crowd.enter(address("::ffff:10.0.0.1")).unwrap();
        assert!(crowd.enter(address("10.0.0.1")).is_none());
        assert!(crowd.enter(address("10.0.0.2")).is_some());
        drop(one);
        assert!(crowd.enter(address("10.0.0.1")).is_some());
    }

    #[test]
    fn a_network_of_the_newer_ones_is_one_address() {
        let crowd = crowd(Some(1), 100);
        let _one = crowd.enter(address("2001:db8::1")).unwrap();
        assert!(crowd.enter(address("2001:db8::ffff:2")).is_none());
        assert!(crowd.enter(address("2001:db8:0:1::1")).is_some());
    }

    #[test]
    fn unless_told_half_of_all_is_for_one_and_all_for_this_machine() {
        let crowd = crowd(None, 4);
        let open: Vec<_> = (0..3).map(|_| crowd.enter(address("10.0.0.1"))).collect();
        assert_eq!(open.iter().flatten().count(), 2);
        let local: Vec<_> = (0..4).map(|_| crowd.enter(address("127.0.0.1"))).collect();
        assert_eq!(local.iter().flatten().count(), 4);
        drop(open);
        assert!(crowd.open.lock().is_empty());
    }
}
